// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/placement"
)

const stateKey fwk.StateKey = Name

// attempt is one pod's way through one scheduling cycle.
type attempt struct {
	pod      *v1.Pod
	policies placement.Policies
	// allocated is the one copy of what is allocated in the cluster, nil where it
	// could not be had.
	allocated *structured.AllocatedState
}

var errNoAttempt = errors.New("PreFilter did not run for this pod")

func attemptOf(state fwk.CycleState) (*attempt, error) {
	data, err := state.Read(stateKey)
	if err != nil {
		return nil, err
	}
	a, ok := data.(*attempt)
	if !ok {
		return nil, errNoAttempt
	}
	return a, nil
}

// Clone is called to try what would be if pods came or went on a node.
func (a *attempt) Clone() fwk.StateData {
	c := *a
	return &c
}

// begin reads what the pod asks for.
func (p *Plugin) begin(pod *v1.Pod) (*attempt, *fwk.Status) {
	policies, err := v1alpha1.PlacementOfAnnotations(pod.Annotations, p.policies)
	if err != nil {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
	}
	return &attempt{pod: pod, policies: policies}, nil
}

// arrange is the slices in the order in which the allocator is to try their
// cards. What is given is shared with others and never changed.
func (a *attempt) arrange(list []*resourceapi.ResourceSlice) []*resourceapi.ResourceSlice {
	return list
}
