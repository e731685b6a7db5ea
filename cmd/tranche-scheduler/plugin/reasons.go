// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
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

// status says of one node why the pod does not fit there. The scheduler counts
// the nodes that say the same, so it says no numbers: those of the cards follow
// behind, in the sentence of sum.
func (f *finding) status() *fwk.Status {
	code := fwk.Unschedulable
	if f.never {
		code = fwk.UnschedulableAndUnresolvable
	}
	switch {
	case f.because != "":
		return fwk.NewStatus(code, f.because)
	case f.shortage.Cards == 0:
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node(s) without cards")
	}
	what, _, _ := strings.Cut(spoken(&f.shortage), ": ")
	reason := "node(s) where " + what
	if why := kinds(&f.shortage); len(why) > 0 {
		reason += " (" + strings.Join(why, ", ") + ")"
	}
	return fwk.NewStatus(code, reason)
}

// spoken is the shortage in a sentence without a percent sign: kube-scheduler gives
// what it is told to its event recorder as a format.
func spoken(s *placement.Shortage) string { return strings.ReplaceAll(s.String(), " % ", " percent ") }

// kinds of what is missing on a node.
func kinds(s *placement.Shortage) []string {
	var of []string
	for _, k := range []struct {
		cards int
		name  string
	}{
		{s.Memory, "memory"},
		{s.Compute, "compute"},
		{s.Both, "compute and memory"},
		{s.Slots, "slots"},
		{s.InUse, "in use"},
		{s.Whole, "whole only"},
		{s.Model, "other kind"},
		{s.Tainted, "tainted"},
		{s.Few, "too few"},
	} {
		if k.cards > 0 {
			of = append(of, k.name)
		}
	}
	return of
}

// sum is what was found about all nodes in one sentence, empty where nothing was
// looked at.
func (a *attempt) sum() string {
	if a == nil || !a.knows() {
		return ""
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	var total placement.Shortage
	everNever := true
	for _, f := range a.findings {
		switch {
		case f.fits:
			return ""
		case f.because != "", !f.certain:
			return "" // every node says it, or nobody can
		}
		total.Add(f.shortage)
		everNever = everNever && f.never
	}
	if total.Nodes == 0 {
		return ""
	}
	sentence := spoken(&total)
	if most := a.stock.largest; everNever && !total.Want.Whole && total.Want.Amount.Memory > most.Memory && total.Cards > 0 {
		sentence += fmt.Sprintf("; the largest card has %d MiB", most.Memory)
	}
	return sentence
}
