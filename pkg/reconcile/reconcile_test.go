// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/cdi/libraries"
	"github.com/tranche-dra/tranche/pkg/checkpoint"
	"github.com/tranche-dra/tranche/pkg/claims"
	"github.com/tranche-dra/tranche/pkg/durable"
	"github.com/tranche-dra/tranche/pkg/reconcile"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/tests/fixture"
)

// world is the API server, kubelet, clock and recorder of a test.
type world struct {
	mu       sync.Mutex
	api      map[types.NamespacedName]*resourceapi.ResourceClaim
	inUse    map[types.NamespacedName]struct{}
	podsErr  error
	podsHang bool
	apiErr   error
	now      time.Time
	healed   map[string]int
	gets     int
	restored chan struct{}
}

func (w *world) GetClaim(_ context.Context, name types.NamespacedName) (*resourceapi.ResourceClaim, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gets++
	if w.apiErr != nil {
		return nil, w.apiErr
	}
	if claim, ok := w.api[name]; ok {
		return claim, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "resourceclaims"}, name.Name)
}

func (w *world) ClaimsInUse(ctx context.Context) (map[types.NamespacedName]struct{}, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.podsHang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if w.podsErr != nil {
		return nil, w.podsErr
	}
	return maps.Clone(w.inUse), nil
}

func (w *world) Healed(kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.healed[kind]++
	select {
	case w.restored <- struct{}{}:
	default:
	}
}

func name(claim *resourceapi.ResourceClaim) types.NamespacedName {
	return types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}
}

const grace = 5 * time.Minute

func start(t *testing.T) (*world, *fixture.Node, *reconcile.Reconciler) {
	t.Helper()
	node, err := fixture.NewNode(t.TempDir(), 2, "boot-1", durable.Files{})
	require.NoError(t, err)
	w := &world{
		api: map[types.NamespacedName]*resourceapi.ResourceClaim{}, inUse: map[types.NamespacedName]struct{}{},
		now: time.Unix(1_000_000, 0), healed: map[string]int{}, restored: make(chan struct{}, 1),
	}
	return w, node, reconciler(w, node)
}

func reconciler(w *world, node *fixture.Node) *reconcile.Reconciler {
	return reconcile.New(reconcile.Config{
		Preparer: node, Records: node.Records, Specs: node.Specs, Dirs: node.Dirs, Claims: w, Pods: w, Recorder: w,
		Libraries: libraries.NewStore(filepath.Join(node.Dir, "runtime"), filepath.Join(node.Dir, "release")),
		CDIRoot:   node.CDIRoot, Interval: time.Hour, StaleGrace: grace, Now: func() time.Time { return w.now },
	})
}

// running prepares a claim that the API server has and kubelet lists.
func running(t *testing.T, w *world, node *fixture.Node, n string) *resourceapi.ResourceClaim {
	t.Helper()
	claim := fixture.Claim(n, fixture.Result{Request: "gpu", Cores: 10, Memory: "1Gi"})
	_, err := node.Prepare(t.Context(), claim)
	require.NoError(t, err)
	w.api[name(claim)] = claim
	w.inUse[name(claim)] = struct{}{}
	return claim
}

func recorded(t *testing.T, node *fixture.Node, claim *resourceapi.ResourceClaim) bool {
	t.Helper()
	_, found, err := node.Records.Read(string(claim.UID))
	require.NoError(t, err)
	return found
}

func TestAHealthyNodeIsLeftAlone(t *testing.T) {
	t.Parallel()
	w, node, r := start(t)
	claim := running(t, w, node, "c")
	require.NoError(t, r.Pass(t.Context(), true))
	require.Empty(t, w.healed)
	require.Zero(t, w.gets, "kubelet's word is enough, the API server is not asked")
	require.True(t, recorded(t, node, claim))
}

