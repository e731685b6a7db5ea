// SPDX-License-Identifier: Apache-2.0

package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/cdi/libraries"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/checkpoint"
	"github.com/tranche-dra/tranche/pkg/claims"
	"github.com/tranche-dra/tranche/pkg/share"
)

// Reporter hears of what an administrator should look at.
type Reporter interface {
	// RecordDamaged: a record was set aside at path.
	RecordDamaged(ctx context.Context, claimUID, path string, err error)
	// CeilingRefused: the owner of a claim wants a ceiling that its shares cannot
	// have, and they keep what they have.
	CeilingRefused(ctx context.Context, claim share.Claim, err error)
	// CeilingChanged: running shares of a claim have another ceiling by its label, 0
	// being what the configuration of each says.
	CeilingChanged(ctx context.Context, claim share.Claim, from, to card.Percent)
}

// Libraries are the versions of the sharing runtime on this node.
type Libraries interface {
	// Current is the version for claims that have none yet.
	Current() (libraries.Digest, error)
	// Find is where a version is.
	Find(d libraries.Digest) (cdi.Runtime, error)
}

// Arbiter hands out what a process of a share needs to use its card.
type Arbiter interface {
	// Await returns as soon as the share in that directory is served, and an
	// error that names the remedy where it is not within a time that the
	// arbiter's side is known to take.
	Await(ctx context.Context, key share.Key, dir string) error
}

// Config of a Preparer. All fields are required.
type Config struct {
	// Node says how claims are decoded.
	Node claims.Node
	// Slots is how many shares one card takes.
	Slots int
	// BootID of the running kernel.
	BootID  string
	Records *checkpoint.Store
	Locks   *checkpoint.Locks
	Specs   cdi.Specs
	Dirs    cdi.Dirs
	Driver  cdi.DriverFiles
	Report  Reporter
	// Libraries that containers mount in the place of the driver's.
	Libraries Libraries
	Arbiter   Arbiter
}

// Preparer prepares and unprepares claims.
type Preparer struct {
	Config

	room    room
	refused refusals
}

// New makes a Preparer. It does no I/O.
func New(config Config) *Preparer { return &Preparer{Config: config} }

// Prepared is one share that containers can use.
type Prepared struct {
	share.ID
	// CDIDeviceID is the qualified name that kubelet hands to the container runtime.
	CDIDeviceID string
}

// Prepare makes the shares of an allocated claim usable on this node. Asked
// again it gives the same answer and mends what is missing. A claim that holds
// nothing of ours is success. The error names claim, request, card, limit and
// remedy where the claim asks for what cannot be; IsTransient tells whether
// trying again soon makes sense.
func (p *Preparer) Prepare(ctx context.Context, claim *resourceapi.ResourceClaim) ([]Prepared, error) {
	shares, err := claims.Decode(claim, p.decoding(string(claim.UID)))
	if err != nil {
		return nil, classify(err)
	}
	if len(shares) == 0 {
		return nil, nil
	}
	unlock, err := p.Locks.Claim(ctx, string(claim.UID))
	if err != nil {
		return nil, classify(fmt.Errorf("prepare claim %s: %w", claims.Of(claim), err))
	}
	defer unlock()
	record, err := p.hold(ctx, claims.Of(claim), shares, wishOf(claim.Labels))
	if err != nil {
		return nil, classify(err)
	}
	if _, err := p.finish(ctx, record, true); err != nil {
		return nil, classify(fmt.Errorf("prepare claim %s: %w", record.Claim, err))
	}
	prepared := make([]Prepared, 0, len(shares))
	for _, s := range shares {
		prepared = append(prepared, Prepared{ID: s.ID, CDIDeviceID: cdi.DeviceID(s.Key())})
	}
	return prepared, nil
}

// decoding says how the claim is decoded: a share that is prepared keeps the policy
// that the node gave it, whatever the node's default is by now.
func (p *Preparer) decoding(uid string) claims.Node {
	prepared := sync.OnceValue(func() []share.Share {
		record, found, err := p.Records.Read(uid)
		if err != nil || !found || record.Phase != checkpoint.Prepared {
			return nil
		}
		return record.Shares
	})
	node := p.Node
	node.DefaultPolicy = func(id share.ID) (claims.Default, error) {
		for _, s := range prepared() {
			if s.ID == id {
				return claims.Default{Policy: s.Policy, Why: "it was when the claim was prepared"}, nil
			}
		}
		return p.Node.DefaultPolicy(id)
	}
	return node
}

