// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"

	"github.com/tranche-dra/tranche/pkg/card"
)

func TestServedByOthers(t *testing.T) {
	t.Parallel()
	cards := []card.Card{{UUID: "GPU-aa"}, {UUID: "GPU-bb"}, {}}
	for name, tc := range map[string]struct {
		devices map[string][]string
		want    map[card.UUID]string
	}{
		"no other plugin":                         {nil, map[card.UUID]string{}},
		"devices of another kind":                 {map[string][]string{"x/nic": {"eth0", "gpu"}}, map[card.UUID]string{}},
		"a card by its UUID":                      {map[string][]string{"nvidia.com/gpu": {"GPU-bb"}}, map[card.UUID]string{"GPU-bb": "nvidia.com/gpu"}},
		"replicas of a shared card":               {map[string][]string{"nvidia.com/gpu.shared": {"GPU-aa::0", "GPU-aa::1"}}, map[card.UUID]string{"GPU-aa": "nvidia.com/gpu.shared"}},
		"two plugins: the first by name is named": {map[string][]string{"b/gpu": {"GPU-aa"}, "a/gpu": {"GPU-aa"}}, map[card.UUID]string{"GPU-aa": "a/gpu"}},
		"a part of a UUID is another card":        {map[string][]string{"nvidia.com/gpu": {"GPU-a"}}, map[card.UUID]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := servedByOthers(cards, tc.devices)
			require.Equal(t, tc.want, got)
			require.Len(t, without(cards, got), len(cards)-len(tc.want))
		})
	}
}

func TestShorten(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ text, want string }{
		"a short text stays":            {"short", "short"},
		"the longest that stays":        {strings.Repeat("x", 10), strings.Repeat("x", 10)},
		"a long one ends in dots":       {strings.Repeat("x", 11), strings.Repeat("x", 7) + "..."},
		"characters are not cut in two": {strings.Repeat("ü", 6), "üüü..."},
		"what is no text is made one":   {"a\xff", "a?"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := shorten(tc.text, 10)
			require.Equal(t, tc.want, got)
			require.True(t, utf8.ValidString(got))
		})
	}
}

func TestIsAPIServerAway(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"no error":                      {nil, false},
		"nobody listens":                {&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, true},
		"the connection broke":          {&net.OpError{Op: "read", Err: syscall.ECONNRESET}, true},
		"a time-out":                    {&net.OpError{Op: "dial", Err: context.DeadlineExceeded}, true},
		"the server cannot reach etcd":  {apierrors.NewInternalError(errors.New("etcd")), true},
		"the server shuts down":         {apierrors.NewServiceUnavailable("shutting down"), true},
		"we asked too often":            {apierrors.NewTooManyRequestsError("later"), true},
		"the server said no":            {apierrors.NewUnauthorized("who?"), false},
		"something that we do not know": {errors.New("claim team/c not allocated"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, isAPIServerAway(tc.err))
			if tc.err != nil {
				require.Equal(t, tc.want, isAPIServerAway(fmt.Errorf("get resource claims: %w", tc.err)), "as the helper wraps it")
			}
		})
	}
}

// Kubelet gives a call 45 seconds; the answer has to be back before.
func TestInsistUsesKubeletsTimeAndLeavesSomeForTheAnswer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		limit time.Duration
		want  time.Duration
	}{
		"kubelet's limit":                        {45 * time.Second, 40 * time.Second},
		"a shorter limit":                        {9 * time.Second, 8 * time.Second},
		"no limit at all is bounded nonetheless": {0, 40 * time.Second},
		"a limit longer than kubelet's":          {time.Hour, 40 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := plugin{&Driver{timing: Timing{}.withDefaults(), lastTry: make(chan struct{})}}
				ctx := t.Context()
				if tc.limit > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.limit)
					defer cancel()
				}
				start, tries := time.Now(), 0
				var told []time.Duration
				err := p.insist(ctx, func(ctx context.Context) error {
					deadline, ok := ctx.Deadline()
					require.True(t, ok, "every try knows when to end")
					require.Equal(t, start.Add(tc.want), deadline)
					tries++
					return transient{errors.New("not yet")}
				}, func(err error) {
					require.EqualError(t, err, "not yet")
					told = append(told, time.Since(start))
				})
				require.ErrorContains(t, err, fmt.Sprintf("not yet (tried %d times)", tries))
				require.Equal(t, tc.want, time.Since(start))
				require.GreaterOrEqual(t, tries, 7, "the pauses grow, but not without bound")
				require.LessOrEqual(t, tries, 30)
				require.Len(t, told, 1, "the claim's owner hears of it once on the way")
				require.GreaterOrEqual(t, told[0], 5*time.Second, "what passes soon is not worth an event")
				require.Less(t, told[0], tc.want, "not only at the end")
			})
		})
	}
}

func TestWhatTheDeadlineCutsShortDoesNotHideWhyItWasTriedAgain(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(error) error{
		"as a fault that may be gone": func(err error) error { return transient{err} },
		"as it is":                    func(err error) error { return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := plugin{&Driver{timing: Timing{}.withDefaults(), lastTry: make(chan struct{})}}
				tries := 0
				err := p.insist(t.Context(), func(ctx context.Context) error {
					if tries++; tries < 3 {
						return transient{errors.New("2 of 2 slots are taken")}
					}
					<-ctx.Done() // somebody else has the lock
					return cut(fmt.Errorf("lock reservations: %w", ctx.Err()))
				}, func(error) {})
				require.EqualError(t, err, "2 of 2 slots are taken (tried 3 times)")
			})
		})
	}
}

func TestCorrectionsWithoutEndSlowDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Timing{}.withDefaults(), func() {})
		inner := &delays{TypedRateLimitingInterface: q.TypedRateLimitingInterface}
		defer inner.ShutDown()
		q.TypedRateLimitingInterface = inner
		for range fastCorrections {
			q.AddAfter("node1", q.syncDelay)
			require.Equal(t, q.syncDelay, inner.last)
		}
		q.AddAfter("node1", q.syncDelay)
		require.Equal(t, 30*time.Second, inner.last)
		q.AddAfter("node1", time.Minute)
		require.Equal(t, time.Minute, inner.last, "what is no correction stays as it is")
		time.Sleep(correctionRefill + time.Second) //nolint:forbidigo // virtual time
		q.AddAfter("node1", q.syncDelay)
		require.Equal(t, q.syncDelay, inner.last)
		q.AddAfter("node1", q.syncDelay)
		require.Equal(t, 30*time.Second, inner.last)
	})
}

// delays remembers the last delay.
type delays struct {
	workqueue.TypedRateLimitingInterface[string]
	last time.Duration
}

func (d *delays) AddAfter(_ string, delay time.Duration) { d.last = delay }
