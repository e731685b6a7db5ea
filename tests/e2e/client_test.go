// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dra/tranche/pkg/simcard"
	"github.com/tranche-dra/tranche/tests/kube"
)

const (
	mib = 1 << 20
	gib = 1 << 30
	// Results of the CUDA driver API.
	cudaSuccess, cudaOutOfMemory = "0", "2"
	// sampleEvery is how often the truth of a card is looked at.
	sampleEvery = time.Millisecond
)

// clientPod makes a pod with programs that use a card, whose only container has a
// claim of its own.
func (n team) clientPod(t *testing.T, name string, requests ...resourceapi.DeviceRequest) *corev1.Pod {
	t.Helper()
	n.template(t, name, requests...)
	pod := kube.Client(name)
	kube.Use(pod, 0, "gpu", name)
	return n.create(t, pod)
}

// fields of a line "word name=value name=value".
func fields(line string) map[string]string {
	all := map[string]string{}
	for word := range strings.FieldsSeq(line) {
		name, value, _ := strings.Cut(word, "=")
		all[name] = value
	}
	return all
}

func number(t *testing.T, text string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err)
	return n
}

// program is one that runs in a container and is talked to.
type program struct {
	name   string
	stdin  io.WriteCloser
	lines  chan string
	cmd    *exec.Cmd
	mu     sync.Mutex
	stderr strings.Builder
}

// Write takes what the program complains of.
func (p *program) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.Write(data)
}

func (p *program) complaint() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

// start runs a program in a container. It ends with the test.
func (n team) start(t *testing.T, pod, container string, command ...string) *program {
	t.Helper()
	args := append([]string{"-n", n.name, "exec", "-i", pod, "-c", container, "--"}, command...)
	p := &program{name: pod + "/" + container + " " + strings.Join(command, " "), lines: make(chan string, 1024)}
	p.cmd = exec.CommandContext(context.Background(), "kubectl", args...)
	p.cmd.Stderr = p
	var err error
	p.stdin, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(p.lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			p.lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() {
		_ = p.stdin.Close()
		for range p.lines {
		}
		<-read
		_ = p.cmd.Wait()
	})
	return p
}

// line is the next line of the program; false where it has ended.
func (p *program) line(t *testing.T) (string, bool) {
	t.Helper()
	select {
	case line, ok := <-p.lines:
		return line, ok
	case <-time.After(patience):
		require.FailNow(t, "a program says nothing", "%s: %s", p.name, p.complaint())
		return "", false
	}
}

// next is the next line of a program that goes on.
func (p *program) next(t *testing.T) string {
	t.Helper()
	line, ok := p.line(t)
	require.True(t, ok, "%s has ended: %s", p.name, p.complaint())
	return line
}

// tell says a line to the program tenant, and gives what it answers.
func (p *program) tell(t *testing.T, format string, args ...any) map[string]string {
	t.Helper()
	_, err := fmt.Fprintf(p.stdin, format+"\n", args...)
	require.NoError(t, err, "%s: %s", p.name, p.complaint())
	return fields(p.next(t))
}

// tenant is the program of that name with a context on a device.
func (n team) tenant(t *testing.T, pod, container string, device int) *program {
	t.Helper()
	p := n.start(t, pod, container, "tenant")
	require.Equal(t, cudaSuccess, p.tell(t, "init")["result"], p.complaint())
	require.Equal(t, cudaSuccess, p.tell(t, "context %d", device)["result"], p.complaint())
	return p
}

// fill takes as much as it can in blocks, until it is refused for want of memory,
// and gives how many bytes it has taken.
func (p *program) fill(t *testing.T, kind string, block int) (taken uint64) {
	t.Helper()
	for {
		switch result := p.tell(t, "take %s %d", kind, block)["result"]; result {
		case cudaSuccess:
			taken += uint64(block)
		case cudaOutOfMemory:
			return taken
		default:
			require.FailNow(t, "taking memory", "%s: result %s: %s", p.name, result, p.complaint())
		}
	}
}

