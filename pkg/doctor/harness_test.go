// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/doctor"
)

const driverName = "gpu.tranche.dev"

// shortDir is a directory with room for a socket's name.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "d")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// serve runs a gRPC server at a socket.
func serve(t *testing.T, socket string, register func(*grpc.Server)) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(socket), 0o750))
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	server := grpc.NewServer()
	register(server)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-done)
	})
}

// abandoned leaves a socket that nobody listens on.
func abandoned(t *testing.T, socket string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(socket), 0o750))
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, listener.Close())
}

var errBroken = errors.New("broken")

// cardsOf is a lister.
type cardsOf struct {
	cards []card.Card
	err   error
}

func (c cardsOf) Cards(context.Context) ([]card.Card, error) { return c.cards, c.err }

// files of which one card's, or those of all, are missing.
type files struct {
	missing card.UUID
	common  error
	// runtime is what is wrong with the sharing runtime.
	runtime error
}

func (f files) Device(_ context.Context, c card.Card) (*specs.ContainerEdits, error) {
	if c.UUID == f.missing {
		return nil, errors.New("find device nodes of card " + string(c.UUID) + ": /dev/nvidia0 is missing: load the driver")
	}
	return &specs.ContainerEdits{}, nil
}

func (f files) Common(context.Context, []card.Card, cdi.Runtime) (*specs.ContainerEdits, error) {
	return &specs.ContainerEdits{}, f.common
}

// want is part of a finding.
type want struct {
	level        doctor.Level
	seen, remedy string
}

// requireFindings compares levels exactly and texts by what they contain.
func requireFindings(t *testing.T, wanted []want, got []doctor.Finding) {
	t.Helper()
	require.Len(t, got, len(wanted), "%+v", got)
	for i, w := range wanted {
		require.Equal(t, w.level, got[i].Level, "%+v", got[i])
		require.Contains(t, got[i].Seen, w.seen)
		require.Contains(t, got[i].Remedy, w.remedy)
		if w.level == doctor.Problem || w.level == doctor.Warning {
			require.NotEmpty(t, got[i].Remedy, "what is wrong has a remedy")
		} else {
			require.Empty(t, got[i].Remedy)
		}
	}
}
