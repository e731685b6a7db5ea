// SPDX-License-Identifier: Apache-2.0

// Package admission runs ValidatingAdmissionPolicies without an API server, on
// the API server's own machinery: the same compiler, the same cost limits, the
// same messages. It is how the policies of deployments/static are tested.
// A Policy holds no state that changes and may be used concurrently.
package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
)

// Policy is a compiled ValidatingAdmissionPolicy.
type Policy struct {
	rules     []admissionregistrationv1.NamedRuleWithOperations
	validator validating.Validator
}

// Request is what somebody asks the API server to do.
type Request struct {
	Operation admission.Operation
	Resource  schema.GroupVersionResource
	// Object is nil for a deletion, OldObject for a creation.
	Object, OldObject runtime.Object
	User              user.Info
	// Schemaless shows the objects to CEL in the way that the API server is
	// moving to, instead of converting them first. Answers must be the same.
	Schemaless bool
}

// oldest is the version whose CEL library is used: what compiles with it is
// accepted by every API server that Tranche supports (1.36 accepts new
// expressions that its predecessor could still run).
func oldest() *version.Version { return version.MajorMinor(1, 35) }

// Compile compiles every expression as the API server does when a policy is
// created. The error names each one that does not compile.
func Compile(policy *admissionregistrationv1.ValidatingAdmissionPolicy) (*Policy, error) {
	spec := policy.Spec
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(oldest()))
	if err != nil {
		return nil, fmt.Errorf("compile policy %s: %w", policy.Name, err)
	}
	var errs []error
	options := cel.OptionalVariableDeclarations{HasParams: spec.ParamKind != nil, HasAuthorizer: true}
	for _, v := range spec.Variables {
		variable := &validating.Variable{Name: v.Name, Expression: v.Expression}
		if result := compiler.CompileAndStoreVariable(variable, options, environment.NewExpressions); result.Error != nil {
			errs = append(errs, fmt.Errorf("variable %s: %w", v.Name, result.Error))
		}
	}
	condition := func(what string, expressions []cel.ExpressionAccessor, options cel.OptionalVariableDeclarations) cel.ConditionEvaluator {
		evaluator := compiler.CompileCondition(expressions, options, environment.NewExpressions)
		for _, err := range evaluator.CompilationErrors() {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
		return evaluator
	}
	var conditions, validations []cel.ExpressionAccessor
	messages := make([]cel.ExpressionAccessor, len(spec.Validations)) // nil where there is none
	for i := range spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&spec.MatchConditions[i]))
	}
	for i, v := range spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
		if v.MessageExpression != "" {
			messages[i] = &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
		}
	}
	var matcher matchconditions.Matcher
	if len(conditions) > 0 {
		matcher = matchconditions.NewMatcher(condition("match condition", conditions, options), spec.FailurePolicy, "policy", "validate", policy.Name)
	}
	validator := validating.NewValidator(
		condition("validation", validations, options),
		matcher,
		condition("audit annotation", nil, options),
		condition("message", messages, cel.OptionalVariableDeclarations{HasParams: options.HasParams}),
		spec.FailurePolicy, nil)
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("compile policy %s: %w", policy.Name, err)
	}
	return &Policy{rules: spec.MatchConstraints.ResourceRules, validator: validator}, nil
}

// ErrEvaluation says that a policy could not be evaluated, which the API server
// treats as its failure policy says.
var ErrEvaluation = errors.New("policy cannot be evaluated")

// Review is the list of messages with which the policy denies the request;
// empty if it admits it or does not concern it. An error wraps ErrEvaluation.
func (p *Policy) Review(ctx context.Context, r Request) ([]string, error) {
	if !p.concerns(r) {
		return nil, nil
	}
	object := r.Object
	if object == nil {
		object = r.OldObject
	}
	kind := object.GetObjectKind().GroupVersionKind()
	attributes := admission.NewAttributesRecord(r.Object, r.OldObject, kind, "", "", r.Resource, "", r.Operation, nil, false, r.User)
	versioned := &admission.VersionedAttributes{
		Attributes:         attributes,
		VersionedKind:      kind,
		VersionedObject:    lazy(r.Object, r.Schemaless),
		VersionedOldObject: lazy(r.OldObject, r.Schemaless),
	}
	result := p.validator.Validate(ctx, r.Resource, versioned, nil, nil, celconfig.RuntimeCELCostBudget, nil)
	var denials []string
	for _, d := range result.Decisions {
		switch {
		case d.Evaluation == validating.EvalError:
			return nil, fmt.Errorf("%w: %s", ErrEvaluation, d.Message)
		case d.Action == validating.ActionDeny:
			denials = append(denials, d.Message)
		}
	}
	return denials, nil
}

func lazy(object runtime.Object, schemaless bool) admission.LazyObject {
	if object == nil {
		return admission.LazyObject{}
	}
	lazy := admission.NewLazyObject(object)
	lazy.UseSchemalessTypeRef = schemaless //nolint:staticcheck // the field goes when the way it chooses is the only one
	return lazy
}

// concerns tells whether the policy's rules name the request's operation and resource.
func (p *Policy) concerns(r Request) bool {
	return slices.ContainsFunc(p.rules, func(rule admissionregistrationv1.NamedRuleWithOperations) bool {
		return slices.Contains(rule.Operations, admissionregistrationv1.OperationType(r.Operation)) &&
			slices.Contains(rule.APIGroups, r.Resource.Group) &&
			slices.Contains(rule.APIVersions, r.Resource.Version) &&
			slices.Contains(rule.Resources, r.Resource.Resource)
	})
}