// hold makes sure that a record holds the room of exactly these shares, and the
// ceiling that is wished for. What the claim held before under another allocation
// or another boot is let go.
func (p *Preparer) hold(ctx context.Context, claim share.Claim, shares []share.Share, w wish) (checkpoint.Record, error) {
	record, found, err := p.Records.Read(claim.UID)
	switch {
	case errors.Is(err, checkpoint.ErrDamaged):
		if err := p.setAside(ctx, claim.UID, err); err != nil {
			return record, err
		}
	case err != nil:
		return record, fmt.Errorf("prepare claim %s: %w", claim, err)
	case found && record.Phase == checkpoint.Unpreparing:
		if err := p.sweep(claim.UID); err != nil {
			return record, err
		}
	case found && record.BootID == p.BootID && slices.Equal(record.Shares, shares):
		record.BurstCeiling = p.ceiling(ctx, record, w)
		return record, nil
	}
	record = checkpoint.Record{Claim: claim, Phase: checkpoint.Preparing, BootID: p.BootID, Shares: shares}
	record.BurstCeiling = p.ceiling(ctx, record, w)
	staged, err := p.Records.Stage(record)
	if err != nil {
		return record, err
	}
	if err := p.reserve(ctx, claim, shares, staged); err != nil {
		staged.Discard()
		return record, err
	}
	return record, staged.Settle()
}

// finish brings the node from a record that holds room to one that is Prepared,
// and returns whether a file had to be written for that. Asked to await, it names
// a share to the container runtime only once the arbiter serves it.
func (p *Preparer) finish(ctx context.Context, record checkpoint.Record, await bool) (changed bool, err error) {
	runtime, err := p.pin(ctx, &record)
	if err != nil {
		return false, err
	}
	// Directories of an earlier allocation of this claim.
	if err := p.removeDirs(record.Claim.UID, keys(record.Shares)); err != nil {
		return false, err
	}
	devices := make([]cdi.Device, 0, len(record.Shares))
	cards := make([]card.Card, 0, len(record.Shares))
	for _, s := range record.InForce() {
		device, wrote, err := p.device(ctx, s)
		changed = changed || wrote
		if err != nil {
			return changed, err
		}
		devices = append(devices, device)
		cards = append(cards, device.Card)
	}
	common, err := p.Driver.Common(ctx, cards, runtime)
	if err != nil {
		return changed, fmt.Errorf("find driver files: %w", err)
	}
	spec, err := cdi.Build(record.Claim, devices, common)
	if err != nil {
		return changed, err
	}
	if await {
		if err := p.await(ctx, devices); err != nil {
			return changed, err
		}
	}
	wrote, err := p.Specs.Write(record.Claim.UID, spec)
	changed = changed || wrote
	if err != nil {
		return changed, err
	}
	record.Phase = checkpoint.Prepared
	wrote, err = p.Records.Write(record)
	return changed || wrote, err
}

// pin makes the record name the version of the sharing runtime that the claim's
// containers mount, and returns where it is: the one that it has, as long as that
// is installed, or else the current one.
func (p *Preparer) pin(ctx context.Context, record *checkpoint.Record) (cdi.Runtime, error) {
	if record.Runtime != "" {
		runtime, err := p.Libraries.Find(libraries.Digest(record.Runtime))
		if err == nil {
			return runtime, nil
		}
		klog.FromContext(ctx).Error(err, "A claim cannot keep its version of the sharing runtime and gets the current one", "claim", record.Claim)
	}
	current, err := p.Libraries.Current()
	if err != nil {
		return cdi.Runtime{}, err
	}
	record.Runtime = string(current)
	return p.Libraries.Find(current)
}

// await waits until the arbiter serves all shares. A container that started
// before would have its first use of the card refused.
func (p *Preparer) await(ctx context.Context, devices []cdi.Device) error {
	errs := make([]error, len(devices))
	var wait sync.WaitGroup
	for i, d := range devices {
		wait.Go(func() {
			if err := p.Arbiter.Await(ctx, d.Share.Key(), d.HostDir); err != nil {
				errs[i] = fmt.Errorf("request %s, card %s: %w", d.Share.Request, d.Card.UUID, err)
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// device writes the directory of a share and says what its containers get.
func (p *Preparer) device(ctx context.Context, s share.Share) (device cdi.Device, wrote bool, err error) {
	c, wrote, err := p.writeDir(s)
	if err != nil {
		return device, wrote, err
	}
	edits, err := p.Driver.Device(ctx, c)
	if err != nil {
		return device, wrote, fmt.Errorf("find files of card %s: %w", c.UUID, err)
	}
	return cdi.Device{Share: s, Card: c, HostDir: p.Dirs.Path(s.Key()), Edits: edits}, wrote, nil
}

// writeDir writes the directory of a share, and returns its card.
func (p *Preparer) writeDir(s share.Share) (c card.Card, wrote bool, err error) {
	c, ok := p.Node.Card(s.Device)
	if !ok {
		return c, false, &claims.Error{Claim: s.Claim, Request: s.Request, Device: s.Device, Err: claims.ErrNoSuchCard}
	}
	data, err := cdi.ShareFile(s, c)
	if err != nil {
		return c, false, err
	}
	wrote, err = p.Dirs.Write(s.Key(), data)
	return c, wrote, err
}

func (p *Preparer) setAside(ctx context.Context, uid string, damage error) error {
	path, err := p.Records.SetAside(uid)
	if err != nil {
		return err
	}
	p.Report.RecordDamaged(ctx, uid, path, damage)
	return nil
}

func keys(shares []share.Share) []share.Key {
	out := make([]share.Key, 0, len(shares))
	for _, s := range shares {
		out = append(out, s.Key())
	}
	return out
}
