// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/simcard"
	"github.com/tranche-dra/tranche/tests/rig"
	"github.com/tranche-dra/tranche/tests/sandbox"
)

// contender is who divides the card.
type contender struct {
	name string
	// bare: nobody does, contexts take the card's own turns.
	bare bool
	// library takes the place of libcuda, and preload is loaded before it.
	library, preload string
	// env are variables of all tenants, with placeholders.
	env []string
	// files of the tenants' containers that others stand in for, TARGET=SOURCE.
	files []string
}

// ours is the contender that all of this is about.
func (c contender) ours() bool { return !c.bare && c.library == "" && c.preload == "" }

// tenant is a share and the work of who has it.
type tenant struct {
	policy share.Policy
	class  share.Class
	// cores are offline ones where the class is offline.
	cores card.Percent
	// work are the arguments of tests/clients/work.
	work []string
}

const (
	tenantMiB = 2048
	// lookEvery is short enough for the log of runs, which has room for three seconds
	// of the shortest kernels.
	lookEvery = 100 * time.Millisecond
)

// shares makes the tenant's share on each of the cards, all of one claim.
func (t tenant) shares(r *rig.Rig, cards []*simcard.Card) ([]rig.Share, error) {
	var out []rig.Share
	claim := share.Claim{}
	for _, c := range cards {
		made, err := r.Share(c, tenantMiB, func(s *share.Share) {
			s.Policy, s.Class, s.Limits.Cores = t.policy, t.class, t.cores
			if t.class == share.Offline {
				s.Limits.Cores, s.Limits.OfflineCores = 0, t.cores
			}
			if claim.UID == "" {
				claim = s.Claim
			}
			s.Claim = claim
		})
		if err != nil {
			return nil, err
		}
		out = append(out, made)
	}
	return out, nil
}

// actor is a tenant at work.
type actor struct {
	box     *sandbox.Box
	program *rig.Program
}

// play is cards, and tenants at work on them.
type play struct {
	rig    *rig.Rig
	cards  []*simcard.Card
	actors []actor
	logs   []logReader
	// settling is the time before anything is judged.
	settling time.Duration
	realTime bool
}

// logReader collects the runs of a card.
type logReader struct {
	card *simcard.Card
	next uint64
	runs []simcard.Run
}

// read takes what is new, up to a run that is not written yet.
func (l *logReader) read() {
	more := contiguous(l.card.Runs(l.next), l.next)
	l.next += uint64(len(more))
	l.runs = append(l.runs, more...)
}

// on is a tenant and the cards that it has shares of.
type on struct {
	tenant
	cards []int
}

// onFirst are tenants of one card.
func onFirst(tenants ...tenant) []on {
	var out []on
	for _, t := range tenants {
		out = append(out, on{t, []int{0}})
	}
	return out
}

// play has tenants at work on new cards for so long.
func (w *world) play(ctx context.Context, c contender, length time.Duration, tenants []on) (rec record, err error) {
	r, err := rig.New()
	if err != nil {
		return record{}, err
	}
	defer func() {
		if err != nil && c.ours() {
			err = fmt.Errorf("%w\n%s", err, r.Log())
		}
		err = errors.Join(err, r.Close())
	}()
	if w.traces != "" {
		r.ArbiterFlags = []string{"--v=6"} // changes of leases too
	}
	p := &play{rig: r, settling: w.settling, realTime: w.realTime}
	if err := p.furnish(c, tenants); err != nil { //nolint:contextcheck // the rig has its own patience
		return record{}, err
	}
	if err := p.start(c, length, tenants); err != nil {
		return record{}, err
	}
	rec, err = p.watch(ctx, length)
	if err == nil {
		err = w.keep(c, rec, r.Log())
	}
	return rec, err
}

// furnish makes cards, shares and boxes.
func (p *play) furnish(c contender, tenants []on) error {
	if c.ours() {
		if _, err := p.rig.StartArbiter(); err != nil {
			return err
		}
	}
	for range slices.Max(slices.Concat(cardsOf(tenants)...)) + 1 {
		made, err := p.rig.Card(simcard.Config{Memory: 64 * 1024 * rig.MiB})
		if err != nil {
			return err
		}
		p.cards = append(p.cards, made)
		p.logs = append(p.logs, logReader{card: made})
	}
	var all []rig.Share
	for _, t := range tenants {
		var mine []*simcard.Card
		for _, n := range t.cards {
			mine = append(mine, p.cards[n])
		}
		shares, err := t.shares(p.rig, mine)
		if err != nil {
			return err
		}
		box, err := p.box(c, shares, mine)
		if err != nil {
			return err
		}
		p.actors = append(p.actors, actor{box: box})
		all = append(all, shares...)
	}
	if !c.ours() {
		return nil
	}
	return p.rig.Served(all...)
}

func cardsOf(tenants []on) [][]int {
	var out [][]int
	for _, t := range tenants {
		out = append(out, t.cards)
	}
	return out
}

