// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dra/tranche/tests/kube"
)

const (
	// block is what programs take at once.
	block = 64 * mib
	// overhead is more than a program of these tests takes besides what it asks
	// for: a context, a module, and what does not fill a whole block.
	overhead = 512 * mib
	// slack is more than is left of a full share, which has no room for a block.
	slack = 3 * block
)

// fills are all ways to take memory that the program fill knows.
func fills() []string {
	return []string{
		"alloc", "pitch", "managed", "async", "pool", "vmm", "array", "array3d", "mipmap", "graph", "capture", "ipc", "import", "all",
	}
}

// filled reads what the program fill said: how large a card it was shown, and how
// much it took of it.
func filled(t *testing.T, out string) (total, taken uint64) {
	t.Helper()
	full := regexp.MustCompile(`(?m)^full total=(\d+) free=(\d+) blocks=\d+ bytes=(\d+)$`).FindAllStringSubmatch(out, -1)
	require.Len(t, full, 1, out)
	require.Regexp(t, `(?m)^end total=\d+`, out, "it went on after it was refused, and came to its end")
	return number(t, full[0][1]), number(t, full[0][3])
}

// filler is the program fill on one of a container's devices, which stops wherever it says "quiet".
func (n team) filler(t *testing.T, pod, kind string, device int) *program {
	t.Helper()
	return n.start(t, pod, "main", "env", "TRANCHE_TEST_BARRIERS=1", "fill", kind, fmt.Sprint(block/mib), fmt.Sprint(device))
}

// requireFull checks, by the truth of a card, that each pod holds what it may, and no more.
func requireFull(t *testing.T, card string, limits map[types.UID]uint64) {
	t.Helper()
	held := heldBy(t, card, limits)
	for pod, limit := range limits {
		require.LessOrEqual(t, held[pod], limit, "pod %s: the card's truth", pod)
		require.Greater(t, held[pod]+slack, limit, "pod %s gets what it was promised", pod)
	}
}

// until lets the program go on to the stop with that name, and gives what it said
// on the way. The empty name is its end.
func (p *program) until(t *testing.T, stop string) string {
	t.Helper()
	var said strings.Builder
	for {
		line, ok := p.line(t)
		if !ok {
			require.Empty(t, stop, "%s has ended: %s%s", p.name, said.String(), p.complaint())
			require.Empty(t, p.complaint(), "%s", p.name)
			return said.String()
		}
		fmt.Fprintln(&said, line)
		if name, quiet := strings.CutPrefix(line, "quiet "); quiet && name == stop {
			return said.String()
		} else if quiet {
			p.goOn(t)
		}
	}
}

func (p *program) goOn(t *testing.T) {
	t.Helper()
	_, err := fmt.Fprintln(p.stdin)
	require.NoError(t, err, "%s: %s", p.name, p.complaint())
}

func TestEachPodSeesItsOwnMemoryAndIsRefusedAtItsLimitOnEveryPath(t *testing.T) {
	n := newTeam(t, "limits")
	sizes := map[string]uint64{"small": 4 * gib, "large": 8 * gib}
	limits := map[types.UID]uint64{}
	for name, bytes := range sizes {
		pod := n.clientPod(t, name, kube.Request("gpu", "share.tranche.dev", 1, kube.Share("30", fmt.Sprint(bytes))))
		limits[pod.UID] = bytes
		n.ready(t, name)
	}
	card := n.card(t, "small")
	require.Equal(t, card, n.card(t, "large"), "they share a card")

	for name, bytes := range sizes {
		smi := n.inside(t, name, "main", "tranche-smi")
		require.Contains(t, smi, "cards 1\n")
		require.Contains(t, smi, fmt.Sprintf(" %d MiB total\n", bytes/mib), smi)
	}
	for _, kind := range fills() {
		t.Run(kind, func(t *testing.T) {
			watchTruth(t, card, limits)
			programs, said := map[string]*program{}, map[string]string{}
			for name := range sizes {
				programs[name] = n.filler(t, name, kind, 0)
			}
			for name := range sizes {
				said[name] = programs[name].until(t, "full")
			}
			// Both are full now, and stay so until they are told to go on.
			requireFull(t, card, limits)
			for name, limit := range sizes {
				programs[name].goOn(t)
				total, taken := filled(t, said[name]+programs[name].until(t, ""))
				require.Equal(t, limit, total, "%s: cuMemGetInfo", name)
				require.Positive(t, taken, name)
			}
		})
	}
}

