// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
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
	shared    *shared
	// doubts are pods for which model and allocator disagreed. It should stay empty: it
	// is there so that a disagreement costs one attempt and not the pod's life.
	doubts recent
	// preemption is Kubernetes' own, with victims that are chosen here.
	preemption *defaultpreemption.DefaultPreemption
}

// shared is what the profiles of one process have in common.
type shared struct {
	inventory *inventory
	ledger    *ledger
	matcher   *matcher
	rooms     *rooms
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

// NewFactory makes the factory that kube-scheduler calls once for each profile, one
// after the other. All of them are taken to be of one scheduler.
func NewFactory() frameworkruntime.PluginFactory {
	var common *shared
	return func(ctx context.Context, raw runtime.Object, framework fwk.Handle) (fwk.Plugin, error) {
		args, err := argsOf(raw)
		if err != nil {
			return nil, err
		}
		features := plfeature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
		if common == nil {
			if common, err = newShared(ctx, framework, features); err != nil {
				return nil, err
			}
		}
		p := &Plugin{
			framework: framework, shared: common,
			view:     &view{SharedDRAManager: framework.SharedDRAManager(), ledger: common.ledger},
			policies: placement.Policies{Node: args.NodePolicy, Card: args.CardPolicy},
		}
		inner := &config.DynamicResourcesArgs{FilterTimeout: args.FilterTimeout, BindingTimeout: args.BindingTimeout}
		wrapped, err := dynamicresources.New(ctx, inner, &handle{Handle: framework, view: p.view}, features)
		if err != nil {
			return nil, fmt.Errorf("make %s: %w", dynamicresources.Name, err)
		}
		var ok bool
		if p.DynamicResources, ok = wrapped.(*dynamicresources.DynamicResources); !ok {
			return nil, fmt.Errorf("%s is a %T, and cannot be wrapped", dynamicresources.Name, wrapped)
		}
		if err := p.preparePreemption(ctx, features); err != nil {
			return nil, err
		}
		return p, nil
	}
}

func newShared(ctx context.Context, framework fwk.Handle, features plfeature.Features) (*shared, error) {
	s := &shared{inventory: &inventory{}, matcher: newMatcher(features), rooms: newRooms(ctx, framework)}
	informers := framework.SharedInformerFactory()
	claims := informers.Resource().V1().ResourceClaims().Informer()
	s.ledger = newLedger(claims.LastSyncResourceVersion)
	if _, err := claims.AddEventHandler(s.ledger.handlers()); err != nil {
		return nil, fmt.Errorf("follow claims: %w", err)
	}
	if _, err := informers.Core().V1().Pods().Informer().AddEventHandler(s.rooms.handlers()); err != nil {
		return nil, fmt.Errorf("follow pods: %w", err)
	}
	return s, nil
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
