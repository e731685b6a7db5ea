// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/placement"
	driver "github.com/tranche-dra/tranche/pkg/slices"
)

// standing of a node for one ask.
type standing int

const (
	open standing = iota
	// absent from the export, though it has cards there.
	absent
	nodeTainted
	notSelected
)

// screen is what the wishes and tolerations of an ask leave of the cluster: which
// nodes, and which cards are tainted for it.
type screen struct {
	nodes   []standing
	tainted [][]bool
}

// errNodes: what is asked for cannot be answered from the export.
var errNodes = errors.New("the export shows no nodes: kubectl get nodes,resourceslices,resourceclaims,deviceclasses -A -o json does")

func (c *cluster) screen(ask *ask) (screen, error) {
	tolerations, err := tolerationsOf(ask)
	if err != nil {
		return screen{}, err
	}
	if len(ask.pod.NodeSelector) > 0 && len(c.hosts) == 0 {
		return screen{}, fmt.Errorf("it has a nodeSelector: %w", errNodes)
	}
	s := screen{nodes: make([]standing, len(c.nodes)), tainted: make([][]bool, len(c.nodes))}
	for i := range c.nodes {
		node := c.nodes[i].Name
		s.nodes[i] = c.standing(node, &ask.pod)
		for _, device := range c.devices[node] {
			s.tainted[i] = append(s.tainted[i], tainted(c.taintsOf(node, device), tolerations))
		}
	}
	return s, nil
}

// tolerationsOf all requests, which must have the same.
func tolerationsOf(ask *ask) ([]resourceapi.DeviceToleration, error) {
	var all []resourceapi.DeviceToleration
	first := true
	for _, spec := range ask.claims {
		for i := range spec.Devices.Requests {
			exactly := spec.Devices.Requests[i].Exactly
			if exactly == nil {
				continue
			}
			if !first && !equality.Semantic.DeepEqual(all, exactly.Tolerations) {
				return nil, errors.New("requests with different tolerations are not simulated")
			}
			all, first = exactly.Tolerations, false
		}
	}
	return all, nil
}

func (c *cluster) standing(node string, pod *corev1.PodSpec) standing {
	if len(c.hosts) == 0 {
		return open
	}
	host, known := c.hosts[node]
	if !known {
		return absent
	}
	taints := host.Spec.Taints
	if host.Spec.Unschedulable { // the taint follows a moment later
		taints = append(slices.Clone(taints), corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	for i := range taints {
		if taints[i].Effect == corev1.TaintEffectPreferNoSchedule {
			continue
		}
		if !slices.ContainsFunc(pod.Tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Logger{}, &taints[i], false) }) {
			return nodeTainted
		}
	}
	if !labels.SelectorFromSet(pod.NodeSelector).Matches(labels.Set(host.Labels)) {
		return notSelected
	}
	return open
}

// taintsOf the card: those that its driver publishes, and those of rules.
func (c *cluster) taintsOf(node string, device *resourceapi.Device) []resourceapi.DeviceTaint {
	all := slices.Clone(device.Taints)
	for i := range c.rules {
		of := c.rules[i].Spec.DeviceSelector
		if of != nil && says(of.Driver, driver.DriverName) && says(of.Pool, node) && says(of.Device, device.Name) {
			all = append(all, c.rules[i].Spec.Taint)
		}
	}
	return all
}

// says tells whether a criterion holds; one that is not there does.
func says(wanted *string, is string) bool { return wanted == nil || *wanted == is }

func tainted(taints []resourceapi.DeviceTaint, tolerations []resourceapi.DeviceToleration) bool {
	return slices.ContainsFunc(taints, func(taint resourceapi.DeviceTaint) bool {
		if taint.Effect != resourceapi.DeviceTaintEffectNoSchedule && taint.Effect != resourceapi.DeviceTaintEffectNoExecute {
			return false
		}
		return !slices.ContainsFunc(tolerations, func(t resourceapi.DeviceToleration) bool { return resourceclaim.ToleratesTaint(t, taint) })
	})
}

// apply marks the cards that are tainted for the ask.
func (s *screen) apply(nodes []placement.Node) {
	for i := range nodes {
		for j := range nodes[i].Cards {
			nodes[i].Cards[j].Tainted = s.tainted[i][j]
		}
	}
}

// missing is why no node has room for the demand.
func (s *screen) missing(nodes []placement.Node, d *placement.Demand) string {
	var short placement.Shortage
	counts := map[standing]int{}
	for i := range nodes {
		if counts[s.nodes[i]]++; s.nodes[i] == open {
			short.Add(placement.Explain(&nodes[i], d))
		}
	}
	why := []string{"no node is left"}
	if counts[open] > 0 {
		why[0] = short.String()
	}
	for _, of := range []struct {
		standing  standing
		one, many string
	}{
		{nodeTainted, "node has a taint", "nodes have a taint"},
		{notSelected, "node is not selected", "nodes are not selected"},
		{absent, "node is gone", "nodes are gone"},
	} {
		switch n := counts[of.standing]; n {
		case 0:
		case 1:
			why = append(why, "1 "+of.one)
		default:
			why = append(why, fmt.Sprintf("%d %s", n, of.many))
		}
	}
	return strings.Join(why, "; ")
}
