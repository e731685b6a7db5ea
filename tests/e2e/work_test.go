// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dra/tranche/pkg/simcard"
	"github.com/tranche-dra/tranche/tests/kube"
)

// kernel is how long kernels last, where nothing else is said: long enough for programs
// that now and then wait for a processor to keep a card busy.
const kernel = 3 * time.Millisecond

// span is a stretch of time of CLOCK_MONOTONIC.
type span struct{ from, to time.Duration }

func (s span) within(o span) span { return span{max(s.from, o.from), min(s.to, o.to)} }

func (s span) length() time.Duration { return max(s.to-s.from, 0) }

func (s span) after(epoch time.Duration) span { return span{epoch + s.from, epoch + s.to} }

// between is so many milliseconds.
func between(from, to int) span {
	return span{time.Duration(from) * time.Millisecond, time.Duration(to) * time.Millisecond}
}

func monotonic(t *testing.T) time.Duration {
	t.Helper()
	var now unix.Timespec
	require.NoError(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	return time.Duration(now.Nano())
}

// until waits for a moment.
func until(t *testing.T, moment time.Duration) {
	t.Helper()
	select {
	case <-time.After(moment - monotonic(t)):
	case <-t.Context().Done():
	}
}

// workers are pods that compute. What they have of a card is told by the card, and whose
// a process is by its cgroup.
type workers struct {
	team
	pods     map[types.UID]uint64
	names    map[types.UID]string
	programs map[string]*program
	// slots are those of the cards, and the pods that had them last.
	slots map[string]map[int]string
}

func newWorkers(t *testing.T, name string) *workers {
	t.Helper()
	return &workers{
		team: newTeam(t, name), pods: map[types.UID]uint64{}, names: map[types.UID]string{}, programs: map[string]*program{},
		slots: map[string]map[int]string{},
	}
}

// onCard asks for the card with that index.
func onCard(index int, request resourceapi.DeviceRequest) resourceapi.DeviceRequest {
	request.Exactly.Selectors = append(request.Exactly.Selectors, resourceapi.DeviceSelector{
		CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf(`device.attributes["gpu.tranche.dev"].index == %d`, index)},
	})
	return request
}

// part asks for so much compute of a card, and for 2 GiB of its memory.
func part(index int, class string, cores int) resourceapi.DeviceRequest {
	return onCard(index, kube.Request("gpu", class, 1, kube.Share(fmt.Sprint(cores), "2Gi")))
}

// add makes pods, and waits until they run.
func (w *workers) add(t *testing.T, requests map[string]resourceapi.DeviceRequest) {
	t.Helper()
	for name, request := range requests {
		pod := w.clientPod(t, name, request)
		w.pods[pod.UID], w.names[pod.UID] = 0, name
	}
	for name := range requests {
		w.ready(t, name)
	}
}

// prepare starts programs in pods, which have contexts then, and wait.
func (w *workers) prepare(t *testing.T, work map[string]string) {
	t.Helper()
	for pod, how := range work {
		args := []string{"work", "seconds=600", fmt.Sprint("kernels=", kernel.Nanoseconds())}
		w.programs[pod] = w.start(t, pod, "main", append(args, strings.Fields(how)...)...)
	}
	t.Cleanup(func() { w.kill(t, w.inPods()...) })
	for pod := range work {
		require.Equal(t, "ready", w.programs[pod].next(t))
	}
}

// begin has programs that are prepared compute, all from the moment that it returns, and
// until the test ends, as much as they can, where they were not told otherwise.
func (w *workers) begin(t *testing.T, pods ...string) (epoch time.Duration) {
	t.Helper()
	epoch = monotonic(t) + 200*time.Millisecond
	for _, pod := range pods {
		_, err := fmt.Fprintln(w.programs[pod].stdin, "go", epoch.Nanoseconds())
		require.NoError(t, err, w.programs[pod].complaint())
	}
	return epoch
}

// inPods are the pods in which a program was started.
func (w *workers) inPods() []string {
	var pods []string
	for pod := range w.programs {
		pods = append(pods, pod)
	}
	return pods
}

