// SPDX-License-Identifier: Apache-2.0

//go:build native

package runtime_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tranche-dra/tranche/pkg/nodeview"
	"github.com/tranche-dra/tranche/pkg/simcard"
	"github.com/tranche-dra/tranche/pkg/wire"
	"github.com/tranche-dra/tranche/tests/rig"
)

// portrait is what the arbiter, the pages and the threads of all who use a card say at the moment, for
// whoever wants to know why somebody does not get on.
func portrait(t *testing.T, r *rig.Rig, c *simcard.Card) string {
	t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, "at %d the arbiter, process %d, says\n", clock(), r.Arbiter().PID())
	node, err := nodeview.Get(t.Context(), filepath.Join(r.Dir, "run", nodeview.SocketName))
	if err == nil {
		err = node.WriteJSON(&text)
	}
	if err != nil {
		fmt.Fprintln(&text, err)
	}
	truth, err := c.Truth()
	if err != nil {
		fmt.Fprintln(&text, err)
	}
	pages := map[uint64]bool{}
	mappings, err := mappingsOf(r.Arbiter().PID())
	if err != nil {
		fmt.Fprintln(&text, err)
	}
	for _, m := range mappings {
		pages[m.inode] = true
	}
	for _, slot := range truth.Slots {
		if !slot.Alive {
			continue
		}
		fmt.Fprintf(&text, "%s, process %d: busy for %s, the last time at %d\n", slot.Name, slot.PID, slot.Busy, slot.LastBusy)
		drawPages(&text, slot.PID, pages)
		drawThreads(&text, slot.PID)
	}
	return text.String()
}

// drawPages shows those that the process has from this arbiter: old ones stay mapped.
func drawPages(text *strings.Builder, pid int, arbiters map[uint64]bool) {
	mappings, err := mappingsOf(pid)
	for _, m := range mappings {
		if !arbiters[m.inode] || !strings.HasPrefix(m.path, "/memfd:tranche-") {
			continue
		}
		content := make([]byte, m.to-m.from)
		if err := peek(pid, m.from, content); err != nil {
			fmt.Fprintln(text, " ", err)
			continue
		}
		fmt.Fprintf(text, "  %s %d:", m.path, m.inode)
		grant, _ := wire.In[wire.Grant](content) // pages are long enough
		demand, _ := wire.In[wire.Demand](content)
		switch grant.Magic {
		case wire.GrantMagic:
			fmt.Fprintf(text, " lease %#x beat %d flags %#x\n", grant.Lease.Load(), grant.Beat.Load(), grant.Flags.Load())
		case wire.DemandMagic:
			fmt.Fprintf(text, " wants %d drained %#x waiting %d ends %d\n",
				demand.Wants.Load(), demand.Drained.Load(), demand.Waiting.Load(), demand.Ends.Load())
		case wire.LedgerMagic:
			ledger, _ := wire.In[wire.Ledger](content)
			fmt.Fprintf(text, " bell %d\n", ledger.Bell.Load())
		}
	}
	if err != nil {
		fmt.Fprintln(text, " ", err)
	}
}

// drawThreads shows what they wait for: the system call with its arguments, an address first for a futex.
func drawThreads(text *strings.Builder, pid int) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid)) // the pattern is right
	for _, thread := range threads {
		fmt.Fprintf(text, "  thread %s:", filepath.Base(thread))
		for _, name := range []string{"comm", "wchan", "syscall"} {
			said, err := os.ReadFile(filepath.Join(thread, name))
			if err != nil {
				said = []byte(err.Error())
			}
			fmt.Fprintf(text, " %s", strings.TrimSpace(string(said)))
		}
		fmt.Fprintln(text)
	}
}