func TestMissingFilesAreWrittenAgain(t *testing.T) {
	t.Parallel()
	for what, path := range map[string]func(n *fixture.Node, uid string) string{
		"CDI spec":        func(n *fixture.Node, uid string) string { return n.Specs.Path(uid) },
		"CDI directory":   func(n *fixture.Node, _ string) string { return n.CDIRoot },
		"share directory": func(n *fixture.Node, _ string) string { return filepath.Join(n.Dir, "state", "shares") },
		"share.json":      shareFile,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w, node, r := start(t)
			claim := running(t, w, node, "c")
			require.NoError(t, os.RemoveAll(path(node, string(claim.UID))))
			require.NoError(t, r.Pass(t.Context(), false))
			require.FileExists(t, node.Specs.Path(string(claim.UID)))
			keys, err := node.Dirs.List()
			require.NoError(t, err)
			require.Len(t, keys, 1)
			require.Equal(t, map[string]int{"restored": 1}, w.healed)
		})
	}
}

func shareFile(n *fixture.Node, _ string) string {
	keys, err := n.Dirs.List()
	if err != nil || len(keys) != 1 {
		return ""
	}
	return filepath.Join(n.Dirs.Path(keys[0]), cdi.ShareFileName)
}

func TestAFullPassMendsContent(t *testing.T) {
	t.Parallel()
	w, node, r := start(t)
	claim := running(t, w, node, "c")
	spec := node.Specs.Path(string(claim.UID))
	want, err := os.ReadFile(spec)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(spec, []byte("{"), 0o644))
	require.NoError(t, r.Pass(t.Context(), true))
	got, err := os.ReadFile(spec)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestFilesOfNobodyAreRemoved(t *testing.T) {
	t.Parallel()
	w, node, r := start(t)
	kept := running(t, w, node, "kept")
	orphan := running(t, w, node, "orphan")
	require.NoError(t, os.Remove(filepath.Join(node.Dir, "state", "claims", string(orphan.UID)+".json")))
	delete(w.inUse, name(orphan))
	require.NoError(t, os.WriteFile(filepath.Join(node.CDIRoot, "vendor.com-gpu.json"), []byte("{}"), 0o644))
	require.NoError(t, r.Pass(t.Context(), false))
	require.NoFileExists(t, node.Specs.Path(string(orphan.UID)))
	require.FileExists(t, node.Specs.Path(string(kept.UID)))
	require.FileExists(t, filepath.Join(node.CDIRoot, "vendor.com-gpu.json"), "files of others are theirs")
	keys, err := node.Dirs.List()
	require.NoError(t, err)
	require.Len(t, keys, 1)
	require.Equal(t, map[string]int{"orphan": 1}, w.healed)
}

func TestAnInterruptedUnprepareIsFinished(t *testing.T) {
	t.Parallel()
	w, node, r := start(t)
	claim := running(t, w, node, "c")
	record, _, err := node.Records.Read(string(claim.UID))
	require.NoError(t, err)
	record.Phase = checkpoint.Unpreparing
	_, err = node.Records.Write(record)
	require.NoError(t, err)
	require.NoError(t, r.Pass(t.Context(), false))
	require.False(t, recorded(t, node, claim))
	require.NoFileExists(t, node.Specs.Path(string(claim.UID)))
	require.Equal(t, map[string]int{"interrupted": 1}, w.healed)
}

func TestAfterARebootAFullPassPreparesAgain(t *testing.T) {
	t.Parallel()
	w, node, _ := start(t)
	claim := running(t, w, node, "c")
	require.NoError(t, os.RemoveAll(node.CDIRoot))
	rebooted, err := fixture.NewNode(node.Dir, 2, "boot-2", durable.Files{})
	require.NoError(t, err)
	require.NoError(t, reconciler(w, rebooted).Pass(t.Context(), true))
	record, _, err := rebooted.Records.Read(string(claim.UID))
	require.NoError(t, err)
	require.Equal(t, "boot-2", record.BootID)
	require.Equal(t, checkpoint.Prepared, record.Phase)
	require.FileExists(t, node.Specs.Path(string(claim.UID)))
}