// pid is the program's process on the node.
func (p *program) pid(t *testing.T, card string) int {
	t.Helper()
	inside := int(number(t, p.tell(t, "pid")["pid"]))
	for _, slot := range truth(t, card).Slots {
		if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", slot.PID)); err == nil && slot.Alive && nsPID(string(status)) == inside && slot.Name == "tenant" {
			return slot.PID
		}
	}
	require.FailNow(t, "the card does not know of a process", "%s, which calls itself %d", p.name, inside)
	return 0
}

// nsPID is how a process is numbered in its own PID namespace.
func nsPID(status string) int {
	for line := range strings.Lines(status) {
		if numbers, ok := strings.CutPrefix(line, "NSpid:"); ok {
			all := strings.Fields(numbers)
			n, _ := strconv.Atoi(all[len(all)-1])
			return n
		}
	}
	return 0
}

// cardPath is the directory of the simulated card with that device name.
func cardPath(t *testing.T, device string) string {
	t.Helper()
	cards, err := simcard.List(simcard.Dir)
	require.NoError(t, err)
	for _, path := range cards {
		if strings.EqualFold(filepath.Base(path), device) {
			return path
		}
	}
	require.FailNow(t, "there is no such card", "%s among %v", device, cards)
	return ""
}

func truth(t *testing.T, device string) simcard.Truth {
	t.Helper()
	card, err := simcard.Open(cardPath(t, device))
	require.NoError(t, err)
	defer card.Close() //nolint:errcheck // it was only read
	now, err := card.Truth()
	require.NoError(t, err)
	return now
}

// tenants tells whose a process is: that of the pod, among those given, in whose
// cgroup it runs. The kernel keeps those: nothing that the sharing runtime says
// counts.
func tenants(pods map[types.UID]uint64) func(pid int) types.UID {
	known := map[int]types.UID{}
	return func(pid int) types.UID {
		uid, ok := known[pid]
		if ok {
			return uid
		}
		cgroup, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err != nil {
			return "" // it has just ended
		}
		for pod := range pods {
			if strings.Contains(string(cgroup), string(pod)) {
				uid = pod
			}
		}
		known[pid] = uid
		return uid
	}
}

// heldBy is what the processes of each pod hold of a card now.
func heldBy(t *testing.T, device string, pods map[types.UID]uint64) map[types.UID]uint64 {
	t.Helper()
	held, of := map[types.UID]uint64{}, tenants(pods)
	for _, s := range truth(t, device).Slots {
		if s.Alive {
			held[of(s.PID)] += s.Total()
		}
	}
	return held
}

// watchTruth samples the truth of a card until the test ends, and fails it if the
// processes of a pod ever held more than the pod may.
func watchTruth(t *testing.T, device string, limits map[types.UID]uint64) {
	t.Helper()
	card, err := simcard.Open(cardPath(t, device))
	require.NoError(t, err)
	of := tenants(limits)
	ctx, stop := context.WithCancel(context.Background())
	var report simcard.Report
	var failure error
	done := make(chan struct{})
	go func() {
		defer close(done)
		report, failure = card.Watch(ctx, sampleEvery, func(s simcard.Slot) (string, uint64) {
			pod := of(s.PID)
			return string(pod), limits[pod]
		})
	}()
	t.Cleanup(func() {
		stop()
		<-done
		require.NoError(t, failure)
		require.NoError(t, card.Close())
		require.Positive(t, report.Samples)
		for pod, bytes := range limits {
			require.Positive(t, report.Peak[string(pod)], "pod %s has used the card", pod)
			t.Logf("of %d samples the most that pod %s held were %d of %d MiB", report.Samples, pod, report.Peak[string(pod)]/mib, bytes/mib)
		}
		require.Empty(t, report.Violations, "somebody held more than his share")
	})
}
