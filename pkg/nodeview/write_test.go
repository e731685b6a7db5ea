// SPDX-License-Identifier: Apache-2.0

package nodeview_test

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/nodeview"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/tests/golden"
)

// node has a card with three shares of all kinds, one that is taken whole, and one with a
// share that is left alone.
func node() nodeview.Node {
	id := func(claim string) share.ID {
		return share.ID{Claim: share.Claim{UID: claim, Namespace: "team-a", Name: claim}, Request: "gpu"}
	}
	of := func(claim string, g nodeview.Guarantee) nodeview.Guarantee {
		g.Key, g.ID, g.Card = share.Key(claim), id(claim), "GPU-1"
		return g
	}
	var latency nodeview.Histogram
	for range 100 {
		latency.Add(900 * time.Microsecond)
	}
	return nodeview.Node{Version: "v1", Scheduling: "fifo", Wakeups: 7, Cards: []nodeview.Card{
		{
			UUID: "GPU-1", Model: "NVIDIA A10", PCIBusID: "00000000:1b:00.0", MemoryMiB: 24064, MemoryFreeMiB: 12800, MemoryUsed: 3 << 30, MemoryReadable: true,
			CoresFree: 70, OfflineCoresFree: 50, Holder: "notebook", HeldFor: time.Millisecond, Quantum: 5 * time.Millisecond, Switches: 1234,
			Shares: []nodeview.Share{
				{
					Guarantee: of("notebook", nodeview.Guarantee{
						Policy: share.GuaranteedBurst, Class: share.Online, Limits: share.Limits{Cores: 30, Memory: 8192}, Ceiling: 100, State: "open", Rate: 0.3,
						Held: 3 * time.Second, Wanted: 10 * time.Second, Entitled: 3 * time.Second, Throttled: 7 * time.Second, Preemptions: 100, Latency: latency,
					}),
					Wants: true, MemoryLimit: 8 << 30, MemoryUsed: 2 << 30,
					Processes: []nodeview.Process{{PID: 100, PIDInContainer: 1, Pod: "p", Wants: true}, {PID: 101, PIDInContainer: 2}},
				},
				{
					Guarantee: of("training", nodeview.Guarantee{
						Policy: share.Fixed, Class: share.Offline, Limits: share.Limits{OfflineCores: 50, Memory: 2048}, State: "closed", Wanted: 90 * time.Minute,
					}),
					Wants: true, Draining: true, MemoryLimit: 2 << 30, MemoryUsed: 1 << 30,
				},
				{Guarantee: of("waiting", nodeview.Guarantee{Policy: share.BestEffort, Class: share.NoClass, State: "closed"}), Wants: true, MemoryLimit: 1 << 30},
				{Guarantee: of("wrong", nodeview.Guarantee{Policy: share.BestEffort, Class: share.NoClass, State: "closed"}), Withheld: true, MemoryLimit: 1 << 30},
			},
		},
		{
			UUID: "GPU-2", Quantum: 5 * time.Millisecond,
			Shares: []nodeview.Share{{
				Guarantee: nodeview.Guarantee{Key: "whole", ID: id("whole"), Card: "GPU-2", Policy: share.BestEffort, Class: share.NoClass, Limits: share.Limits{Cores: card.WholeCompute}, Whole: true, State: "free"},
				Unlimited: true,
			}},
		},
		{
			UUID: "GPU-3", MemoryMiB: 24064, MemoryFreeMiB: 23040, CoresFree: 70, OfflineCoresFree: 100, Holder: "alone", Quantum: 5 * time.Millisecond, Switches: 2,
			Shares: []nodeview.Share{{
				Guarantee: nodeview.Guarantee{
					Key: "alone", ID: id("alone-now"), Card: "GPU-3", Policy: share.GuaranteedBurst, Class: share.NoClass, Limits: share.Limits{Cores: 30, Memory: 1024},
					Ceiling: 100, State: "free", Held: 2 * time.Second, Wanted: 3 * time.Second, Throttled: time.Second,
				},
				MemoryLimit: 1 << 30,
			}},
		},
	}}
}

func TestTablesAndJSON(t *testing.T) {
	t.Parallel()
	var table, text strings.Builder
	require.NoError(t, node().WriteTables(&table))
	golden.Equal(t, "node.txt", []byte(table.String()))
	require.NoError(t, node().WriteJSON(&text))
	golden.Equal(t, "node.json", []byte(text.String()))
	var back nodeview.Node
	require.NoError(t, json.Unmarshal([]byte(text.String()), &back))
	require.Equal(t, node(), back)
	var nothing strings.Builder
	require.NoError(t, nodeview.Node{}.WriteTables(&nothing))
	require.Equal(t, "no card of this node has a share\n", nothing.String())
}

var errFull = errors.New("the disk is full")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestWritingThatFails(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, node().WriteTables(full{}), errFull)
	require.ErrorIs(t, nodeview.Node{}.WriteTables(full{}), errFull)
	require.ErrorIs(t, node().WriteJSON(full{}), errFull)
}

func TestAskingTheArbiter(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		is     error
		says   string
	}{
		"that serves": {func(w http.ResponseWriter, _ *http.Request) { _ = node().WriteJSON(w) }, nil, ""},
		"that stands by": {
			func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "standing by", http.StatusServiceUnavailable)
			},
			nodeview.ErrUnavailable, "503 Service Unavailable: standing by",
		},
		"of another version":            {http.NotFound, nil, "404 Not Found"},
		"that says something senseless": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{")) }, nil, "understand the arbiter: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket := filepath.Join(t.TempDir(), "s")
			listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
			require.NoError(t, err)
			server := &http.Server{Handler: tc.answer, ReadHeaderTimeout: time.Minute}
			go func() { _ = server.Serve(listener) }()
			t.Cleanup(func() { _ = server.Close() })
			got, err := nodeview.Get(t.Context(), socket)
			if tc.says == "" {
				require.NoError(t, err)
				require.Equal(t, node(), got)
				return
			}
			require.ErrorContains(t, err, tc.says)
			if tc.is != nil {
				require.ErrorIs(t, err, tc.is)
			}
		})
	}
	_, err := nodeview.Get(t.Context(), filepath.Join(t.TempDir(), "none"))
	require.ErrorContains(t, err, "ask the arbiter: ")
}
