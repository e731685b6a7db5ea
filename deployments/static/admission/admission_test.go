// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sadmission "k8s.io/apiserver/pkg/admission"

	"github.com/tranche-dra/tranche/deployments/static/admission"
)

// policy for ConfigMaps: they are denied where expression is not true.
func policy(expression, message string) *admissionregistrationv1.ValidatingAdmissionPolicy {
	return &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
				},
			}}},
			MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "named", Expression: "object.metadata.name != 'spared'"}},
			Variables:       []admissionregistrationv1.Variable{{Name: "data", Expression: "object.data"}},
			Validations:     []admissionregistrationv1.Validation{{Expression: expression, Message: "fallback", MessageExpression: message}},
		},
	}
}

func request(name string) admission.Request {
	return admission.Request{
		Operation: k8sadmission.Create,
		Resource:  corev1.SchemeGroupVersion.WithResource("configmaps"),
		Object: &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Data:       map[string]string{"a": "b"},
		},
	}
}

func TestReview(t *testing.T) {
	t.Parallel()
	update, secret := request("c"), request("c")
	update.Operation, update.OldObject = k8sadmission.Update, update.Object
	secret.Resource.Resource = "secrets"
	for name, row := range map[string]struct {
		expression, message string
		request             admission.Request
		want                []string
	}{
		"admitted":                          {"variables.data.a == 'b'", "", request("c"), nil},
		"denied with a message made in CEL": {"variables.data.a == 'c'", "'a is ' + variables.data.a", request("c"), []string{"a is b"}},
		"denied with the plain message where the other fails": {"false", "string(variables.data.x)", request("c"), []string{"fallback"}},
		"a match condition spares":                            {"false", "", request("spared"), nil},
		"another operation does not concern it":               {"false", "", update, nil},
		"another resource does not concern it":                {"false", "", secret, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compiled, err := admission.Compile(policy(row.expression, row.message))
			require.NoError(t, err)
			denials, err := compiled.Review(t.Context(), row.request)
			require.NoError(t, err)
			require.Equal(t, row.want, denials)
		})
	}
}

func TestReviewTellsDenialFromFailure(t *testing.T) {
	t.Parallel()
	compiled, err := admission.Compile(policy("variables.data.x == 'b'", ""))
	require.NoError(t, err)
	_, err = compiled.Review(t.Context(), request("c"))
	require.ErrorIs(t, err, admission.ErrEvaluation)
	require.ErrorContains(t, err, "no such key: x")
}

func TestCompileNamesEveryExpressionThatIsWrong(t *testing.T) {
	t.Parallel()
	p := policy("variables.nothing == 1", "1 + 1")
	p.Spec.MatchConditions[0].Expression = "objekt == 1"
	p.Spec.Variables[0].Expression = "object.data +"
	_, err := admission.Compile(p)
	for _, text := range []string{"compile policy p", "variable data", "match condition", "validation", "message"} {
		require.ErrorContains(t, err, text)
	}
}
