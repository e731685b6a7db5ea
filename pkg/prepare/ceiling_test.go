// SPDX-License-Identifier: Apache-2.0

package prepare_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/checkpoint"
	"github.com/tranche-dra/tranche/pkg/claims"
	"github.com/tranche-dra/tranche/pkg/durable"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/tests/fixture"
)

func wants(ceiling string) map[string]string {
	return map[string]string{v1alpha1.LabelBurstCeiling: ceiling}
}

// configured adds a ShareConfig, by its fields, to an allocated claim.
func configured(claim *resourceapi.ResourceClaim, fields string, requests ...string) *resourceapi.ResourceClaim {
	devices := &claim.Status.Allocation.Devices
	devices.Config = append(devices.Config, resourceapi.DeviceAllocationConfiguration{
		Source: resourceapi.AllocationConfigSourceClaim, Requests: requests,
		DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
			Driver:     fixture.Driver,
			Parameters: runtime.RawExtension{Raw: []byte(`{"apiVersion":"tranche.dev/v1alpha1","kind":"ShareConfig",` + fields + `}`)},
		}},
	})
	return claim
}

// ceilings are those that the claim's containers and the arbiter see, in the order
// of the claim's shares.
func ceilings(t *testing.T, node *fixture.Node, claim *resourceapi.ResourceClaim) []card.Percent {
	t.Helper()
	record, found, err := node.Records.Read(string(claim.UID))
	require.NoError(t, err)
	require.True(t, found)
	var all []card.Percent
	for _, s := range record.InForce() {
		onDisk, ok := node.Dirs.Holding(s.Key())
		require.True(t, ok)
		require.Equal(t, s, onDisk, "record and share.json say the same")
		all = append(all, s.BurstCeiling)
	}
	return all
}

func TestTheCeilingOfARunningShareFollowsTheLabel(t *testing.T) {
	t.Parallel()
	node := newNode(t, t.TempDir())
	claim := configured(fixture.Claim("c",
		fixture.Result{Request: "burst", Cores: 30, Memory: "1Gi"},
		fixture.Result{Request: "fixed", Cores: 10, Memory: "1Gi"}), `"burst":{"ceiling":80}`, "burst")
	configured(claim, `"policy":"fixed-share"`, "fixed")
	prepared, err := node.Prepare(t.Context(), claim)
	require.NoError(t, err)
	require.Equal(t, []card.Percent{80, 100}, ceilings(t, node, claim))
	for _, step := range []struct {
		what    string
		labels  map[string]string
		want    card.Percent
		refused string
		changed string
	}{
		{"raised", wants("100"), 100, "", "team/c 0 100"},
		{"lowered", wants("30"), 30, "", "team/c 100 30"},
		{"lowered too far", wants("29"), 30, "must not be below the guaranteed cores of 30", ""},
		{"nonsense", wants("many"), 30, "must be a whole number of 1 to 100", ""},
		{"the same again", wants("30"), 30, "", ""},
		{"taken away", map[string]string{"app": "x"}, 80, "", "team/c 30 0"},
		{"wrong from the beginning", wants("101"), 80, "must be a whole number of 1 to 100", ""},
	} {
		node.Refused.Store("")
		node.Changed.Store("")
		known, err := node.Adjust(t.Context(), string(claim.UID), step.labels)
		require.NoError(t, err, step.what)
		require.True(t, known, step.what)
		require.Equal(t, []card.Percent{step.want, 100}, ceilings(t, node, claim), step.what)
		require.Contains(t, node.Refused.Load(), step.refused, step.what)
		require.Equal(t, step.changed, node.Changed.Load(), step.what)
	}
	again, err := node.Prepare(t.Context(), claim)
	require.NoError(t, err)
	require.Equal(t, prepared, again, "nothing that kubelet sees has changed")
	require.NoError(t, node.Unprepare(t.Context(), claims.Of(claim)))
	known, err := node.Adjust(t.Context(), string(claim.UID), wants("50"))
	require.NoError(t, err)
	require.False(t, known)
}

// Whatever changes of a claim, its label is looked at again.
func TestARefusedCeilingIsToldOnceForAsLongAsItIsAskedFor(t *testing.T) {
	t.Parallel()
	node := newNode(t, t.TempDir())
	claim := fixture.Claim("c", fixture.Result{Request: "gpu", Cores: 30, Memory: "1Gi"}, fixture.Result{Request: "gpu", Card: 1, Cores: 30, Memory: "1Gi"})
	claim.Labels = wants("20")
	refusals := func(labels map[string]string) int {
		for range 2 {
			_, err := node.Adjust(t.Context(), string(claim.UID), labels)
			require.NoError(t, err)
		}
		return int(node.Refusals.Swap(0))
	}
	_, err := node.Prepare(t.Context(), claim)
	require.NoError(t, err)
	require.Equal(t, 1, refusals(claim.Labels))
	require.Equal(t, 1, refusals(wants("10")))
	require.Zero(t, refusals(wants("40")))
	require.Equal(t, 1, refusals(wants("10")), "it was right in between")
	require.Zero(t, refusals(nil))
	require.Equal(t, 1, refusals(wants("10")), "nobody asked in between")
	require.NoError(t, node.Unprepare(t.Context(), claims.Of(claim)))
	claim.Labels = wants("10")
	_, err = node.Prepare(t.Context(), claim)
	require.NoError(t, err)
	require.EqualValues(t, 1, node.Refusals.Load(), "it is prepared anew")
}

