// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/pkg/durable"
	"github.com/tranche-dra/tranche/pkg/hostdir"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/simcard"
	"github.com/tranche-dra/tranche/pkg/wire"
	"github.com/tranche-dra/tranche/tests/fixture"
	"github.com/tranche-dra/tranche/tests/wireclient"
)

const patient = 30 * time.Second // a bound for tests that would hang, never a measure

// process is run, with directories of its own.
type process struct {
	root, metrics string
	stop          context.CancelFunc
	wait          func() error
}

func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{root: t.TempDir(), metrics: freeAddress(t)}
	c, err := parse(t, nil, append([]string{
		"--state-dir=" + p.root + "/state", "--run-dir=" + p.root + "/run", "--metrics-address=" + p.metrics, "--kubernetes=false",
		"--watchdog-interval=10ms",
	}, args...)...)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	var result error
	go func() {
		defer close(done)
		result = run(ctx, c)
	}()
	p.stop, p.wait = cancel, func() error { <-done; return result }
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return p
}

// addresses of loopback, one for each test: a port that is free there stays free.
var addresses atomic.Int64

func freeAddress(t *testing.T) string {
	t.Helper()
	n := addresses.Add(1)
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", fmt.Sprintf("127.%d.%d.%d:0", 1+os.Getpid()%250, n/250, 1+n%250))
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	return listener.Addr().String()
}

func (p *process) get(t *testing.T, path string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.metrics+path, http.NoBody)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close() //nolint:errcheck // read to the end below
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(body)
}

// share prepares a share of a simulated card, and waits until it is served.
func (p *process) share(t *testing.T) (dir string) {
	t.Helper()
	c := fixture.Card(0)
	s := share.Share{
		ID: share.ID{
			Claim:   share.Claim{UID: "11111111-2222-3333-4444-555555555555", Namespace: "team-a", Name: "notebook"},
			Request: "gpu", Pool: fixture.Pool, Device: c.DeviceName(), ShareID: "s",
		},
		Card: c.UUID, Limits: share.Limits{Cores: 30, Memory: 4096}, Policy: share.Fixed, Class: share.NoClass, BurstCeiling: 100,
	}
	data, err := cdi.ShareFile(s, c)
	require.NoError(t, err)
	dirs := cdi.NewDirs(filepath.Join(p.root, "state", "shares"), durable.Files{})
	_, err = dirs.Write(s.Key(), data)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	require.NoError(t, wireclient.Wait(ctx, dirs.Path(s.Key())))
	return dirs.Path(s.Key())
}

// card makes the simulated card of the share.
func (p *process) card(t *testing.T) {
	t.Helper()
	cards := filepath.Join(p.root, "run", "cards")
	require.NoError(t, os.MkdirAll(cards, 0o750))
	_, err := simcard.Create(cards, simcard.Config{UUID: fixture.Card(0).UUID, Memory: 8 << 30, ContextBytes: 300 << 20})
	require.NoError(t, err)
}

func (p *process) eventually(t *testing.T, path string, code int, text string) {
	t.Helper()
	var got int
	var body string
	require.Eventually(t, func() bool { got, body = p.get(t, path); return got == code && strings.Contains(body, text) },
		patient, 10*time.Millisecond, "%s never said %d %q", path, code, text)
}

func TestAShareOfASimulatedCard(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.eventually(t, "/readyz", http.StatusOK, "ok\n")
	p.card(t)
	dir := p.share(t)
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	c, err := wireclient.Attach(ctx, dir)
	require.NoError(t, err)
	defer c.Close() //nolint:errcheck // a test's
	require.EqualValues(t, 300<<20, c.Grant.ContextEstimate.Load(), "the card says what a context takes")
	reply, err := c.Measure(0)
	require.NoError(t, err)
	require.Equal(t, wire.OK, reply.Status)
	require.Zero(t, reply.Used, "this process has no context")
	require.True(t, c.Take(1<<20))
	p.eventually(t, "/metrics", http.StatusOK,
		`tranche_arbiter_share_memory_charged_bytes{claim="notebook",namespace="team-a",request="gpu",uuid="`+string(fixture.Card(0).UUID)+`"} 1.048576e+06`)
	p.eventually(t, "/metrics", http.StatusOK,
		`tranche_arbiter_share_cores{claim="notebook",class="none",namespace="team-a",policy="fixed-share",request="gpu",uuid="`+string(fixture.Card(0).UUID)+`"} 30`)
	p.eventually(t, "/metrics", http.StatusOK, `tranche_arbiter_card_switches_total{uuid="`+string(fixture.Card(0).UUID)+`"} `)
	p.eventually(t, "/metrics", http.StatusOK, `tranche_arbiter_card_readable{uuid="`+string(fixture.Card(0).UUID)+`"} 1`)
	p.eventually(t, "/healthz", http.StatusOK, "ok\n")
	p.stop()
	require.NoError(t, p.wait())
	require.True(t, c.Take(1<<20), "who has pages goes on")
}

