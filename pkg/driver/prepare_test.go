// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	k8stesting "k8s.io/client-go/testing"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/tranche-dra/tranche/pkg/prepare"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/tests/fixture"
)

var updated = metav1.UpdateOptions{}

func failWith(err error) k8stesting.ReactionFunc {
	return func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, err }
}

func claim(name string) *resourceapi.ResourceClaim {
	return fixture.Claim(name, fixture.Result{Request: "gpu", Cores: 10, Memory: "1Gi"})
}

func TestPrepareAnswersForEveryClaim(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	good := fixture.Claim("good",
		fixture.Result{Request: "a", Cores: 10, Memory: "1Gi"},
		fixture.Result{Request: "b/sub", Card: 1, Cores: 10, Memory: "1Gi"})
	whole := claim("whole")
	whole.Status.Allocation.Devices.Results[0].ShareID = nil
	bad, foreign := claim("bad"), claim("foreign")
	m.api.add(t, good, whole, bad, foreign)
	m.preparer = &preparer{prepare: func(_ context.Context, c *resourceapi.ResourceClaim) ([]prepare.Prepared, error) {
		switch c.Name {
		case "bad":
			return nil, errors.New("claim team/bad, request gpu: card is full")
		case "foreign":
			return nil, nil
		}
		return all(c), nil
	}}
	m.start(t)
	answer, err := m.kubelet(t, "pod-1").NodePrepareResources(t.Context(), &drav1.NodePrepareResourcesRequest{Claims: named(good, whole, bad, foreign)})
	require.NoError(t, err)
	require.Len(t, answer.Claims, 4)

	got := answer.Claims[string(good.UID)]
	require.Empty(t, got.Error)
	require.Len(t, got.Devices, 2)
	for i, want := range good.Status.Allocation.Devices.Results {
		require.Equal(t, []string{strings.Split(want.Request, "/")[0]}, got.Devices[i].RequestNames)
		require.Equal(t, want.Device, got.Devices[i].DeviceName)
		require.Equal(t, want.Pool, got.Devices[i].PoolName)
		require.Equal(t, string(*want.ShareID), got.Devices[i].GetShareId())
		require.Len(t, got.Devices[i].CdiDeviceIds, 1)
	}
	require.Nil(t, answer.Claims[string(whole.UID)].Devices[0].ShareId, "a whole card has no share ID")
	require.Equal(t, "claim team/bad, request gpu: card is full", answer.Claims[string(bad.UID)].Error)
	require.Empty(t, answer.Claims[string(foreign.UID)].Error, "nothing of ours is success")
	require.Empty(t, answer.Claims[string(foreign.UID)].Devices)
	require.Equal(t, 1, m.preparer.(*preparer).times("bad"), "what cannot be is not tried again")
	require.Len(t, m.events.with("team/bad PrepareFailed", "card is full"), 1)
	require.Equal(t, 3, m.counts.of(&m.counts.prepared, "done"))
	require.Equal(t, 1, m.counts.of(&m.counts.prepared, "failed"))
}

func TestClaimsOfACallArePreparedAtTheSameTime(t *testing.T) {
	t.Parallel()
	const n = 16
	m := newMachine(t)
	var together sync.WaitGroup
	together.Add(n)
	m.preparer = &preparer{prepare: func(_ context.Context, c *resourceapi.ResourceClaim) ([]prepare.Prepared, error) {
		together.Done()
		together.Wait() // one after the other would wait for ever
		return all(c), nil
	}}
	var claims []*resourceapi.ResourceClaim
	for i := range n {
		claims = append(claims, claim("c"+string(rune('a'+i))))
	}
	m.api.add(t, claims...)
	m.start(t)
	answer, err := m.kubelet(t, "pod-1").NodePrepareResources(t.Context(), &drav1.NodePrepareResourcesRequest{Claims: named(claims...)})
	require.NoError(t, err)
	require.Len(t, answer.Claims, n)
}

func TestFaultsThatPassAreTriedAgainWithinTheCall(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	var tries atomic.Int32
	m.preparer = &preparer{
		prepare: func(_ context.Context, c *resourceapi.ResourceClaim) ([]prepare.Prepared, error) {
			if tries.Add(1) < 4 {
				return nil, passing{errors.New("/dev/nvidia0 is missing")}
			}
			return all(c), nil
		},
		unprepare: func(share.Claim) error {
			if tries.Add(1) < 8 {
				return passing{errors.New("disk is full")}
			}
			return nil
		},
	}
	c := claim("c")
	m.api.add(t, c)
	m.start(t)
	answer, err := m.kubelet(t, "pod-1").NodePrepareResources(t.Context(), &drav1.NodePrepareResourcesRequest{Claims: named(c)})
	require.NoError(t, err)
	require.Empty(t, answer.Claims[string(c.UID)].Error)
	require.EqualValues(t, 4, tries.Load())
	require.Empty(t, m.events.with("PrepareFailed"), "nobody has to know")
	gone, err := m.kubelet(t, "pod-1").NodeUnprepareResources(t.Context(), &drav1.NodeUnprepareResourcesRequest{Claims: named(c)})
	require.NoError(t, err)
	require.Empty(t, gone.Claims[string(c.UID)].Error)
	require.EqualValues(t, 8, tries.Load())
}