func TestContainersOfAPodShareOneLimit(t *testing.T) {
	n := newTeam(t, "one-limit")
	created := n.twice(t, kube.Client("p"), kube.Request("gpu", "share.tranche.dev", 1, kube.Share("30", "4Gi")))
	n.ready(t, "p")
	watchTruth(t, n.card(t, "p"), map[types.UID]uint64{created.UID: 4 * gib})

	first, other := n.tenant(t, "p", "main", 0), n.tenant(t, "p", "second", 0)
	require.Equal(t, cudaSuccess, first.tell(t, "take alloc %d", 2*gib)["result"])
	info := other.tell(t, "info")
	require.Equal(t, fmt.Sprint(4*gib), info["total"])
	require.LessOrEqual(t, number(t, info["free"]), uint64(2*gib), "what one container holds the other has not")

	got := other.fill(t, "alloc", block)
	require.Less(t, got, uint64(2*gib))
	require.Greater(t, got+2*overhead, uint64(2*gib))
	require.Equal(t, cudaOutOfMemory, first.tell(t, "take vmm %d", block)["result"], "the limit is the same for both")
	require.Equal(t, cudaSuccess, other.tell(t, "drop")["result"])
	require.Equal(t, cudaSuccess, first.tell(t, "take vmm %d", block)["result"], "what one gives back the other can have")
}

func TestAShareOfEachOfTwoCards(t *testing.T) {
	n := newTeam(t, "two-limits")
	pod := n.clientPod(t, "p", kube.Request("gpu", "share.tranche.dev", 2, kube.Share("25", "3Gi")))
	limits := map[types.UID]uint64{pod.UID: 3 * gib}
	n.ready(t, "p")
	for device, result := range n.results(t, "p") {
		watchTruth(t, result.Device, limits)
		program := n.filler(t, "p", "alloc", device)
		said := program.until(t, "full")
		requireFull(t, result.Device, limits)
		program.goOn(t)
		total, taken := filled(t, said+program.until(t, ""))
		require.EqualValues(t, 3*gib, total)
		require.Greater(t, taken+overhead, uint64(3*gib))
	}
}

func TestAWholeCardIsAllThere(t *testing.T) {
	n := newTeam(t, "whole-memory")
	n.clientPod(t, "p", kube.Request("gpu", "card.tranche.dev", 1, nil))
	n.ready(t, "p")
	total, taken := filled(t, n.inside(t, "p", "main", "fill alloc 64"))
	require.EqualValues(t, 24*gib, total)
	require.Greater(t, taken+overhead, uint64(24*gib))
}

