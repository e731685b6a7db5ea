// SPDX-License-Identifier: Apache-2.0

package guarantee

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/nodeview"
	"github.com/tranche-dra/tranche/pkg/share"
)

// Source knows the shares of the node and what they got, in sums that grow.
type Source interface {
	Guarantees(ctx context.Context) []nodeview.Guarantee
}

// Entry is what is told of one share.
type Entry struct {
	Driver  string          `json:"driver"`
	Pool    string          `json:"pool"`
	Device  string          `json:"device"`
	ShareID string          `json:"shareID,omitempty"`
	Data    json.RawMessage `json:"data"`
}

// Writer writes the entries of a claim, in the place of those that it wrote before.
type Writer interface {
	Write(ctx context.Context, claim share.Claim, entries []Entry) error
}

// Config of a Keeper. A field that is zero takes its default, but for Driver.
type Config struct {
	// Driver's name in claims.
	Driver string
	// Interval between two looks at a claim, and so the least time between two writes
	// of it. Default 30 s.
	Interval time.Duration
	// Patience is the least time between two writes of a claim of which little has
	// changed. Default 5 min.
	Patience time.Duration
	// Rate is how many claims are written in a second in the long run, and Burst how
	// many at once. Default 1 and 10.
	Rate  float32
	Burst int
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// looks is how often in an interval claims are looked for whose time has come.
const looks = 3

// writeLimit is how long a write may take.
const writeLimit = 10 * time.Second

// Keeper keeps the statuses of the node's claims.
type Keeper struct {
	config Config
	source Source
	writer Writer
	rate   flowcontrol.PassiveRateLimiter
	claims map[string]*told // by UID
	// forbidden: it was said that writing is not allowed.
	forbidden bool
}

// told is what is known and was told of a claim.
type told struct {
	// due is when to look again, written when it was last written.
	due, written time.Time
	shares       map[share.Key]*reading
}

// reading is the last one of a share, and what was told of it.
type reading struct {
	at     time.Time
	of     nodeview.Guarantee
	status *v1alpha1.ShareStatus
}

// New makes a Keeper. It does no I/O.
func New(config Config, source Source, writer Writer) *Keeper {
	config.Interval = cmp.Or(config.Interval, 30*time.Second)
	config.Patience = cmp.Or(config.Patience, 5*time.Minute)
	config.Rate, config.Burst = cmp.Or(config.Rate, 1), cmp.Or(config.Burst, 10)
	if config.Now == nil {
		config.Now = time.Now
	}
	return &Keeper{
		config: config, source: source, writer: writer, claims: map[string]*told{},
		rate: flowcontrol.NewTokenBucketPassiveRateLimiter(config.Rate, config.Burst),
	}
}

// Run keeps the statuses until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	ticker := time.NewTicker(k.config.Interval / looks)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			k.Look(ctx)
		}
	}
}

// Look looks once at the claims whose time has come.
func (k *Keeper) Look(ctx context.Context) {
	now := k.config.Now()
	byClaim := map[string][]nodeview.Guarantee{}
	for _, g := range k.source.Guarantees(ctx) {
		byClaim[g.ID.Claim.UID] = append(byClaim[g.ID.Claim.UID], g)
	}
	for uid := range k.claims {
		if byClaim[uid] == nil {
			delete(k.claims, uid)
		}
	}
	for uid, shares := range byClaim {
		c := k.claims[uid]
		if c == nil {
			c = &told{due: now.Add(k.phase(uid)), shares: map[share.Key]*reading{}}
			k.claims[uid] = c
		}
		c.meet(now, shares)
		if !now.Before(c.due) {
			c.due = now.Add(k.config.Interval)
			k.claim(ctx, now, c, shares)
		}
	}
}

// phase spreads the claims over an interval, each at a time of its own.
func (k *Keeper) phase(uid string) time.Duration {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(uid))                                 // which never fails
	return time.Duration(hash.Sum64() % uint64(k.config.Interval)) //nolint:gosec // of an interval
}

// meet begins to measure shares that are new, and forgets those that are gone.
func (c *told) meet(now time.Time, shares []nodeview.Guarantee) {
	there := map[share.Key]bool{}
	for _, g := range shares {
		there[g.Key] = true
		if c.shares[g.Key] == nil {
			c.shares[g.Key] = &reading{at: now, of: g}
		}
	}
	for key := range c.shares {
		if !there[key] {
			delete(c.shares, key)
		}
	}
}

// claim measures the shares of a claim, and tells of them if that is worth it.
func (k *Keeper) claim(ctx context.Context, now time.Time, c *told, shares []nodeview.Guarantee) {
	latest := map[share.Key]*v1alpha1.ShareStatus{}
	changed := none
	for _, g := range shares {
		r := c.shares[g.Key]
		latest[g.Key] = r.status
		w := since(r.at, r.of, now, g)
		if w.now.Wanted > 0 && w.now.Wanted < leastWanted {
			continue // more of it is awaited
		}
		r.at, r.of = now, g
		if w.now.Wanted > 0 {
			latest[g.Key] = w.status()
			changed = max(changed, differs(r.status, latest[g.Key]))
		}
	}
	if changed == none || changed == small && now.Sub(c.written) < k.config.Patience || !k.rate.TryAccept() {
		return
	}
	if err := k.write(ctx, shares, latest); err != nil {
		k.failed(ctx, shares[0].ID.Claim, err)
		return
	}
	c.written = now
	for key, status := range latest {
		c.shares[key].status = status
	}
}

func (k *Keeper) write(ctx context.Context, shares []nodeview.Guarantee, latest map[share.Key]*v1alpha1.ShareStatus) error {
	entries := make([]Entry, 0, len(shares))
	for _, g := range shares {
		status := latest[g.Key]
		if status == nil {
			continue // nothing is known of it yet
		}
		data, err := json.Marshal(status)
		if err != nil {
			return fmt.Errorf("encode status of share %s: %w", g.Key, err)
		}
		entries = append(entries, Entry{k.config.Driver, g.ID.Pool, g.ID.Device, g.ID.ShareID, data})
	}
	slices.SortFunc(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.ShareID, b.ShareID))
	})
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	return k.writer.Write(ctx, shares[0].ID.Claim, entries)
}

// failed says what is worth saying. Nothing is tried again before the claim's time
// has come again, with the figures of then.
func (k *Keeper) failed(ctx context.Context, claim share.Claim, err error) {
	logger := klog.FromContext(ctx)
	switch {
	case ctx.Err() != nil:
	case apierrors.IsForbidden(err) && !k.forbidden:
		k.forbidden = true
		logger.Info("Not allowed to write what shares got into the status of their claims: apply deployments/static again", "err", err)
	default:
		logger.V(2).Info("Cannot write what the shares of a claim got", "claim", claim, "err", err)
	}
}
