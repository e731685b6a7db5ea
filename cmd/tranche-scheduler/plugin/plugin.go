// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	plfeature "k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/placement"
)

// Name of the plug-in in profiles; that of its arguments is TrancheArgs.
const Name = "Tranche"

// Plugin is DynamicResources with an eye for what is free inside each card.
type Plugin struct {
	*dynamicresources.DynamicResources
	framework fwk.Handle
	view      *view
	policies  placement.Policies
}

var (
	_ fwk.PreFilterPlugin   = &Plugin{}
	_ fwk.FilterPlugin      = &Plugin{}
	_ fwk.PostFilterPlugin  = &Plugin{}
	_ fwk.ScorePlugin       = &Plugin{}
	_ fwk.ScoreExtensions   = &Plugin{}
	_ fwk.ReservePlugin     = &Plugin{}
	_ fwk.EnqueueExtensions = &Plugin{}
	_ fwk.PreBindPlugin     = &Plugin{}
	_ fwk.PreEnqueuePlugin  = &Plugin{}
	_ fwk.SignPlugin        = &Plugin{}
)

// NewFactory makes the factory that kube-scheduler calls once for each profile.
func NewFactory() frameworkruntime.PluginFactory {
	return func(ctx context.Context, raw runtime.Object, framework fwk.Handle) (fwk.Plugin, error) {
		args, err := argsOf(raw)
		if err != nil {
			return nil, err
		}
		p := &Plugin{
			framework: framework,
			view:      &view{SharedDRAManager: framework.SharedDRAManager()},
			policies:  placement.Policies{Node: args.NodePolicy, Card: args.CardPolicy},
		}
		features := plfeature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
		inner := &config.DynamicResourcesArgs{FilterTimeout: args.FilterTimeout, BindingTimeout: args.BindingTimeout}
		wrapped, err := dynamicresources.New(ctx, inner, &handle{Handle: framework, view: p.view}, features)
		if err != nil {
			return nil, fmt.Errorf("make %s: %w", dynamicresources.Name, err)
		}
		var ok bool
		if p.DynamicResources, ok = wrapped.(*dynamicresources.DynamicResources); !ok {
			return nil, fmt.Errorf("%s is a %T, and cannot be wrapped", dynamicresources.Name, wrapped)
		}
		return p, nil
	}
}

// argsOf reads the arguments. A profile without any gives none, and all of them
// have defaults.
func argsOf(raw runtime.Object) (*v1alpha1.TrancheArgs, error) {
	args := v1alpha1.NewTrancheArgs()
	switch given := raw.(type) {
	case nil:
	case *v1alpha1.TrancheArgs:
		args = given.DeepCopy()
	case *runtime.Unknown:
		var err error
		if args, err = v1alpha1.DecodeTrancheArgs(given.Raw); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("arguments of %s are a %T, want %s", Name, raw, v1alpha1.KindTrancheArgs)
	}
	v1alpha1.SetTrancheArgsDefaults(args)
	if errs := args.Validate(nil); len(errs) > 0 {
		return nil, fmt.Errorf("arguments of %s: %w", Name, errs.ToAggregate())
	}
	return args, nil
}

// Name under which the plug-in is registered.
func (p *Plugin) Name() string { return Name }

// PreFilter begins the pod's attempt.
func (p *Plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	a, status := p.begin(pod)
	if status != nil {
		return nil, status
	}
	var result *fwk.PreFilterResult
	status = p.view.show(a, func() (status *fwk.Status) {
		result, status = p.DynamicResources.PreFilter(ctx, state, pod, nodes)
		return status
	})
	if status.IsSuccess() {
		state.Write(stateKey, a)
	}
	return result, status
}

// Filter asks the model first, and the allocator where the model cannot tell.
func (p *Plugin) Filter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	return p.DynamicResources.Filter(ctx, state, pod, node)
}
