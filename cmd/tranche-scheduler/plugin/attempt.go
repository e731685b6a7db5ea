// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/placement"
)

const stateKey fwk.StateKey = Name

// attempt is one pod's way through one scheduling cycle.
type attempt struct {
	pod       *v1.Pod
	policies  placement.Policies
	wish      *wish
	matcher   *matcher
	ledger    *ledger
	inventory *inventory
	// stock is what there is, and allocated what is taken of it: the one copy for
	// this attempt, nil where it could not be had. Of an incremental attempt, allocated
	// is only what is kept for others, and the ledger has the rest.
	stock       *stock
	allocated   *structured.AllocatedState
	incremental bool
	// trusted says that a node is taken by what the model says of it, and that the
	// allocator runs for the chosen one only, in Reserve.
	trusted bool
	// claims are those that pods have.
	claims claimsKnown
	// renewed says that allocated is newer than what the wrapped plug-in's allocator has.
	renewed bool
	// only names the chosen node from then on.
	only string

	// supposed is what is to be thought of as gone, and kept the devices of which the
	// room is kept for somebody else, though allocated says that nobody shares them.
	supposed
	kept  sets.Set[structured.DeviceID]
	rooms *rooms
	// keeps says that room is kept for somebody else, of either kind.
	keeps bool
	// plans, where the pod may make others give way, is what it would take where.
	plans *plans

	// findings hold for all copies of the attempt that suppose the same.
	findings *findings
}

// findings by node.
type findings struct {
	mutex sync.Mutex
	by    map[string]*finding
}

func newFindings() *findings { return &findings{by: make(map[string]*finding)} }

// finding is what was found out about one node.
type finding struct {
	// fits by the model, and then choice and score say how well.
	fits   bool
	choice placement.Choice
	score  float64
	// certain findings need no allocator. What does not fit is certain where the model
	// knows everything that could be taken; what fits is so only where it knows
	// everything that is asked for, too: where it is complete.
	certain, complete bool
	// claims that the parts of the demand are of.
	claims []types.UID
	// shortage says why it does not fit, never that it would not even if all of the
	// node's cards were free; because has a better explanation where there is one.
	shortage placement.Shortage
	never    bool
	because  string
}

var errNoAttempt = errors.New("PreFilter did not run for this pod")

func attemptOf(state fwk.CycleState) (*attempt, error) {
	data, err := state.Read(stateKey)
	if err != nil {
		return nil, err
	}
	a, ok := data.(*attempt)
	if !ok {
		return nil, errNoAttempt
	}
	return a, nil
}

// Clone is called to try what would be if pods came or went on a node.
func (a *attempt) Clone() fwk.StateData {
	c := &attempt{
		pod: a.pod, policies: a.policies, wish: a.wish, matcher: a.matcher, ledger: a.ledger,
		claims: a.claims, renewed: a.renewed, inventory: a.inventory, stock: a.stock, allocated: a.allocated, incremental: a.incremental, trusted: a.trusted, only: a.only,
		kept: a.kept, rooms: a.rooms, plans: a.plans,
		keeps: a.keeps, findings: a.findings,
	}
	c.supposed = a.supposed.clone()
	return c
}

// find looks at a node, once.
func (a *attempt) find(ctx context.Context, name string) *finding {
	of := a.findings
	of.mutex.Lock()
	f := of.by[name]
	of.mutex.Unlock()
	if f != nil {
		return f
	}
	f = a.look(ctx, name)
	of.mutex.Lock()
	defer of.mutex.Unlock()
	of.by[name] = f
	return f
}

// allocates tells whether there is anything to be allocated.
func (a *attempt) allocates() bool { return a.stock != nil && a.allocated != nil }

// knows tells whether there is anything to be said of that by the model.
func (a *attempt) knows() bool { return a.allocates() && len(a.wish.parts) > 0 }

func (a *attempt) look(ctx context.Context, name string) *finding {
	h := a.stock.hosts[name]
	if h == nil {
		h = &host{name: name, node: placement.Node{Name: name}, modelled: true, others: &foreign{}}
	}
	demand, f := a.demand(ctx, h)
	if f.because != "" {
		return f
	}
	now := a.node(h)
	f.choice, f.score, f.fits = a.policies.Evaluate(now, demand)
	if f.fits {
		f.certain = f.certain && f.complete
		return f
	}
	// Several parts can be in each other's way: placement does not try all the ways to
	// deal cards out to them, the allocator does.
	f.certain = f.certain && someRefused(now, demand)
	f.shortage = placement.Explain(now, demand)
	f.never = someRefused(a.tolerated(h, h.node.Clone()), demand)
	return f
}

