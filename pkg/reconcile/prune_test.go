// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/cdi/libraries"
	"github.com/tranche-dra/tranche/pkg/checkpoint"
	"github.com/tranche-dra/tranche/tests/fixture"
)

// release is what a driver's image brings along, told from others by content.
func release(t *testing.T, content string) (dir string, d libraries.Digest) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range cdi.Substituted() {
		for _, path := range []string{cdi.Runtime{Dir: dir}.Library(name), cdi.Runtime{Dir: dir}.Simulated(name)} {
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		}
	}
	d, err := libraries.Of(dir)
	require.NoError(t, err)
	return dir, d
}

// setRecord changes what is known of a claim.
func setRecord(t *testing.T, node *fixture.Node, claim *resourceapi.ResourceClaim, change func(*checkpoint.Record)) {
	t.Helper()
	record, found, err := node.Records.Read(string(claim.UID))
	require.NoError(t, err)
	require.True(t, found)
	change(&record)
	_, err = node.Records.Write(record)
	require.NoError(t, err)
}

func TestAVersionOfTheRuntimeStaysForAsLongAsSomebodyMayNeedIt(t *testing.T) {
	t.Parallel()
	type scene struct {
		w         *world
		node      *fixture.Node
		claim     *resourceapi.ResourceClaim
		old       libraries.Digest
		oldDriver *libraries.Store // not started
	}
	record := func(s scene) string { return recordPath(s.node, s.claim) }
	for what, tc := range map[string]struct {
		arrange func(t *testing.T, s scene)
		quick   bool // the pass is not a full one
		stays   bool
	}{
		"nobody needs it": {arrange: func(*testing.T, scene) {}},
		"a claim is pinned to it": {stays: true, arrange: func(t *testing.T, s scene) {
			setRecord(t, s.node, s.claim, func(r *checkpoint.Record) { r.Runtime = string(s.old) })
			s.node.Installed = append(s.node.Installed, s.old)
		}},
		"the driver that it came with still runs": {stays: true, arrange: func(t *testing.T, s scene) {
			_, err := s.oldDriver.Install(t.Context())
			require.NoError(t, err)
		}},
		"a record was set aside, whose containers may run": {stays: true, arrange: func(t *testing.T, s scene) {
			require.NoError(t, os.WriteFile(record(s), []byte("{"), 0o600))
			s.w.inUse = nil
		}},
		"a record is newer than this driver, and its files are lost": {stays: true, arrange: func(t *testing.T, s scene) {
			writeNewer(t, record(s))
			require.NoError(t, os.RemoveAll(s.node.CDIRoot))
			require.NoError(t, os.RemoveAll(filepath.Join(s.node.Dir, "state", "shares")))
		}},
		"a record is lost, and kubelet does not tell whether its pod runs": {stays: true, arrange: func(t *testing.T, s scene) {
			require.NoError(t, os.Remove(record(s)))
			s.w.podsErr = errors.New("away")
		}},
		"a record is lost, and the API server does not tell whether its pod runs": {stays: true, arrange: func(t *testing.T, s scene) {
			require.NoError(t, os.Remove(record(s)))
			s.w.apiErr = errors.New("away")
		}},
		"not all could be healed": {stays: true, arrange: func(_ *testing.T, s scene) {
			delete(s.w.inUse, name(s.claim))
			s.w.apiErr = errors.New("away")
		}},
		"a pass that only looks at names": {stays: true, quick: true, arrange: func(*testing.T, scene) {}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w, node, r := start(t)
			claim := running(t, w, node, "c")
			root := filepath.Join(node.Dir, "runtime")
			oldSource, old := release(t, "old")
			source, current := release(t, "current")
			driver := libraries.NewStore(root, source)
			_, err := driver.Install(t.Context())
			require.NoError(t, err)
			oldDriver := libraries.NewStore(root, oldSource)
			_, err = libraries.Install(t.Context(), oldSource, root)
			require.NoError(t, err)
			r.Libraries = driver

			tc.arrange(t, scene{w, node, claim, old, oldDriver})
			_ = r.Pass(t.Context(), !tc.quick)
			_, err = oldDriver.Find(old)
			if tc.stays {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, libraries.ErrNotInstalled)
				require.NoDirExists(t, filepath.Join(root, strings.Replace(string(old), ":", "-", 1)))
			}
			_, err = driver.Find(current)
			require.NoError(t, err, "new claims get it")
		})
	}
}
