// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/pkg/checkpoint"
	"github.com/tranche-dra/tranche/pkg/prepare"
	"github.com/tranche-dra/tranche/pkg/share"
)

// Claims reads claims from the API server.
type Claims interface {
	GetClaim(ctx context.Context, name types.NamespacedName) (*resourceapi.ResourceClaim, error)
}

// Pods tells which claims kubelet still lists for a pod.
type Pods interface {
	ClaimsInUse(ctx context.Context) (map[types.NamespacedName]struct{}, error)
}

// Preparer is what heals.
type Preparer interface {
	Prepare(ctx context.Context, claim *resourceapi.ResourceClaim) ([]prepare.Prepared, error)
	Unprepare(ctx context.Context, claim share.Claim) error
	Restore(ctx context.Context, uid string) (healed bool, err error)
}

// Recorder counts what was healed, by kind: "restored", "orphan", "stale",
// "damaged", "interrupted".
type Recorder interface {
	Healed(kind string)
}

// Config of a Reconciler. All fields are required.
type Config struct {
	Preparer Preparer
	Records  *checkpoint.Store
	Specs    cdi.Specs
	Dirs     cdi.Dirs
	Claims   Claims
	Pods     Pods
	Recorder Recorder
	// CDIRoot is watched for files that disappear.
	CDIRoot string
	// Interval between two passes, and the time for which a claim must have
	// been gone everywhere before what it holds is released.
	Interval, StaleGrace time.Duration
	// Now is the clock, time.Now in the product.
	Now func() time.Time
}

// Reconciler heals one node.
type Reconciler struct {
	Config
	// goneSince is when a claim was first found gone; only Pass touches it.
	goneSince map[string]time.Time
}

// New makes a Reconciler. It does no I/O.
func New(config Config) *Reconciler {
	return &Reconciler{Config: config, goneSince: map[string]time.Time{}}
}

// settle is how long the CDI directory must be quiet before a pass that a
// change of it asked for: a wiped directory is many changes.
const settle = 50 * time.Millisecond

// Run heals until ctx ends, and returns nil then. An error means that this
// process cannot do its work any more and must be started again.
func (r *Reconciler) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch CDI directory: %w", err)
	}
	defer watcher.Close() //nolint:errcheck // nothing was written
	full := true
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-watcher.Events:
			if event.Has(fsnotify.Remove) || event.Has(fsnotify.Rename) {
				timer.Reset(settle)
			}
			continue
		case err := <-watcher.Errors:
			logger.V(2).Info("Lost sight of the CDI directory for a moment", "err", err)
			timer.Reset(settle)
			continue
		case <-timer.C:
		}
		// Adding a directory that is watched already changes nothing.
		if err := watcher.Add(r.CDIRoot); err != nil {
			logger.V(2).Info("CDI directory is not there yet", "path", r.CDIRoot, "err", err)
		}
		if err := r.Pass(ctx, full); err != nil {
			if errors.Is(err, cdi.ErrDirectoryGone) {
				return err
			}
			logger.Error(err, "Healing is not complete, it goes on with the next pass")
		} else {
			full = false
		}
		timer.Reset(r.Interval)
	}
}

// Pass heals once. A full pass also compares the content of every file; others
// only look whether the files are there. The error joins what could not be
// healed; cdi.ErrDirectoryGone among them is final.
func (r *Reconciler) Pass(ctx context.Context, full bool) error {
	if err := r.Specs.Check(); errors.Is(err, cdi.ErrDirectoryGone) {
		return err
	}
	listing, err := r.Records.List()
	if err != nil {
		return err
	}
	onDisk, err := r.onDisk()
	if err != nil {
		return err
	}
	var errs []error
	for _, record := range listing.Records {
		if kind := r.need(record, onDisk[record.Claim.UID], full); kind != "" {
			errs = append(errs, r.restore(ctx, record.Claim.UID, kind))
		}
		delete(onDisk, record.Claim.UID)
	}
	for _, bad := range listing.Bad {
		delete(onDisk, bad.ClaimUID)
	}
	// Nothing with a record is left: these are files of nobody.
	for uid := range onDisk {
		errs = append(errs, r.restore(ctx, uid, "orphan"))
	}
	errs = append(errs, r.heal(ctx, listing))
	return errors.Join(errs...)
}

// files is what one claim has on disk.
type files struct {
	spec bool
	dirs []share.Key
}