func TestMemoryOfKilledProcessesComesBackAndOthersDoNotNotice(t *testing.T) {
	n := newTeam(t, "killed-processes")
	limits := map[types.UID]uint64{}
	for name, memory := range map[string]string{"victim": "4Gi", "other": "8Gi"} {
		pod := n.clientPod(t, name, kube.Request("gpu", "share.tranche.dev", 1, kube.Share("30", memory)))
		limits[pod.UID] = 4 * gib
		if name == "other" {
			limits[pod.UID] = 8 * gib
		}
		n.ready(t, name)
	}
	card := n.card(t, "victim")
	require.Equal(t, card, n.card(t, "other"))
	watchTruth(t, card, limits)
	witness := n.start(t, "other", "main", "witness", "256")
	witness.next(t)

	// One that stays, and sees what comes back.
	stays := n.tenant(t, "victim", "main", 0)
	free := number(t, stays.tell(t, "info")["free"])
	var longest time.Duration
	for _, kind := range []string{"alloc", "vmm", "async", "graph", "managed"} {
		dies := n.tenant(t, "victim", "main", 0)
		dies.fill(t, kind, block)
		pid := dies.pid(t, card)
		require.Equal(t, cudaOutOfMemory, stays.tell(t, "take alloc %d", 128*mib)["result"])
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		start := time.Now()
		require.Eventually(t, func() bool { return number(t, stays.tell(t, "info")["free"]) == free }, patience, time.Millisecond,
			"all that the dead process held by %s is back", kind)
		took := time.Since(start)
		longest = max(longest, took)
		require.Equal(t, cudaSuccess, stays.tell(t, "take alloc %d", 2*gib)["result"], "and can be had")
		require.Equal(t, cudaSuccess, stays.tell(t, "drop")["result"])
	}
	t.Logf("memory of a killed process was back, and seen by another, within %v", longest.Round(time.Millisecond))
	requireRounds(t, witness)
}

// requireRounds checks that a witness goes on: it ends as soon as its data is not
// what it was, or a call fails.
func requireRounds(t *testing.T, witness *program) {
	t.Helper()
	last := witness.next(t)
	for drained := false; !drained; {
		select {
		case line, ok := <-witness.lines:
			require.True(t, ok, "the witness has ended: %s", witness.complaint())
			last = line
		default:
			drained = true
		}
	}
	require.NotEqual(t, last, witness.next(t), "another round")
	require.Empty(t, witness.complaint())
}

// Many processes of a pod at once, which allocate, free, fork and are killed.
func TestStormsOfProcessesStayWithinTheirShares(t *testing.T) {
	n := newTeam(t, "storms")
	limits := map[types.UID]uint64{}
	pods := []string{"one", "two"}
	for i, name := range pods {
		pod := n.clientPod(t, name, kube.Request("gpu", "share.tranche.dev", 1, kube.Share("30", fmt.Sprint((2*i+2)*gib))))
		limits[pod.UID] = uint64((2*i + 2) * gib)
		n.ready(t, name)
	}
	watchTruth(t, n.card(t, "one"), limits)
	var wait sync.WaitGroup
	outs, errs := make([]string, len(pods)), make([]error, len(pods))
	for i, name := range pods {
		wait.Go(func() {
			outs[i], errs[i] = kube.Kubectl(t.Context(), "-n", n.name, "exec", name, "--", "storm", "6", "2", "40")
		})
	}
	wait.Wait()
	for i, err := range errs {
		require.NoError(t, err, outs[i])
		t.Logf("%s: %s", pods[i], outs[i])
	}
}

// What a container finds of the substitution, and what it cannot change of it.
func TestTheRuntimeIsMountedForReadingOnly(t *testing.T) {
	n := newTeam(t, "mounts")
	n.clientPod(t, "p", kube.Request("gpu", "share.tranche.dev", 1, kube.Share("30", "4Gi")))
	n.ready(t, "p")
	for _, file := range []string{
		"/run/tranche/driver/libcuda-real.so.1", "/run/tranche/driver/libnvidia-ml-real.so.1",
		"/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "/usr/lib64/libcuda.so.1", "/usr/lib64/libnvidia-ml.so.1",
	} {
		out := n.inside(t, "p", "main", "test -s "+file+" && echo present; (echo x >"+file+") 2>&1; rm "+file+" 2>&1; true")
		require.Contains(t, out, "present\n", file)
		require.Contains(t, out, "Read-only file system", file)
		require.Contains(t, out, "resource busy", file)
	}
	require.NotContains(t, strings.ToLower(n.inside(t, "p", "main", "env")), "ld_preload")
}