// queue is an arbiter that serves nobody until all claims wait for it, but one
// that it never serves.
type queue struct {
	mu      sync.Mutex
	waiting int
	all     chan struct{}
	never   share.Claim
}

func (q *queue) Await(ctx context.Context, key share.Key, _ string) error {
	q.mu.Lock()
	if q.waiting--; q.waiting == 0 {
		close(q.all)
	}
	q.mu.Unlock()
	select {
	case <-q.all:
	case <-ctx.Done():
		return ctx.Err()
	}
	if key.BelongsTo(q.never.UID) {
		return errors.New("not served")
	}
	return nil
}

func TestNoClaimWaitsForTheArbiterOfAnother(t *testing.T) {
	t.Parallel()
	w, node, _ := start(t)
	var all []*resourceapi.ResourceClaim
	for _, n := range []string{"a", "b", "c", "d"} {
		all = append(all, running(t, w, node, n))
	}
	require.NoError(t, os.RemoveAll(node.CDIRoot))
	rebooted, err := fixture.NewNode(node.Dir, 2, "boot-2", durable.Files{})
	require.NoError(t, err)
	rebooted.Arbiter = &queue{waiting: len(all), all: make(chan struct{}), never: claims.Of(all[0])}
	require.ErrorContains(t, reconciler(w, rebooted).Pass(t.Context(), true), "restore claim team/a: ")
	require.NoFileExists(t, node.Specs.Path(string(all[0].UID)))
	for _, claim := range all[1:] {
		require.FileExists(t, node.Specs.Path(string(claim.UID)))
	}
	require.Equal(t, map[string]int{"restored": 3}, w.healed)
}

func TestAClaimThatIsGoneIsReleasedOnceAfterTheGraceTime(t *testing.T) {
	t.Parallel()
	for what, tc := range map[string]struct {
		change   func(w *world, claim *resourceapi.ResourceClaim)
		released bool
	}{
		"gone from the API server and from kubelet": {func(w *world, c *resourceapi.ResourceClaim) { delete(w.api, name(c)); delete(w.inUse, name(c)) }, true},
		"made again under the same name": {func(w *world, c *resourceapi.ResourceClaim) {
			other := c.DeepCopy()
			other.UID = "another"
			w.api[name(c)] = other
			delete(w.inUse, name(c))
		}, true},
		"gone from the API server, still listed by kubelet":   {func(w *world, c *resourceapi.ResourceClaim) { delete(w.api, name(c)) }, false},
		"not listed by kubelet, still in the API server":      {func(w *world, c *resourceapi.ResourceClaim) { delete(w.inUse, name(c)) }, false},
		"kubelet does not answer":                             {func(w *world, c *resourceapi.ResourceClaim) { delete(w.api, name(c)); w.podsErr = errors.New("away") }, false},
		"gone from kubelet while the API server is not there": {func(w *world, c *resourceapi.ResourceClaim) { delete(w.inUse, name(c)); w.apiErr = errors.New("away") }, false},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w, node, r := start(t)
			claim := running(t, w, node, "c")
			tc.change(w, claim)
			_ = r.Pass(t.Context(), false)
			require.True(t, recorded(t, node, claim), "nothing is released at first sight")
			w.now = w.now.Add(grace - time.Second)
			_ = r.Pass(t.Context(), false)
			require.True(t, recorded(t, node, claim), "nor within the grace time")
			w.now = w.now.Add(2 * time.Second)
			_ = r.Pass(t.Context(), false)
			require.Equal(t, !tc.released, recorded(t, node, claim))
			_ = r.Pass(t.Context(), false)
			if tc.released {
				require.Equal(t, map[string]int{"stale": 1}, w.healed)
			} else {
				require.Empty(t, w.healed)
			}
		})
	}
}

