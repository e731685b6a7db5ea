// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/wire"
)

// Kind of what the watchdog finds.
type Kind string

// Kinds of findings.
const (
	// OverLimit: the processes of a share hold more than its limit.
	OverLimit Kind = "OverLimit"
	// NotAttached: a process in a share's container uses the card without the
	// sharing runtime.
	NotAttached Kind = "NotAttached"
	// Unknown: a process uses the card, and it is not known for which share.
	Unknown Kind = "Unknown"
	// ComputeWithoutLease: the processes of a share compute for longer than they had
	// the card. Amounts are nanoseconds of a second.
	ComputeWithoutLease Kind = "ComputeWithoutLease"
)

// Kinds are the names of all kinds of findings.
func Kinds() []string {
	return []string{string(OverLimit), string(NotAttached), string(Unknown), string(ComputeWithoutLease)}
}

// holder is a process in a finding.
type holder struct {
	pid     int
	started uint64
	bytes   uint64
	// unexplained bytes are those that the process did not ask for by name.
	unexplained uint64
	attached    bool
}

// finding is something that must not be.
type finding struct {
	kind Kind
	// shares that are concerned, more than one where processes use them
	// together; none for unknown processes.
	shares  []share.Key
	holders []holder
	used    uint64
	limit   uint64
}

// name tells findings apart from one look to the next.
func (f finding) name() string {
	if f.kind == OverLimit || f.kind == ComputeWithoutLease {
		return fmt.Sprint(f.kind, f.shares)
	}
	return fmt.Sprint(f.kind, f.holders[0].pid, "@", f.holders[0].started)
}

// findings are what is wrong on the card at this moment.
func (c *hostedCard) findings(reading map[int]uint64, strangers []stranger, tolerance uint64) []finding {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []finding
	for _, group := range c.groups(strangers) {
		if f := c.total(group, reading, strangers); f.limit != wire.NoLimit && f.used > wire.Add(f.limit, tolerance) {
			found = append(found, f)
		}
	}
	for _, s := range strangers {
		if slices.ContainsFunc(s.shares, func(key share.Key) bool { return c.shares[key] != nil && c.shares[key].document.Whole }) {
			continue // the card is theirs, by whatever library
		}
		f := finding{kind: Unknown, shares: s.shares, used: s.bytes, holders: []holder{{pid: s.pid, started: s.started, bytes: s.bytes, unexplained: s.bytes}}}
		if len(s.shares) > 0 {
			f.kind = NotAttached
		}
		found = append(found, f)
	}
	return found
}

// groups are the shares of the card, those together that a process uses both
// of: what it holds cannot be told apart. The caller has mu.
func (c *hostedCard) groups(strangers []stranger) [][]share.Key {
	parent := make(map[share.Key]share.Key, len(c.shares))
	for key := range c.shares {
		parent[key] = key
	}
	find := func(key share.Key) share.Key {
		for parent[key] != key {
			key = parent[key]
		}
		return key
	}
	join := func(keys []share.Key) {
		for _, key := range keys {
			parent[find(key)] = find(keys[0])
		}
	}
	for _, attachments := range c.byPID {
		var keys []share.Key
		for _, a := range attachments {
			keys = append(keys, a.share.key)
		}
		join(keys)
	}
	for _, s := range strangers {
		join(s.shares)
	}
	byRoot := map[share.Key][]share.Key{}
	for key := range c.shares {
		byRoot[find(key)] = append(byRoot[find(key)], key)
	}
	groups := slices.Collect(maps.Values(byRoot))
	for _, group := range groups {
		slices.Sort(group)
	}
	return groups
}

// total is what the processes of some shares hold together. The caller has mu.
func (c *hostedCard) total(group []share.Key, reading map[int]uint64, strangers []stranger) finding {
	f := finding{kind: OverLimit, shares: group}
	for _, key := range group {
		f.limit = wire.Add(f.limit, c.shares[key].grant.words.MemoryLimit.Load())
	}
	for pid, attachments := range c.byPID {
		if slices.Contains(group, attachments[0].share.key) && reading[pid] > 0 {
			f.holders = append(f.holders, holder{
				pid: pid, started: attachments[0].started, bytes: reading[pid], unexplained: less(reading[pid], c.committed(pid)), attached: true,
			})
		}
	}
	for _, s := range strangers {
		if len(s.shares) > 0 && slices.Contains(group, s.shares[0]) {
			f.holders = append(f.holders, holder{pid: s.pid, started: s.started, bytes: s.bytes, unexplained: s.bytes})
		}
	}
	// The first ones are those that least can be explained.
	slices.SortFunc(f.holders, func(a, b holder) int {
		switch {
		case a.attached != b.attached && b.attached:
			return -1
		case a.attached != b.attached:
			return 1
		}
		return cmp.Or(cmp.Compare(b.unexplained, a.unexplained), a.pid-b.pid)
	})
	for _, h := range f.holders {
		f.used = wire.Add(f.used, h.bytes)
	}
	return f
}

// standing is a finding that lasts.
type standing struct {
	finding
	since     time.Time
	told      bool
	withholds bool
	killed    bool
}