// someRefused tells whether some part would find no room even if it were alone.
func someRefused(n *placement.Node, d *placement.Demand) bool {
	return slices.ContainsFunc(d.Parts, func(part placement.Part) bool {
		return !placement.Fits(n, &placement.Demand{Parts: []placement.Part{part}})
	})
}

// demand is what the pod asks of this very node, with its cards' attributes
// looked at. The finding says how far the model reaches there.
func (a *attempt) demand(ctx context.Context, h *host) (*placement.Demand, *finding) {
	f := &finding{certain: h.modelled, complete: a.wish.complete}
	f.certain = f.certain && (len(a.wish.of) == 1 || !a.wish.tolerant || !h.tainted())
	d := &placement.Demand{Parts: make([]placement.Part, 0, len(a.wish.parts))}
	for i := range a.wish.of {
		asked, part := &a.wish.of[i], a.wish.parts[i]
		m := h.matching(ctx, a.matcher, asked.selection)
		theirs := h.others.matching(ctx, a.matcher, asked.selection).concerns() ||
			a.stock.elsewhere.matching(ctx, a.matcher, asked.selection).concerns()
		switch {
		case theirs && !m.concerns():
			f.complete = false // what is asked for is no card
			continue
		case theirs, m.any && m.err != nil, !part.Whole && h.offersWhole(m):
			f.certain = false
		case !f.certain:
		case asked.impossible != "":
			f.because, f.never = asked.request+" "+asked.impossible, true
		case m.err != nil:
			f.because, f.never = asked.request+": selector has no answer for card "+m.device+": "+m.err.Error(), true
		}
		part.Accepts = m.accepts()
		d.Parts, f.claims = append(d.Parts, part), append(f.claims, asked.claim)
	}
	return d, f
}

// concerns tells whether some device is accepted, or whether that cannot be told.
func (f *match) concerns() bool { return f.any || f.err != nil }

// offersWhole tells whether a card that is only given whole is accepted: the
// allocator gives it to whoever asks for no more than it has.
func (h *host) offersWhole(m *match) bool {
	for i := range h.node.Cards {
		if h.node.Cards[i].WholeOnly && m.accepted[i] {
			return true
		}
	}
	return false
}

// node is the model of the node as it is now, and as it is supposed to be.
func (a *attempt) node(h *host) *placement.Node {
	if a.incremental && !a.keeps && !a.supposes() {
		return a.tolerated(h, a.ledger.summary(h).Clone())
	}
	n := h.node.Clone()
	a.ledger.read(h.cards, func(i int, known tally) {
		a.taken(h.cards[i].id, known).from(&n.Cards[i])
	})
	return a.tolerated(h, n)
}

// taken is what is taken of a card and is not supposed to be gone. The ledger knows as
// much of it as is given.
func (a *attempt) taken(id structured.DeviceID, known tally) *tally {
	t := tallyIn(a.allocated, id)
	if a.incremental {
		t.add(known, 1)
	} else {
		t.online, t.offline = known.online, known.offline
	}
	t.add(a.freed[id], -1)
	if a.kept.Has(id) {
		t.alone = max(t.alone, 1)
	}
	return &t
}

// from books it on a card that has everything free.
func (t *tally) from(c *placement.Card) {
	if t.alone > 0 {
		c.Free, c.Unclassed = placement.Amount{}, 1
		return
	}
	percent := func(n int64) placement.Milli { return placement.FromPercent(card.Percent(max(n, 0))) }
	shares := slots(t.slots)
	c.Free.Compute = max(c.Free.Compute-percent(t.cores), 0)
	c.Free.Offline = max(c.Free.Offline-percent(t.offlineCores), 0)
	c.Free.Memory = max(c.Free.Memory-card.CeilMiB(max(t.bytes, 0)), 0)
	c.Free.Slots = max(c.Free.Slots-shares, 0)
	// Which of the shares are online may be known a moment later than how many there
	// are.
	c.OfflineShares = min(max(t.offline, 0), shares)
	c.Online = min(max(t.online, 0), shares-c.OfflineShares)
	c.Unclassed = shares - c.OfflineShares - c.Online
}

// tolerated marks the cards whose taints keep the pod away.
func (a *attempt) tolerated(h *host, n *placement.Node) *placement.Node {
	for i := range h.cards {
		for _, taint := range h.cards[i].taints {
			if !a.tolerates(taint) {
				n.Cards[i].Tainted = true
			}
		}
	}
	return n
}

// tolerates tells whether every request tolerates the taint. Where only some do,
// cards are left out that the allocator might take.
func (a *attempt) tolerates(taint resourceapi.DeviceTaint) bool {
	for i := range a.wish.of {
		if !slices.ContainsFunc(a.wish.of[i].tolerations, func(t resourceapi.DeviceToleration) bool {
			return resourceclaim.ToleratesTaint(t, taint)
		}) {
			return false
		}
	}
	return true
}