func TestWhoLooksAtAPodThatWaitsLearnsWhy(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.config.Timing.Tell = time.Nanosecond // any try is late
	var tries atomic.Int32
	m.preparer = &preparer{prepare: func(_ context.Context, c *resourceapi.ResourceClaim) ([]prepare.Prepared, error) {
		switch {
		case c.Name == "bad":
			return nil, errors.New("card is full")
		case tries.Add(1) < 4:
			return nil, passing{errors.New("the arbiter does not serve the share")}
		}
		return all(c), nil
	}}
	late, bad := claim("late"), claim("bad")
	consumers := []resourceapi.ResourceClaimConsumerReference{{APIGroup: "example.com", Resource: "pods", Name: "foreign", UID: "f"}}
	for i := range 20 {
		consumers = append(consumers, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint("u", i))})
	}
	late.Status.ReservedFor, bad.Status.ReservedFor = consumers, consumers
	m.api.add(t, late, bad)
	m.start(t)
	answer, err := m.kubelet(t, "pod-1").NodePrepareResources(t.Context(), &drav1.NodePrepareResourcesRequest{Claims: named(late, bad)})
	require.NoError(t, err)
	require.Empty(t, answer.Claims[string(late.UID)].Error)
	require.Len(t, m.events.with("team/late PrepareFailed", "(still trying)"), 1, "once, however often it is tried")
	require.Equal(t, []string{"pod team/p0 u0 PrepareFailed the arbiter does not serve the share (still trying)"}, m.events.with("pod team/p0 "))
	require.Len(t, m.events.with("pod team/"), 16, "one claim may be of hundreds of pods")
	require.Empty(t, m.events.with("foreign"))
	require.Empty(t, m.events.with("pod team/", "card is full"), "kubelet tells it")
}

func TestAFaultThatStaysIsReportedInsideKubeletsLimit(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.config.Timing.PrepareBudget = 30 * soon
	m.preparer = &preparer{prepare: func(context.Context, *resourceapi.ResourceClaim) ([]prepare.Prepared, error) {
		return nil, passing{errors.New("/dev/nvidia0 is missing: load the driver")}
	}}
	c := claim("c")
	m.api.add(t, c)
	m.start(t)
	answer, err := m.kubelet(t, "pod-1").NodePrepareResources(t.Context(), &drav1.NodePrepareResourcesRequest{Claims: named(c)})
	require.NoError(t, err, "an answer for the claim, not a call that ran out of time")
	require.Contains(t, answer.Claims[string(c.UID)].Error, "load the driver (tried ")
	require.Greater(t, m.preparer.(*preparer).times("c"), 1)
	require.Len(t, m.events.with("team/c PrepareFailed"), 1)
}

func TestClaimsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err      error
		retried  bool
		contains string
	}{
		"a server that restarts is asked again":   {err: apierrors.NewServiceUnavailable("restarting"), retried: true},
		"a server that is overrun is asked again": {err: apierrors.NewTooManyRequests("later", 0), retried: true},
		"a claim that is gone is not":             {err: apierrors.NewNotFound(resourceapi.Resource("resourceclaims"), "c"), contains: "not found"},
		"nor one that we may not read":            {err: apierrors.NewForbidden(resourceapi.Resource("resourceclaims"), "c", errors.New("no role")), contains: "no role"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			c := claim("c")
			m.api.add(t, c)
			var asked atomic.Int32
			m.api.client.PrependReactor("get", "resourceclaims", func(k8stesting.Action) (bool, runtime.Object, error) {
				return asked.Add(1) < 4, nil, tc.err
			})
			m.start(t)
			answer, err := m.kubelet(t, "pod-1").NodePrepareResources(t.Context(), &drav1.NodePrepareResourcesRequest{Claims: named(c)})
			if tc.retried {
				require.NoError(t, err)
				require.Empty(t, answer.Claims[string(c.UID)].Error)
				require.EqualValues(t, 4, asked.Load())
				return
			}
			require.ErrorContains(t, err, tc.contains)
			require.NotContains(t, err.Error(), "tried")
		})
	}
}

func TestUnprepareAnswersForEveryClaim(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	long := claim(strings.Repeat("n", 253))
	long.Namespace = strings.Repeat("s", 63)
	gone, bad := claim("gone"), claim("bad")
	var seen sync.Map
	m.preparer = &preparer{unprepare: func(c share.Claim) error {
		seen.Store(c, true)
		if c.Name == "bad" {
			return errors.New("read-only file system")
		}
		return nil
	}}
	m.start(t)
	answer, err := m.kubelet(t, "pod-1").NodeUnprepareResources(t.Context(), &drav1.NodeUnprepareResourcesRequest{Claims: named(gone, bad, long)})
	require.NoError(t, err, "claims that the API server does not know any more")
	require.Len(t, answer.Claims, 3)
	require.Empty(t, answer.Claims[string(gone.UID)].Error)
	require.Empty(t, answer.Claims[string(long.UID)].Error)
	require.Equal(t, "read-only file system", answer.Claims[string(bad.UID)].Error)
	_, found := seen.Load(share.Claim{UID: string(long.UID), Namespace: long.Namespace, Name: long.Name})
	require.True(t, found, "names are passed on whole")
	require.Len(t, m.events.with("team/bad UnprepareFailed"), 1)
	require.Equal(t, 1, m.counts.of(&m.counts.unprepared, "failed"))
}
