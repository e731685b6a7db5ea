// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tranche-dra/tranche/cmd/tranche-scheduler/plugin"
	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
)

// watched counts how often the state of all allocations is copied, and fails as
// many of the first times as it is told.
type watched struct {
	fwk.Handle
	copies, failures atomic.Int64
	// then, if there is something, happens once after a copy was made.
	then atomic.Pointer[func(fwk.ResourceClaimTracker)]
	// beforeList and afterList, if set, happen once around a list of claims.
	beforeList, afterList atomic.Pointer[func()]
}

func (h *watched) SharedDRAManager() fwk.SharedDRAManager {
	return manager{h.Handle.SharedDRAManager(), h}
}

type manager struct {
	fwk.SharedDRAManager
	watched *watched
}

type tracker struct {
	fwk.ResourceClaimTracker
	watched *watched
}

func (m manager) ResourceClaims() fwk.ResourceClaimTracker {
	return tracker{m.SharedDRAManager.ResourceClaims(), m.watched}
}

func (t tracker) List() ([]*resourceapi.ResourceClaim, error) {
	defer once(&t.watched.afterList)
	once(&t.watched.beforeList)
	return t.ResourceClaimTracker.List()
}

func once(hook *atomic.Pointer[func()]) {
	if do := hook.Swap(nil); do != nil {
		(*do)()
	}
}

func (t tracker) GatherAllocatedState() (*structured.AllocatedState, error) {
	t.watched.copies.Add(1)
	if t.watched.failures.Add(-1) >= 0 {
		return nil, errors.New("claims are being changed")
	}
	state, err := t.ResourceClaimTracker.GatherAllocatedState()
	if then := t.watched.then.Swap(nil); then != nil {
		(*then)(t.ResourceClaimTracker)
	}
	return state, err
}

func (h *watched) factory() func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	inner := plugin.NewFactory()
	return func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		h.Handle = handle
		return inner(ctx, args, h)
	}
}

// forAllocator is a share that only the allocator can place, which has to know all that
// is allocated.
func forAllocator() want {
	return want{cores: "10", memory: "1Gi", constraint: "gpu.tranche.dev/productName"}
}

func TestAllocationsAreCopiedOncePerAttemptAtMost(t *testing.T) {
	t.Parallel()
	var h watched
	w := newWorldWith(t, h.factory(), one("spread", "binpack"), machines(2, "a", "b", "c")...)
	for n := int64(1); n <= 3; n++ {
		w.place(forAllocator())
		require.Equal(t, n, h.copies.Load())
	}
	before := h.copies.Load()
	for range 20 {
		w.place(share("1", "1Gi"))
	}
	// The ledger may be behind what the informer has, now and then.
	require.Less(t, h.copies.Load()-before, int64(10), "mostly none is needed")
}

func TestAStateThatCannotBeHadCostsOneAttempt(t *testing.T) {
	t.Parallel()
	var h watched
	h.failures.Store(1)
	w := newWorldWith(t, h.factory(), one("spread", "spread"), machines(2, "node")...)
	require.Equal(t, []string{"node/card-0"}, w.place(forAllocator()))
	require.Equal(t, []string{"node/card-1"}, w.place(forAllocator()))
	require.Equal(t, int64(3), h.copies.Load())
}

// A slice for all nodes declares the node's pool out of date. The model does not
// look at it, the allocator does.
func TestWhatTheAllocatorRefusesIsNotTriedForEver(t *testing.T) {
	t.Parallel()
	everywhere := true
	newer := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "newer"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: v1alpha1.DriverName, AllNodes: &everywhere,
			Pool: resourceapi.ResourcePool{Name: "node", Generation: 2, ResourceSliceCount: 1},
		},
	}
	w := newWorld(t, one("spread", "binpack"), append(machines(2, "node"), newer)...)
	name := w.submit(share("10", "1Gi"))
	w.until("the allocator is believed", func() string {
		message := w.message(name)
		if message == "" || !strings.Contains(message, "cannot allocate all claims") || !strings.Contains(message, "0/1 nodes") {
			return message + "-"
		}
		return ""
	})
}
