// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sync/errgroup"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/cdi/libraries"
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

// Libraries are the versions of the sharing runtime on this node.
type Libraries interface {
	// Prune removes those that no running driver has and inUse does not name.
	Prune(ctx context.Context, inUse func() ([]libraries.Digest, error)) ([]libraries.Digest, error)
}

// Recorder counts what was healed, by several at once and by kind: "restored" (files were missing or
// wrong), "interrupted" (an unprepare was finished), "set aside" (a damaged
// record), "damaged" (a record was made anew), "orphan" (files of nobody were
// removed), "stale" (a claim that is gone was released).
type Recorder interface {
	Healed(kind string)
}

// Config of a Reconciler. All fields are required.
type Config struct {
	Preparer  Preparer
	Records   *checkpoint.Store
	Specs     cdi.Specs
	Dirs      cdi.Dirs
	Libraries Libraries
	Claims    Claims
	Pods      Pods
	Recorder  Recorder
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

const (
	// settle is how long after the first change of the CDI directory a pass
	// begins: a wiped directory is many changes.
	settle = 50 * time.Millisecond
	// fullEvery passes one compares the content of every file; the others only
	// look whether the files are there.
	fullEvery = 30
	// Nobody is waited for longer than this, so that one who hangs does not stop
	// the healing of all: kubelet, the API server with all questions of a pass,
	// and whoever else changes a claim.
	kubeletPatience, serverPatience, claimPatience = 5 * time.Second, 20 * time.Second, 10 * time.Second
	// prunePatience is how long somebody who installs a runtime is waited for.
	prunePatience = 10 * time.Second
	// restoredAtOnce is how many claims are mended at the same time: after a
	// reboot each may wait for the arbiter, and none must wait for another.
	restoredAtOnce = 64
)

// Run heals until ctx ends, and returns nil then. An error means that this
// process cannot do its work any more and must be started again.
func (r *Reconciler) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	changed, stop := r.watch(ctx)
	defer stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	soon := true
	for count := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			// Further changes do not put the pass off.
			if !soon {
				soon = true
				timer.Reset(settle)
			}
			continue
		case <-timer.C:
		}
		soon = false
		err := r.Pass(ctx, count%fullEvery == 0)
		switch {
		case errors.Is(err, cdi.ErrDirectoryGone), errors.Is(err, checkpoint.ErrDirectoryGone):
			return err
		case ctx.Err() != nil:
			return nil
		case err != nil:
			// A full pass that failed is repeated as one.
			logger.Error(err, "Healing is not complete, it goes on with the next pass")
		default:
			count++
		}
		timer.Reset(r.Interval)
	}
}

// watch tells when a file of ours has disappeared from the CDI directory. Where
// the kernel has no watch left, the passes at every interval have to do.
func (r *Reconciler) watch(ctx context.Context) (changed <-chan struct{}, stop func()) {
	logger := klog.FromContext(ctx)
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		logger.Error(err, "Cannot watch the CDI directory: what is lost there is only found at every interval", "interval", r.Interval)
		return nil, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	// Before the first pass: what is lost between the two would not be seen.
	r.arm(ctx, watcher)
	out := make(chan struct{}, 1)
	var wait sync.WaitGroup
	wait.Go(func() { r.forward(ctx, watcher, out) })
	return out, func() {
		cancel()
		wait.Wait()
		if err := watcher.Close(); err != nil {
			logger.V(2).Info("Cannot end the watch of the CDI directory", "err", err)
		}
	}
}

// forward turns what happens in the CDI directory into wishes for a pass. The
// directory itself may be deleted and made again: it is added at every tick.
func (r *Reconciler) forward(ctx context.Context, watcher *fsnotify.Watcher, out chan<- struct{}) {
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		lost := false
		select {
		case <-ctx.Done():
			return
		case <-again.C:
			r.arm(ctx, watcher)
		case event := <-watcher.Events:
			lost = (event.Has(fsnotify.Remove) || event.Has(fsnotify.Rename)) && !strings.HasSuffix(event.Name, ".tmp")
		case err := <-watcher.Errors:
			klog.FromContext(ctx).V(2).Info("Lost sight of the CDI directory for a moment", "err", err)
			lost = true
		}
		if lost {
			select {
			case out <- struct{}{}:
			default: // one is waiting already
			}
		}
	}
}

// arm watches the CDI directory. Adding what is watched already changes nothing.
func (r *Reconciler) arm(ctx context.Context, watcher *fsnotify.Watcher) {
	if err := watcher.Add(r.CDIRoot); err != nil {
		klog.FromContext(ctx).V(4).Info("CDI directory is not there", "path", r.CDIRoot, "err", err)
	}
}

// Pass heals once. The error joins what could not be healed; one that wraps
// ErrDirectoryGone of cdi or checkpoint is final.
func (r *Reconciler) Pass(ctx context.Context, full bool) error {
	if err := r.Records.Check(); errors.Is(err, checkpoint.ErrDirectoryGone) {
		return err
	}
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
	needs := map[string]string{}
	for _, record := range listing.Records {
		if kind := r.need(record, onDisk[record.Claim.UID], full); kind != "" {
			needs[record.Claim.UID] = kind
		}
		delete(onDisk, record.Claim.UID)
	}
	for _, bad := range listing.Bad {
		delete(onDisk, bad.ClaimUID)
		if errors.Is(bad.Err, checkpoint.ErrDamaged) {
			needs[bad.ClaimUID] = "set aside"
		}
	}
	err = r.restoreAll(ctx, needs)
	// What is left on disk has no record.
	err = errors.Join(err, r.compare(ctx, listing, slices.Sorted(maps.Keys(onDisk))))
	if err == nil && full {
		r.prune(ctx)
	}
	return err
}

// restoreAll mends the claims with those UIDs, each for a kind of need.
func (r *Reconciler) restoreAll(ctx context.Context, needs map[string]string) error {
	uids := slices.Sorted(maps.Keys(needs))
	errs := make([]error, len(uids))
	var group errgroup.Group
	group.SetLimit(restoredAtOnce)
	for i, uid := range uids {
		group.Go(func() error {
			errs[i] = r.restore(ctx, uid, needs[uid])
			return nil // one that cannot be mended does not stop the others
		})
	}
	_ = group.Wait() // see above
	return errors.Join(errs...)
}

// files is what one claim has on disk: its spec, and the shares whose directory
// is complete.
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
		if _, err := os.Stat(filepath.Join(r.Dirs.Path(key), cdi.ShareFileName)); err == nil {
			f.dirs = append(f.dirs, key)
		}
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
	ctx, cancel := context.WithTimeout(ctx, claimPatience)
	defer cancel()
	healed, err := r.Preparer.Restore(ctx, uid)
	if err != nil || !healed {
		return err
	}
	r.Recorder.Healed(kind)
	klog.FromContext(ctx).V(2).Info("Healed", "kind", kind, "claimUID", uid)
	return nil
}