func (p *play) box(c contender, shares []rig.Share, cards []*simcard.Card) (*sandbox.Box, error) {
	if c.ours() {
		return p.rig.Box(rig.BoxOptions{}, shares...)
	}
	box, err := p.rig.Box(rig.BoxOptions{Bare: c.library == "", Library: c.library, Cards: cards})
	if err != nil {
		return nil, err
	}
	return box, c.cover(box)
}

// cover files of a box with those that stand in for them.
func (c contender) cover(box *sandbox.Box) error {
	for _, f := range c.files {
		target, source, _ := strings.Cut(f, "=")
		if err := box.Cover(source, target); err != nil {
			return err
		}
	}
	return nil
}

// start starts the tenants and waits until all of them are ready to begin.
func (p *play) start(c contender, length time.Duration, tenants []on) error {
	seconds := int((p.settling + length).Seconds())
	for i, t := range tenants {
		args := append([]string{rig.Client("work"), "seconds=" + strconv.Itoa(seconds), "seed=" + strconv.Itoa(i+1), "devices=" + strconv.Itoa(len(t.cards))}, t.work...)
		if p.realTime {
			args = append([]string{"chrt", "--rr", "1"}, args...)
		}
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = rig.Environment(c.environment(p.rig.Dir, i, t.tenant)...)
		program, err := rig.Start(p.actors[i].box, cmd)
		if err != nil {
			return err
		}
		p.actors[i].program = program
	}
	for _, a := range p.actors {
		if _, err := a.program.Expect("ready"); err != nil {
			return err
		}
	}
	return p.preloaded(c)
}

// environment is what others than ours are told of a share.
func (c contender) environment(dir string, number int, t tenant) []string {
	replace := strings.NewReplacer(
		"{cores}", strconv.Itoa(int(t.cores)), "{memory}", strconv.Itoa(tenantMiB), "{tenant}", strconv.Itoa(number),
		"{dir}", dir)
	var out []string
	if c.preload != "" {
		out = append(out, "LD_PRELOAD="+c.preload)
	}
	for _, e := range c.env {
		out = append(out, replace.Replace(e))
	}
	return out
}

// whose tells which tenant has a slot of a card.
func (p *play) whose(c *simcard.Card) (map[int]int, error) {
	truth, err := c.Truth()
	if err != nil {
		return nil, err
	}
	out := map[int]int{}
	for _, s := range truth.Slots {
		namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", s.PID))
		if err != nil {
			return nil, fmt.Errorf("find whose slot %d is: %w", s.Number, err)
		}
		for i, a := range p.actors {
			if a.box.Namespace() == namespace {
				out[s.Number] = i
			}
		}
	}
	return out, nil
}

// monotonic is the time as the card and the tenants know it.
func monotonic() (time.Duration, error) {
	var now unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return time.Duration(now.Nano()), os.NewSyscallError("clock_gettime", err)
}

// watch lets the tenants begin, and reads the cards' logs until they have ended.
func (p *play) watch(ctx context.Context, length time.Duration) (record, error) {
	slots := make([]map[int]int, len(p.cards))
	for i, c := range p.cards {
		var err error
		if slots[i], err = p.whose(c); err != nil {
			return record{}, err
		}
	}
	now, err := monotonic()
	if err != nil {
		return record{}, err
	}
	epoch := now + 200*time.Millisecond
	for _, a := range p.actors {
		if err := a.program.Say(fmt.Sprint("go ", epoch.Nanoseconds())); err != nil {
			return record{}, err
		}
	}
	rec := record{judged: span{epoch + p.settling, epoch + p.settling + length}}
	stands := watchStandstills(ctx)
	rec.idle, err = p.follow(ctx, rec.judged)
	standstills, standErr := stands.end()
	if rec.standstills = standstills; err != nil || standErr != nil {
		return record{}, errors.Join(err, standErr)
	}
	for _, a := range p.actors {
		lines, err := a.program.End()
		if err != nil {
			return record{}, err
		}
		rec.lines = append(rec.lines, lines)
	}
	for i := range p.logs {
		l := &p.logs[i]
		if l.read(); l.card.Runs(l.next) != nil {
			return record{}, unmeasured(fmt.Sprintf("the log of card %d has a gap at run %d: it was not read in time", i, l.next))
		}
		runs := make([]run, 0, len(l.runs))
		for _, r := range l.runs {
			runs = append(runs, run{slots[i][r.Slot], span{r.Start, r.End}})
		}
		rec.cards = append(rec.cards, once(runs))
	}
	return rec, nil
}

// follow reads the logs until what is judged is over, and says how idle the machine was.
func (p *play) follow(ctx context.Context, judged span) (idle float64, err error) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	var before ticks
	for {
		now, err := monotonic()
		if err != nil {
			return 0, err
		}
		if before.all == 0 && now >= judged.from {
			if before, err = processors(); err != nil {
				return 0, err
			}
		}
		if now >= judged.to {
			after, err := processors()
			return after.idleSince(before), err
		}
		for i := range p.logs {
			p.logs[i].read()
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-ticker.C:
		}
	}
}
