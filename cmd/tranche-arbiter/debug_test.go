// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/nodeview"
	"github.com/tranche-dra/tranche/pkg/simcard"
	"github.com/tranche-dra/tranche/tests/fixture"
)

// status runs the command against the arbiter of p.
func (p *process) status(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var said bytes.Buffer
	cmd := newStatus()
	cmd.SetArgs(append([]string{"--debug-socket=" + filepath.Join(p.root, "run", nodeview.SocketName)}, args...))
	cmd.SetContext(t.Context())
	cmd.SetOut(&said)
	cmd.SetErr(&said)
	err := cmd.Execute()
	return said.String(), err
}

func TestStatusShowsWhatTheArbiterKnows(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.card(t)
	require.Eventually(t, func() bool {
		said, err := p.status(t)
		return err == nil && said == "no card of this node has a share\n"
	}, patient, time.Millisecond)
	p.share(t)
	said, err := p.status(t)
	require.NoError(t, err)
	require.Regexp(t, `(?m)^GPU-\S+ .* 70/100 +100/100 `, said, "what is free")
	require.Regexp(t, `(?m)^GPU-\S+ +team-a +notebook +gpu +fixed-share +none +30 +\S+ +`, said)
	said, err = p.status(t, "-o", "json")
	require.NoError(t, err)
	var node nodeview.Node
	require.NoError(t, json.Unmarshal([]byte(said), &node))
	require.Equal(t, version, node.Version)
	require.Contains(t, []string{"fifo", "nice", "normal"}, node.Scheduling)
	require.Equal(t, "notebook", node.Cards[0].Shares[0].ID.Claim.Name)
	_, err = p.status(t, "-o", "yaml")
	require.ErrorContains(t, err, `--output: "yaml" is neither table nor json`)

	info, err := os.Stat(filepath.Join(p.root, "run", nodeview.SocketName))
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())
	p.stop()
	require.NoError(t, p.wait())
	_, err = p.status(t)
	require.ErrorContains(t, err, "ask the arbiter: ", "nobody is there")
}

func TestTheHelpOfStatusTellsOfAllThatItShows(t *testing.T) {
	t.Parallel()
	share := nodeview.Share{Withheld: true}
	share.State = "closed"
	waits, drains := share, share
	waits.Withheld, waits.Wants = false, true
	drains.Withheld, drains.Draining = false, true
	var said bytes.Buffer
	require.NoError(t, nodeview.Node{Cards: []nodeview.Card{{Shares: []nodeview.Share{share, waits, drains}}}}.WriteTables(&said))
	help := newStatus().Long
	cells := regexp.MustCompile(` {2,}`)
	for line := range strings.SplitSeq(said.String(), "\n") {
		if !strings.HasPrefix(line, "CARD") {
			continue
		}
		for _, column := range cells.Split(line, -1) {
			require.Regexp(t, `(?m)^  ([A-Z0-9]+, )*`+column+`\b|; `+column+`: `, help)
		}
	}
	for _, state := range regexp.MustCompile(`closed,\w+`).FindAllString(said.String(), -1) {
		require.Contains(t, help, strings.TrimPrefix(state, "closed")+": ")
	}
	for _, state := range []string{"free", "open", "closed"} {
		require.Contains(t, help, " "+state+": ")
	}
}

func TestADebugSocketThatCannotBeMadeIsNoHarm(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	p := start(t, "--debug-socket="+filepath.Join(file, "debug.sock"))
	p.share(t)
	off := start(t, "--debug-socket=none")
	off.share(t)
	require.NoFileExists(t, filepath.Join(off.root, "run", nodeview.SocketName))
}

func TestWhatProcessesOfASimulatedCardCompute(t *testing.T) {
	t.Parallel()
	cards := newSimulatedCards(t.TempDir())
	_, err := cards.Computed(t.Context(), fixture.Card(0).UUID)
	require.Error(t, err, "there is no such card")
	_, err = simcard.Create(cards.dir, simcard.Config{UUID: fixture.Card(0).UUID, Memory: 8 << 30, ContextBytes: 300 << 20})
	require.NoError(t, err)
	for range 2 {
		computed, err := cards.Computed(t.Context(), fixture.Card(0).UUID)
		require.NoError(t, err)
		require.Equal(t, []card.ProcessCompute(nil), computed, "nobody uses it")
	}
	require.NoError(t, cards.close())
}