func (r *Reconciler) onDisk() (map[string]files, error) {
	uids, err := r.Specs.List()
	if err != nil {
		return nil, err
	}
	keys, err := r.Dirs.List()
	if err != nil {
		return nil, err
	}
	all := map[string]files{}
	for _, uid := range uids {
		all[uid] = files{spec: true}
	}
	for _, key := range keys {
		uid, _ := key.ClaimUID() // Dirs lists nothing else
		f := all[uid]
		f.dirs = append(f.dirs, key)
		all[uid] = f
	}
	return all, nil
}

// need says what kind of healing a record asks for, "" for none.
func (r *Reconciler) need(record checkpoint.Record, have files, full bool) string {
	switch record.Phase {
	case checkpoint.Unpreparing:
		return "interrupted"
	case checkpoint.Prepared:
		if full || !have.spec {
			return "restored"
		}
		for _, s := range record.Shares {
			if !slices.Contains(have.dirs, s.Key()) {
				return "restored"
			}
		}
	case checkpoint.Preparing:
		// Kubelet tries again. After a reboot it may not: a full pass does.
		if full {
			return "restored"
		}
	}
	return ""
}

func (r *Reconciler) restore(ctx context.Context, uid, kind string) error {
	healed, err := r.Preparer.Restore(ctx, uid)
	if err != nil || !healed {
		return err
	}
	r.Recorder.Healed(kind)
	klog.FromContext(ctx).V(2).Info("Healed", "kind", kind, "claimUID", uid)
	return nil
}

// heal deals with claims whose record is damaged and with claims that are gone.
// Without a word from kubelet nothing is released.
func (r *Reconciler) heal(ctx context.Context, listing checkpoint.Listing) error {
	var errs []error
	for _, bad := range listing.Bad {
		if errors.Is(bad.Err, checkpoint.ErrDamaged) {
			_, err := r.Preparer.Restore(ctx, bad.ClaimUID)
			errs = append(errs, err)
		}
	}
	inUse, err := r.Pods.ClaimsInUse(ctx)
	if err != nil {
		klog.FromContext(ctx).V(4).Info("Kubelet does not tell which claims are in use", "err", err)
		return errors.Join(errs...)
	}
	present := map[string]bool{}
	for _, record := range listing.Records {
		present[record.Claim.UID] = true
		name := types.NamespacedName{Namespace: record.Claim.Namespace, Name: record.Claim.Name}
		if _, ok := inUse[name]; ok {
			delete(r.goneSince, record.Claim.UID)
			continue
		}
		claim, err := r.Claims.GetClaim(ctx, name)
		errs = append(errs, r.releaseIfGone(ctx, record.Claim, claim, err))
	}
	for _, bad := range listing.Bad {
		if !errors.Is(bad.Err, checkpoint.ErrDamaged) {
			continue
		}
		present[bad.ClaimUID] = true
		errs = append(errs, r.prepareDamaged(ctx, bad.ClaimUID, inUse))
	}
	for uid := range r.goneSince {
		if !present[uid] {
			delete(r.goneSince, uid)
		}
	}
	return errors.Join(errs...)
}

// prepareDamaged makes a new record for a claim whose old one is damaged, if
// kubelet still lists it; otherwise it is released like any claim that is gone.
func (r *Reconciler) prepareDamaged(ctx context.Context, uid string, inUse map[types.NamespacedName]struct{}) error {
	for name := range inUse {
		claim, err := r.Claims.GetClaim(ctx, name)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look for the claim of a damaged record: %w", err)
		}
		if string(claim.UID) != uid {
			continue
		}
		if _, err := r.Preparer.Prepare(ctx, claim); err != nil {
			return err
		}
		r.Recorder.Healed("damaged")
		return nil
	}
	return r.releaseIfGone(ctx, share.Claim{UID: uid}, nil, nil)
}

// releaseIfGone unprepares a claim that has been away from API server and
// kubelet for the grace time.
func (r *Reconciler) releaseIfGone(ctx context.Context, known share.Claim, now *resourceapi.ResourceClaim, err error) error {
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("look for claim %s: %w", known, err)
	case err == nil && now != nil && string(now.UID) == known.UID:
		delete(r.goneSince, known.UID)
		return nil
	}
	since, ok := r.goneSince[known.UID]
	if !ok {
		r.goneSince[known.UID] = r.Now()
		return nil
	}
	if r.Now().Sub(since) < r.StaleGrace {
		return nil
	}
	klog.FromContext(ctx).Info("Releasing a claim that is gone", "claim", known, "claimUID", known.UID, "goneFor", r.Now().Sub(since))
	if err := r.Preparer.Unprepare(ctx, known); err != nil {
		return err
	}
	delete(r.goneSince, known.UID)
	r.Recorder.Healed("stale")
	return nil
}
