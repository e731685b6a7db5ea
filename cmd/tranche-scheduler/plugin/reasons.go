// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tranche-dra/tranche/pkg/placement"
)

// notAllocatable is what the wrapped plug-in says of every node that has no room,
// whatever is missing there.
const notAllocatable = "cannot allocate all claims"

func cannotAllocate(status *fwk.Status) bool {
	return status.IsRejected() && slices.Contains(status.Reasons(), notAllocatable)
}

// hasReleased tells whether a claim of the pod itself was just released, so that
// the pod is tried again. The sentences are those of the wrapped plug-in.
func hasReleased(status *fwk.Status) bool {
	return slices.ContainsFunc(status.Reasons(), func(reason string) bool {
		return strings.HasSuffix(reason, "of ResourceClaim completed")
	})
}

// preemptible lets a lack of room be mended by others giving way: the wrapped
// plug-in, which knows no preemption, calls it beyond remedy.
func preemptible(status *fwk.Status) *fwk.Status {
	if cannotAllocate(status) {
		return fwk.NewStatus(fwk.Unschedulable, status.Reasons()...)
	}
	return status
}

// status says of one node that the pod does not fit there. The scheduler counts the
// nodes that say the same, so all say it in the same words: why is counted over all
// of them by sum.
func (f *finding) status() *fwk.Status {
	if f.because == "" && f.shortage.Cards == 0 {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node(s) without cards")
	}
	code := fwk.Unschedulable
	if f.never {
		code = fwk.UnschedulableAndUnresolvable
	}
	return fwk.NewStatus(code, "node(s) without suitable cards")
}

// sum says why the pod does not fit on those nodes of which that is known.
func (a *attempt) sum() (said []string) {
	if !a.knows() {
		return nil
	}
	a.findings.mutex.Lock()
	defer a.findings.mutex.Unlock()
	var total placement.Shortage
	var because string
	others := 0
	for _, node := range slices.Sorted(maps.Keys(a.findings.by)) {
		switch f := a.findings.by[node]; {
		case f.shortage.Partly > 0: // how cards are dealt out to several requests, the allocator tells
			total.Add(f.shortage)
		case f.fits, !f.certain: // something else is missing there, or only the allocator can tell
			others++
		case f.because != "":
			others++
			because = cmp.Or(because, f.because) // one stands for all: they name cards
		case f.shortage.Cards > 0:
			total.Add(f.shortage)
		}
	}
	if because != "" {
		said = append(said, because)
	}
	switch {
	case total.Nodes == 0:
	case others > 0:
		said = append(said, fmt.Sprintf("on %d of these nodes %s", total.Nodes, spoken(&total)))
	default:
		said = append(said, spoken(&total))
	}
	return said
}

// spoken is the shortage in a sentence without a percent sign: kube-scheduler gives
// what it is told to its event recorder as a format.
func spoken(s *placement.Shortage) string { return strings.ReplaceAll(s.String(), " % ", " percent ") }