func TestACardThatIsMadeAnewIsReadAnew(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.share(t) // whose card is not there yet
	p.eventually(t, "/metrics", http.StatusOK, `tranche_arbiter_card_readable{uuid="`+string(fixture.Card(0).UUID)+`"} 0`)
	for range 2 {
		p.card(t)
		p.eventually(t, "/metrics", http.StatusOK, `tranche_arbiter_card_readable{uuid="`+string(fixture.Card(0).UUID)+`"} 1`)
		require.NoError(t, os.RemoveAll(filepath.Join(p.root, "run", "cards")))
		p.eventually(t, "/metrics", http.StatusOK, `tranche_arbiter_card_readable{uuid="`+string(fixture.Card(0).UUID)+`"} 0`)
	}
}

func TestACardThatATenantTruncatesIsNoHarm(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.card(t)
	p.share(t)
	readable := `tranche_arbiter_card_readable{uuid="` + string(fixture.Card(0).UUID) + `"} `
	p.eventually(t, "/metrics", http.StatusOK, readable+"1")
	require.NoError(t, os.Truncate(filepath.Join(simcard.Path(filepath.Join(p.root, "run", "cards"), fixture.Card(0).UUID), "card"), 0))
	p.eventually(t, "/metrics", http.StatusOK, readable+"0")
	p.eventually(t, "/healthz", http.StatusOK, "ok\n")
}

func TestWhatKeepsItFromStarting(t *testing.T) {
	t.Parallel()
	occupied, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", freeAddress(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = occupied.Close() })
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for name, tc := range map[string]struct {
		args []string
		says string
	}{
		"an address in use":         {[]string{"--metrics-address=" + occupied.Addr().String()}, "listen for metrics: "},
		"a file in place of shares": {[]string{"--state-dir=" + file}, "make directories: "},
		"no API server to be found": {[]string{"--kubernetes", "--node-name=node1"}, "--kubeconfig or --kubernetes=false is needed"},
		"a kubeconfig that is none": {[]string{"--kubernetes", "--node-name=node1", "--kubeconfig=" + file}, "find the API server: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, start(t, tc.args...).wait(), tc.says)
		})
	}
}

func TestADirectoryThatIsNotTheHostsEndsIt(t *testing.T) {
	t.Parallel()
	c, err := parse(t, nil, "--kubernetes=false", "--driver-root-mount=/host")
	require.NoError(t, err)
	require.Equal(t, hostdir.Watch{Host: hostdir.Host{Root: "/host"}, Interval: rescan, Dirs: []string{"/var/lib/tranche", "/run/tranche"}}, watchOf(c))
	c, err = parse(t, nil, "--kubernetes=false", "--driver-root=/run/nvidia/driver")
	require.NoError(t, err)
	require.Equal(t, hostdir.Host{}, watchOf(c).Host, "of the host only the driver's directory is seen")
}

func TestTheCommandSaysWhatItIs(t *testing.T) {
	t.Parallel()
	cmd := newCommand(func(string) string { return "" })
	cmd.SetArgs([]string{"--run-dir=relative"})
	cmd.SetContext(t.Context())
	cmd.SetErr(io.Discard)
	require.ErrorContains(t, cmd.Execute(), `--run-dir: "relative" is not an absolute path`)
	require.Contains(t, cmd.UsageString(), "--watchdog-action")
}
