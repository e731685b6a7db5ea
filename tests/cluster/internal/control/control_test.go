// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/tests/cluster/internal/supervisor"
)

// recorder is a cluster that notes what it is told.
type recorder struct{ calls chan string }

func (r *recorder) note(verb, name string) error {
	switch name {
	case "unknown":
		return fmt.Errorf("find component: %w", supervisor.ErrUnknown)
	case "broken":
		return errors.New("it does not come up")
	}
	r.calls <- verb + " " + name
	return nil
}

func (r *recorder) Start(_ context.Context, name string) error   { return r.note("start", name) }
func (r *recorder) Stop(_ context.Context, name string) error    { return r.note("stop", name) }
func (r *recorder) Restart(_ context.Context, name string) error { return r.note("restart", name) }
func (r *recorder) Kill(_ context.Context, name string) error    { return r.note("kill", name) }
func (r *recorder) Status() []supervisor.State {
	return []supervisor.State{{Name: "kubelet", Running: true, PID: 7, Starts: 2}}
}

// served returns a client of a control that acts on the recorder.
func served(t *testing.T, r *recorder) *Client {
	t.Helper()
	// Not t.TempDir: with a long test name the path would not fit a socket.
	dir, err := os.MkdirTemp("", "control")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	socket := filepath.Join(dir, "s")
	ctx, cancel := context.WithCancel(t.Context())
	listener, err := Listen(ctx, socket)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, listener, r) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done, "a control that is ended ends without an error")
	})
	return NewClient(socket)
}

func TestEveryVerbReachesItsComponent(t *testing.T) {
	t.Parallel()
	r := &recorder{calls: make(chan string, 1)}
	client := served(t, r)
	for _, verb := range []string{"start", "stop", "restart", "kill"} {
		require.NoError(t, client.Do(t.Context(), verb, "kubelet"))
		require.Equal(t, verb+" kubelet", <-r.calls)
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	states, err := served(t, r).Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, r.Status(), states)
}

func TestFailuresAreTold(t *testing.T) {
	t.Parallel()
	client := served(t, &recorder{})
	require.EqualError(t, client.Do(t.Context(), "stop", "broken"), "it does not come up")
	require.ErrorContains(t, client.Do(t.Context(), "stop", "unknown"), supervisor.ErrUnknown.Error())
	require.ErrorContains(t, client.Do(t.Context(), "explode", "kubelet"), "no such verb")
}