// kill ends the programs of pods, in the middle of what they do.
func (w *workers) kill(t *testing.T, pods ...string) {
	t.Helper()
	of := tenants(w.pods)
	for _, pid := range processesOf(t, "work") {
		if slices.Contains(pods, w.names[of(pid)]) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
	for _, pod := range pods {
		for range w.programs[pod].lines {
		}
		delete(w.programs, pod)
	}
}

// requireAtWork checks that no program has ended or complained.
func (w *workers) requireAtWork(t *testing.T) {
	t.Helper()
	for pod, p := range w.programs {
		select {
		case line, ok := <-p.lines:
			require.True(t, ok, "the program of pod %s has ended: %s", pod, p.complaint())
			require.FailNow(t, "a program says something", "pod %s: %s", pod, line)
		default:
		}
		require.Empty(t, p.complaint(), "pod %s", pod)
	}
}

// runs waits until a stretch of time is over, and gives when in it the program of each
// pod had the card. Who is none of the pods has the empty name.
func (w *workers) runs(t *testing.T, device string, within span) map[string][]span {
	t.Helper()
	until(t, within.to+50*time.Millisecond) // what is just being written
	card, err := simcard.Open(cardPath(t, device))
	require.NoError(t, err)
	defer card.Close() //nolint:errcheck // it was only read
	now, err := card.Truth()
	require.NoError(t, err)
	pods, of := w.slots[device], tenants(w.pods)
	if pods == nil {
		pods = map[int]string{}
		w.slots[device] = pods
	}
	for _, s := range now.Slots {
		if s.Alive {
			pods[s.Number] = w.names[of(s.PID)]
		}
	}
	log := card.Runs(0)
	require.NotEmpty(t, log)
	require.True(t, log[0].Index == 0 || log[0].Start < within.from, "the card remembers all of that time")
	runs := map[string][]span{}
	for _, r := range log {
		if s := (span{r.Start, r.End}).within(within); s.length() > 0 {
			runs[pods[r.Slot]] = append(runs[pods[r.Slot]], s)
		}
	}
	for _, of := range runs {
		slices.SortFunc(of, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	}
	return runs
}

func sum(runs []span) time.Duration {
	total := time.Duration(0)
	for _, r := range runs {
		total += r.length()
	}
	return total
}

// parts are what the pods had of a card, in percent of a stretch of time.
type parts map[string]float64

func (w *workers) parts(t *testing.T, device string, within span) parts {
	t.Helper()
	had := parts{}
	for pod, runs := range w.runs(t, device, within) {
		had[pod] = 100 * float64(sum(runs)) / float64(within.length())
	}
	t.Logf("%s, %v: %v", device, within.length(), had)
	return had
}

// String rounds.
func (p parts) String() string {
	var words []string
	for pod, percent := range p {
		words = append(words, fmt.Sprintf("%s %.1f", cmp.Or(pod, "?"), percent))
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

// becomes measures what the pods have of a card until it is as it should be. A busy machine
// may keep it from that for a while; what is never to be is checked by the caller, of
// what comes back: all that was measured.
func (w *workers) becomes(t *testing.T, device string, check func(parts) error) []parts {
	t.Helper()
	var all []parts
	for {
		had := w.parts(t, device, between(500, 2500).after(monotonic(t)))
		all = append(all, had)
		err := check(had)
		if err == nil {
			return all
		}
		require.Less(t, len(all), tries, "%v", err)
	}
}

// ratio checks that those who have the card have it in a ratio, which is given in percent.
func ratio(want map[string]float64) func(parts) error {
	return func(p parts) error {
		all := 0.0
		for _, percent := range p {
			all += percent
		}
		for pod, percent := range want {
			if got := p[pod] * 100 / all; all < busy || math.Abs(got-percent) > points {
				return fmt.Errorf("pod %s is to have %.0f %% of what anybody has: %v", pod, percent, p)
			}
		}
		return nil
	}
}

// atLeast checks that a pod has so much.
func atLeast(pod string, percent float64) func(parts) error {
	return func(p parts) error {
		if p[pod] < percent {
			return fmt.Errorf("pod %s is to have %.0f %% at least: %v", pod, percent, p)
		}
		return nil
	}
}

// becomeFixed waits until pods have what they asked for, but for what a busy machine makes
// them lose: time in which they have the card, and not a processor to use it. They may
// never have more.
func (w *workers) becomeFixed(t *testing.T, device string, want map[string]float64) {
	t.Helper()
	all := w.becomes(t, device, func(p parts) error {
		for pod, percent := range want {
			if p[pod] < percent*2/3 {
				return fmt.Errorf("pod %s is to have %.0f %%: %v", pod, percent, p)
			}
		}
		return nil
	})
	for _, p := range all {
		for pod, percent := range want {
			require.Less(t, p[pod], percent+points, "pod %s: %v", pod, p)
		}
	}
}