// judge compares what is found with what was found before, and acts on what
// lasts for too long.
func (a *Arbiter) judge(ctx context.Context, c *hostedCard, found []finding) {
	w := &c.watched
	now := time.Now()
	before := w.standing
	w.standing = make(map[string]*standing, len(found))
	for _, f := range found {
		s := before[f.name()]
		if s == nil {
			s = &standing{since: now}
		}
		s.finding = f
		w.standing[f.name()] = s
		if now.Sub(s.since) >= a.config.Watchdog.Grace {
			a.act(ctx, c, s, now)
		}
	}
	for name, s := range before {
		if w.standing[name] == nil && s.told {
			klog.FromContext(ctx).Info("What the watchdog found has ended", "card", c.id, "kind", s.kind, "shares", s.shares)
		}
	}
	c.withhold()
}

// act does what is configured about a finding.
func (a *Arbiter) act(ctx context.Context, c *hostedCard, s *standing, now time.Time) {
	action := a.config.Watchdog.Action
	if s.kind == Unknown { // it may be anybody's, the host's own too
		action = ActionEvent
	}
	if !s.told {
		s.told = true
		a.tellFinding(ctx, c, s.finding, action)
	}
	s.withholds = action != ActionEvent
	if action == ActionKill && !s.killed && now.Sub(s.since) >= 2*a.config.Watchdog.Grace {
		s.killed = true
		a.kill(ctx, c, s.finding)
	}
}

// withhold sets what standing findings ask for, and takes back what none asks
// for any more.
func (c *hostedCard) withhold() {
	withheld := map[share.Key]bool{}
	counts := map[share.Key]map[Kind]int{}
	for _, s := range c.watched.standing {
		for _, key := range s.shares {
			withheld[key] = withheld[key] || s.withholds
			if counts[key] == nil {
				counts[key] = map[Kind]int{}
			}
			counts[key][s.kind]++
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, s := range c.shares {
		s.findings = counts[key]
		was := s.withheld
		if s.withheld = withheld[key]; s.withheld {
			s.grant.words.Flags.Or(wire.GrantWithheld)
		} else {
			s.grant.words.Flags.And(^wire.GrantWithheld)
		}
		if s.withheld != was {
			s.withholdCompute()
		}
	}
}

// kill ends the processes that least can be explained, until the rest fits.
// Each is attached to the share, or was proven to be in its container.
func (a *Arbiter) kill(ctx context.Context, c *hostedCard, f finding) {
	left := f.used
	for _, h := range f.holders {
		if left <= f.limit {
			return
		}
		left = less(left, h.bytes)
		if h.pid == 1 || h.pid == os.Getpid() {
			continue
		}
		p, err := findProcess(h.pid)
		if err != nil {
			continue // it has ended by itself
		}
		if p.started == h.started {
			err = p.kill()
			klog.FromContext(ctx).Info("Killed a process that held too much", "card", c.id, "shares", f.shares, "pid", h.pid, "bytes", h.bytes, "err", err)
			a.recorder.Killed()
		}
		_ = p.pidfd.Close()
	}
}

// tellFinding tells the owners of the shares, or the administrator of the node.
func (a *Arbiter) tellFinding(ctx context.Context, c *hostedCard, f finding, action Action) {
	message := f.message(c.id, action)
	klog.FromContext(ctx).Error(nil, "The watchdog found something", "kind", f.kind, "what", message)
	a.recorder.Found(string(f.kind))
	if len(f.shares) == 0 {
		a.events.Node(reasonOf(f.kind), message)
		return
	}
	c.mu.Lock()
	var claims []share.Claim
	for _, key := range f.shares {
		if s := c.shares[key]; s != nil {
			claims = append(claims, s.document.Claim)
		}
	}
	c.mu.Unlock()
	slices.SortFunc(claims, func(a, b share.Claim) int { return cmp.Compare(a.UID, b.UID) })
	for _, claim := range slices.Compact(claims) {
		a.events.Claim(claim, reasonOf(f.kind), message)
	}
}

// message says what was found, and what follows.
func (f finding) message(id card.UUID, action Action) string {
	var processes []string
	for _, h := range f.holders {
		text := fmt.Sprintf("%d (%s", h.pid, card.FloorMiB(h.bytes))
		if pod := podOf(h.pid); pod != "" {
			text += ", pod " + pod
		}
		processes = append(processes, text+")")
	}
	who := strings.Join(processes, ", ")
	var text string
	switch f.kind {
	case ComputeWithoutLease:
		text = f.computeMessage(id)
	case OverLimit:
		text = fmt.Sprintf("processes of this share hold %s of card %s, its limit is %s: %s", card.FloorMiB(f.used), id, card.FloorMiB(f.limit), who)
	case NotAttached:
		text = fmt.Sprintf("a process in this share's container uses card %s without the sharing runtime: %s", id, who)
	case Unknown:
		return fmt.Sprintf("a process that no share accounts for uses card %s: %s. Tenants may find less memory than their shares allow; "+
			"let all users of the card go through claims, or look at /proc/%d/cgroup for where it comes from", id, who, f.holders[0].pid)
	}
	switch action {
	case ActionWithhold:
		text += ". The share can allocate and launch nothing until this has ended"
	case ActionKill:
		text += ". The share can allocate and launch nothing until this has ended, and the processes that are too much are killed"
	case ActionEvent:
	}
	return text + ". Does the container bring a CUDA driver library of its own?"
}
