// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// evictions are those of whom others give way to, from the moment that this is decided
// until the pod that it is for has its node, or is gone. Kubernetes tells victims one
// after the other and meanwhile keeps that pod from being tried. It does not try it
// again when it is done, though what the pod waits for may have happened by then.
type evictions struct {
	framework fwk.Handle
	logger    klog.Logger

	mutex sync.Mutex
	by    map[types.UID]*eviction
}

// eviction is who gives way to one pod.
type eviction struct {
	pod  *v1.Pod
	node string
	// victims may not be seen to end yet.
	victims sets.Set[types.UID]
	told    int
	// running until all victims are told, and held if the pod was held back till then.
	running, held bool
}

func newEvictions(ctx context.Context, framework fwk.Handle) *evictions {
	return &evictions{framework: framework, logger: klog.FromContext(ctx), by: map[types.UID]*eviction{}}
}

// begin is called before victims are chosen.
func (e *evictions) begin(pod *v1.Pod) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.by[pod.UID] = &eviction{pod: pod, running: true}
}

// chosen is called when they are. Some of them may be told already, and one of them in
// vain. Those who end anyway are not told.
func (e *evictions) chosen(uid types.UID, node string, victims []*v1.Pod) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	of := e.by[uid]
	if of == nil {
		return
	}
	of.node, of.victims = node, sets.New[types.UID]()
	for _, victim := range victims {
		of.victims.Insert(victim.UID)
	}
	if remaining(victims) == 0 {
		of.running = false
	}
}

func remaining(victims []*v1.Pod) int {
	n := 0
	for _, victim := range victims {
		if victim.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

// tell is called when one of the victims was told, or could not be: then Kubernetes
// tries the pod again by itself.
func (e *evictions) tell(uid types.UID, victims []*v1.Pod, err error) {
	e.mutex.Lock()
	of := e.by[uid]
	switch {
	case of == nil:
	case err != nil:
		delete(e.by, uid)
	default:
		of.told++
		of.running = of.told < remaining(victims)
	}
	held := of != nil && of.held && !of.running
	if held {
		of.held = false
	}
	e.mutex.Unlock()
	if held {
		e.framework.Activate(e.logger, map[string]*v1.Pod{nameOf(of.pod): of.pod})
	}
}

// hold tells whether the pod has to be held back.
func (e *evictions) hold(uid types.UID) bool {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	of := e.by[uid]
	if of == nil || !of.running {
		return false
	}
	of.held = true
	return true
}

func (e *evictions) forget(uid types.UID) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	delete(e.by, uid)
}

// victims of all evictions.
func (e *evictions) victims() sets.Set[types.UID] {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	all := sets.New[types.UID]()
	for _, of := range e.by {
		all = all.Union(of.victims)
	}
	return all
}

// gives tells whether the victim gives way to the pod.
func (e *evictions) gives(uid, victim types.UID) bool {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	of := e.by[uid]
	return of != nil && of.victims.Has(victim)
}

// unseen is the node on which victims of the pod were told to end and are not seen to,
// empty where there are none.
func (e *evictions) unseen(uid types.UID) string {
	e.mutex.Lock()
	of := e.by[uid]
	e.mutex.Unlock()
	if of == nil || of.node == "" {
		return ""
	}
	info, err := e.framework.SnapshotSharedLister().NodeInfos().Get(of.node)
	if err != nil {
		return ""
	}
	if slices.ContainsFunc(info.GetPods(), func(other fwk.PodInfo) bool {
		return of.victims.Has(other.GetPod().UID) && other.GetPod().DeletionTimestamp == nil
	}) {
		return of.node
	}
	return ""
}