func TestAClaimThatCameBackStartsItsGraceTimeAnew(t *testing.T) {
	t.Parallel()
	w, node, r := start(t)
	claim := running(t, w, node, "c")
	gone := func() { delete(w.api, name(claim)); delete(w.inUse, name(claim)) }
	gone()
	require.NoError(t, r.Pass(t.Context(), false))
	w.api[name(claim)] = claim
	w.now = w.now.Add(grace)
	require.NoError(t, r.Pass(t.Context(), false))
	gone()
	w.now = w.now.Add(grace)
	require.NoError(t, r.Pass(t.Context(), false))
	require.True(t, recorded(t, node, claim))
}

func TestADamagedRecordOfARunningClaimIsMadeAnew(t *testing.T) {
	t.Parallel()
	w, node, r := start(t)
	claim := running(t, w, node, "c")
	other := running(t, w, node, "other")
	require.NoError(t, os.WriteFile(filepath.Join(node.Dir, "state", "claims", string(claim.UID)+".json"), []byte("{"), 0o600))
	require.NoError(t, r.Pass(t.Context(), false))
	require.True(t, recorded(t, node, claim))
	require.True(t, recorded(t, node, other))
	require.EqualValues(t, 1, node.Damaged.Load())
	require.Equal(t, map[string]int{"set aside": 1, "damaged": 1}, w.healed)
	require.NoError(t, r.Pass(t.Context(), false))
	require.EqualValues(t, 1, node.Damaged.Load(), "it is reported once")
	require.NoError(t, node.Unprepare(t.Context(), claims.Of(claim)))
	require.NoFileExists(t, filepath.Join(node.Dir, "state", "claims", "damaged", string(claim.UID)+".json"))
}

func TestADamagedRecordOfAClaimThatIsGoneIsReleasedToo(t *testing.T) {
	t.Parallel()
	w, node, r := start(t)
	claim := running(t, w, node, "c")
	delete(w.api, name(claim))
	delete(w.inUse, name(claim))
	require.NoError(t, os.WriteFile(filepath.Join(node.Dir, "state", "claims", string(claim.UID)+".json"), nil, 0o600))
	require.NoError(t, r.Pass(t.Context(), false))
	require.FileExists(t, node.Specs.Path(string(claim.UID)))
	w.now = w.now.Add(grace)
	require.NoError(t, r.Pass(t.Context(), false))
	require.NoFileExists(t, node.Specs.Path(string(claim.UID)))
	listing, err := node.Records.List()
	require.NoError(t, err)
	require.Empty(t, listing.Bad)
}

func TestRunMendsAWipedDirectoryAtOnce(t *testing.T) {
	t.Parallel()
	w, node, r := start(t)
	claim := running(t, w, node, "c")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	// The interval is an hour: after the first pass only the watch can be what
	// mends. The file is removed as often as it is there again.
	for range 5 {
		require.NoError(t, os.Remove(node.Specs.Path(string(claim.UID))))
		select {
		case <-w.restored:
		case <-time.After(time.Minute):
			require.FailNow(t, "the file is not written again")
		}
	}
	require.FileExists(t, node.Specs.Path(string(claim.UID)))
	cancel()
	require.NoError(t, <-done)
}

func TestRunEndsWhenTheDirectoryIsGoneForGood(t *testing.T) {
	t.Parallel()
	w, node, r := start(t)
	running(t, w, node, "c")
	// What a bind mount of a deleted directory looks like is shown in package
	// cdi; here the error is what counts.
	r.Specs = cdi.NewSpecs(deletedDirectory(t), durable.Files{})
	require.ErrorIs(t, r.Run(t.Context()), cdi.ErrDirectoryGone)
}

// deletedDirectory is a path to a directory that has no name any more.
func deletedDirectory(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "cdi")
	require.NoError(t, os.Mkdir(dir, 0o755))
	open, err := os.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, open.Close()) })
	require.NoError(t, os.Remove(dir))
	return filepath.Join("/proc/self/fd", strconv.Itoa(int(open.Fd())))
}
