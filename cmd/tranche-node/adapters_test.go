// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tranche-dra/tranche/pkg/checkpoint"
	"github.com/tranche-dra/tranche/pkg/durable"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/tests/fixture"
)

func durableFiles() durable.Files { return durable.Files{} }

type told struct {
	text        []string
	quarantined int
}

func (t *told) Claim(claim share.Claim, reason, message string) {
	t.text = append(t.text, claim.String()+" "+reason+" "+message)
}

func (t *told) Pod(pod types.NamespacedName, _ types.UID, reason, message string) {
	t.text = append(t.text, pod.String()+" "+reason+" "+message)
}
func (t *told) Node(reason, message string) { t.text = append(t.text, reason+" "+message) }
func (t *told) Quarantined()                { t.quarantined++ }

func TestDamageIsToldAndCounted(t *testing.T) {
	t.Parallel()
	var heard told
	reports{&heard, &heard}.RecordDamaged(t.Context(), "uid-1", "/state/damaged/uid-1.json", errors.New("empty"))
	require.Equal(t, []string{"RecordDamaged the record of claim uid-1 cannot be read and was moved to /state/damaged/uid-1.json: empty. " +
		"It is made again from the claim as long as a pod uses it; its containers go on running, and other claims are not affected. Look at the file, then delete it"}, heard.text)
	require.Equal(t, 1, heard.quarantined)
}

func TestARefusedCeilingIsToldToTheClaimsOwner(t *testing.T) {
	t.Parallel()
	var heard told
	reports{&heard, &heard}.CeilingRefused(t.Context(), share.Claim{Namespace: "team", Name: "c"}, errors.New("too low"))
	require.Equal(t, []string{"team/c BurstCeilingRefused too low: the shares keep the ceiling that they have"}, heard.text)
}

func TestAChangedCeilingIsToldToTheClaimsOwner(t *testing.T) {
	t.Parallel()
	var heard told
	to := reports{&heard, &heard}
	claim := share.Claim{Namespace: "team", Name: "c"}
	to.CeilingChanged(t.Context(), claim, 0, 60)
	to.CeilingChanged(t.Context(), claim, 60, 0)
	require.Equal(t, []string{
		"team/c BurstCeilingChanged the burst ceiling of the claim's shares is 60% of the card, and was what their configuration says",
		"team/c BurstCeilingChanged the burst ceiling of the claim's shares is what their configuration says, and was 60% of the card",
	}, heard.text)
}

func TestHeldSharesAreThoseOfAllRecords(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "claims")
	store, err := checkpoint.NewStore(dir, durableFiles())
	require.NoError(t, err)
	for _, uid := range []string{"a", "b"} {
		_, err := store.Write(checkpoint.Record{Claim: share.Claim{UID: uid}, Phase: checkpoint.Prepared, Shares: []share.Share{{Card: "GPU-a"}, {Card: "GPU-b"}}})
		require.NoError(t, err)
	}
	shares, err := heldShares{store}.Shares()
	require.NoError(t, err)
	require.Len(t, shares, 4)
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.WriteFile(dir, nil, 0o600))
	_, err = heldShares{store}.Shares()
	require.Error(t, err)
}

func TestClaimsAreReadByName(t *testing.T) {
	t.Parallel()
	claim := fixture.Claim("c", fixture.Result{Request: "gpu", Memory: "1Gi"})
	reader := claimReader{fake.NewClientset(claim)}
	got, err := reader.GetClaim(t.Context(), types.NamespacedName{Namespace: "team", Name: "c"})
	require.NoError(t, err)
	require.Equal(t, claim.UID, got.UID)
	_, err = reader.GetClaim(t.Context(), types.NamespacedName{Namespace: "team", Name: "d"})
	require.ErrorContains(t, err, "not found")
}