func TestAClaimOfWhichNothingIsKnownIsNotAdjusted(t *testing.T) {
	t.Parallel()
	node := newNode(t, t.TempDir())
	for name, content := range map[string]string{
		"damaged":                    "{",
		"interrupted in its removal": recorded(t, small("c"), checkpoint.Unpreparing),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(node.Dir, "state", "claims", string(small("c").UID)+".json"), []byte(content), 0o600))
		known, err := node.Adjust(t.Context(), string(small("c").UID), wants("50"))
		require.NoError(t, err, name)
		require.False(t, known, name)
	}
}

// recorded is the file of a claim's record.
func recorded(t *testing.T, claim *resourceapi.ResourceClaim, phase checkpoint.Phase) string {
	t.Helper()
	data, err := checkpoint.Encode(checkpoint.Record{Claim: claims.Of(claim), Phase: phase, BootID: boot})
	require.NoError(t, err)
	return string(data)
}

func TestACeilingThatWasSetOutlivesRestartsAndReboots(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	node := newNode(t, dir)
	claim := small("c")
	_, err := node.Prepare(t.Context(), claim)
	require.NoError(t, err)
	_, err = node.Adjust(t.Context(), string(claim.UID), wants("40"))
	require.NoError(t, err)
	for name, bootID := range map[string]string{"restarted": boot, "rebooted": "boot-2"} {
		next, err := fixture.NewNode(dir, 2, bootID, durable.Files{})
		require.NoError(t, err, name)
		_, err = next.Restore(t.Context(), string(claim.UID))
		require.NoError(t, err, name)
		require.Equal(t, []card.Percent{40}, ceilings(t, next, claim), name)
	}
}

func TestACeilingThatTheFileMissedIsRestored(t *testing.T) {
	t.Parallel()
	node := newNode(t, t.TempDir())
	claim := small("c")
	_, err := node.Prepare(t.Context(), claim)
	require.NoError(t, err)
	record, _, err := node.Records.Read(string(claim.UID))
	require.NoError(t, err)
	record.BurstCeiling = 40 // and a crash
	_, err = node.Records.Write(record)
	require.NoError(t, err)
	healed, err := node.Restore(t.Context(), string(claim.UID))
	require.NoError(t, err)
	require.True(t, healed)
	require.Equal(t, []card.Percent{40}, ceilings(t, node, claim))
}

func TestAClaimIsPreparedWithTheCeilingOfItsLabel(t *testing.T) {
	t.Parallel()
	node := newNode(t, t.TempDir())
	claim := small("c")
	claim.Labels = wants("25")
	for range 2 {
		_, err := node.Prepare(t.Context(), claim)
		require.NoError(t, err)
		require.Equal(t, []card.Percent{25}, ceilings(t, node, claim))
	}
	claim.Labels = wants("9")
	_, err := node.Prepare(t.Context(), claim)
	require.NoError(t, err, "a label keeps no pod from starting")
	require.Equal(t, []card.Percent{25}, ceilings(t, node, claim))
	require.Contains(t, node.Refused.Load(), "must not be below the guaranteed cores of 10")
	claim.Labels = nil
	_, err = node.Prepare(t.Context(), claim)
	require.NoError(t, err)
	require.Equal(t, []card.Percent{100}, ceilings(t, node, claim))
	wrong := small("wrong")
	wrong.Labels = wants("0")
	_, err = node.Prepare(t.Context(), wrong)
	require.NoError(t, err)
	require.Equal(t, []card.Percent{100}, ceilings(t, node, wrong))
}

func TestAPreparedShareKeepsThePolicyThatTheNodeGaveIt(t *testing.T) {
	t.Parallel()
	node := newNode(t, t.TempDir())
	policy := share.BestEffort
	node.Node.DefaultPolicy = func(share.ID) (claims.Default, error) { return claims.Default{Policy: policy}, nil }
	idle := fixture.Claim("idle", fixture.Result{Request: "gpu", Memory: "1Gi"})
	_, err := node.Prepare(t.Context(), idle)
	require.NoError(t, err)
	policy = share.Fixed // under which a share of no compute is impossible
	_, err = node.Prepare(t.Context(), idle)
	require.NoError(t, err)
	late := small("late")
	_, err = node.Prepare(t.Context(), late)
	require.NoError(t, err)
	for claim, want := range map[*resourceapi.ResourceClaim]share.Policy{idle: share.BestEffort, late: share.Fixed} {
		record, _, err := node.Records.Read(string(claim.UID))
		require.NoError(t, err)
		require.Equal(t, want, record.Shares[0].Policy)
	}
	record, _, err := node.Records.Read(string(late.UID))
	require.NoError(t, err)
	record.Phase = checkpoint.Preparing // nobody has it yet
	_, err = node.Records.Write(record)
	require.NoError(t, err)
	policy = share.NativeBurst
	_, err = node.Prepare(t.Context(), late)
	require.NoError(t, err)
	record, _, err = node.Records.Read(string(late.UID))
	require.NoError(t, err)
	require.Equal(t, share.NativeBurst, record.Shares[0].Policy)
}
