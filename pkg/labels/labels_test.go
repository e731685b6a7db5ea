// SPDX-License-Identifier: Apache-2.0

package labels_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/checkpoint"
	"github.com/tranche-dra/tranche/pkg/claims"
	"github.com/tranche-dra/tranche/pkg/labels"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/tests/fixture"
)

const patient = 30 * time.Second // a bound for tests that would hang, never a measure

var errAway = errors.New("connection refused")

// node prepares nothing and remembers what it is asked.
type node struct {
	mu       sync.Mutex
	ceilings map[string]string // of the claims that are prepared here
	fails    int
}

func (n *node) Adjust(_ context.Context, uid string, says map[string]string) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, here := n.ceilings[uid]; !here {
		return false, nil
	}
	if n.fails > 0 {
		n.fails--
		return true, errors.New("no space left on device")
	}
	n.ceilings[uid] = says[v1alpha1.LabelBurstCeiling]
	return true, nil
}

func (n *node) List() (checkpoint.Listing, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out checkpoint.Listing
	for uid, ceiling := range n.ceilings {
		record := checkpoint.Record{Claim: share.Claim{UID: uid}}
		if ceiling != "" {
			record.BurstCeiling = card.WholeCompute
		}
		out.Records = append(out.Records, record)
	}
	return out, nil
}

func (n *node) prepare(uid, ceiling string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ceilings[uid] = ceiling
}

func (n *node) has() map[string]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.ceilings)
}

func (n *node) eventually(t *testing.T, want map[string]string) {
	t.Helper()
	require.Eventually(t, func() bool { return maps.Equal(want, n.has()) }, patient, 5*time.Millisecond, "%v never became %v", n.has(), want)
}

// run runs until the test ends.
func run(t *testing.T, do func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		do(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

func ceiling(percent string) map[string]string {
	return map[string]string{"app": "x", v1alpha1.LabelBurstCeiling: percent}
}

func TestCeilingsFollowTheirLabels(t *testing.T) {
	t.Parallel()
	here := &node{ceilings: map[string]string{"set": "", "unset": "90", "kept": "70", "never": ""}}
	claims := &fixture.Objects{}
	claims.Set("set", "set", ceiling("60"))
	claims.Set("elsewhere", "elsewhere", ceiling("50"))
	claims.Set("kept", "kept", ceiling("70"))
	claims.Set("unset", "unset", nil) // while nobody looked
	claims.Set("never", "never", map[string]string{"app": "y"})
	run(t, labels.NewCeilings(claims, here, here).Run)
	here.eventually(t, map[string]string{"set": "60", "unset": "", "kept": "70", "never": ""})
	claims.Set("set", "set", ceiling("80"))
	claims.Set("never", "never", ceiling("40"))
	here.eventually(t, map[string]string{"set": "80", "unset": "", "kept": "70", "never": "40"})
	claims.Set("set", "set", map[string]string{"app": "x"})
	claims.Delete("kept")
	here.eventually(t, map[string]string{"set": "", "unset": "", "kept": "", "never": "40"})
	require.Equal(t, 1, claims.Lists())
}

func TestAClaimThatIsPreparedWhileItsLabelChanges(t *testing.T) {
	t.Parallel()
	here := &node{ceilings: map[string]string{}}
	claims := &fixture.Objects{}
	claims.Set("late", "late", nil)
	run(t, labels.NewCeilings(claims, here, here).Run)
	require.Eventually(t, func() bool { return claims.Watchers() == 1 }, patient, time.Millisecond)
	claims.Set("late", "late", ceiling("60"))
	claims.Set("late", "late", ceiling("70"))
	here.prepare("late", "") // from the claim as it was before
	here.eventually(t, map[string]string{"late": "70"})
}

func TestADiskThatIsFullForAMoment(t *testing.T) {
	t.Parallel()
	here := &node{ceilings: map[string]string{"a": ""}, fails: 2}
	claims := &fixture.Objects{}
	claims.Set("a", "a", ceiling("60"))
	run(t, labels.NewCeilings(claims, here, here).Run)
	here.eventually(t, map[string]string{"a": "60"})
}

func TestAnAPIServerThatIsAwayAndForgets(t *testing.T) {
	t.Parallel()
	here := &node{ceilings: map[string]string{"a": "", "b": "50"}}
	claims := &fixture.Objects{}
	claims.Fail(errAway)
	run(t, labels.NewCeilings(claims, here, here).Run)
	claims.Set("a", "a", ceiling("60"))
	claims.Set("b", "b", ceiling("50"))
	claims.Fail(nil)
	here.eventually(t, map[string]string{"a": "60", "b": "50"})
	claims.Fail(errAway)
	claims.Set("a", "a", ceiling("70"))
	claims.Fail(nil)
	here.eventually(t, map[string]string{"a": "70", "b": "50"})
	require.Equal(t, 1, claims.Lists(), "it goes on from where it was")
	claims.Fail(errAway)
	claims.Set("b", "b", nil)
	claims.Forget()
	claims.Fail(nil)
	here.eventually(t, map[string]string{"a": "70", "b": ""})
	require.Equal(t, 2, claims.Lists())
}

// events are what the administrator is told.
type events struct {
	mu   sync.Mutex
	text []string
}

func (e *events) Node(reason, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.text = append(e.text, reason+" "+message)
}

func (e *events) told() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.text)
}

func policyOf(value string) map[string]string {
	return map[string]string{v1alpha1.LabelDefaultPolicy: value}
}

func built() labels.Configured {
	return labels.Configured{Policy: share.GuaranteedBurst, By: "built in"}
}

func becomes(t *testing.T, d *labels.DefaultPolicy, want share.Policy) {
	t.Helper()
	var got claims.Default
	require.Eventually(t, func() bool {
		got, _ = d.Policy(share.ID{})
		return got.Policy == want
	}, patient, 5*time.Millisecond, "%q never became %q", got, want)
}

func TestTheDefaultPolicyFollowsTheNodesLabel(t *testing.T) {
	t.Parallel()
	nodes, heard := &fixture.Objects{}, &events{}
	d := labels.NewDefaultPolicy(nodes, "node1", built(), heard)
	_, err := d.Policy(share.ID{})
	require.ErrorIs(t, err, claims.ErrDefaultUnknown)
	require.ErrorContains(t, err, "the labels of node node1 have not been read")
	nodes.Set("n", "node1", policyOf("fixed-share"))
	run(t, d.Run)
	becomes(t, d, share.Fixed)
	nodes.Set("n", "node1", policyOf("native-burst-share"))
	becomes(t, d, share.NativeBurst)
	nodes.Set("n", "node1", policyOf("fair"))
	becomes(t, d, share.GuaranteedBurst)
	nodes.Set("n", "node1", policyOf("best-effort"))
	becomes(t, d, share.BestEffort)
	nodes.Delete("n")
	nodes.Set("n2", "node1", nil)
	becomes(t, d, share.GuaranteedBurst)
	told := heard.told()
	require.Len(t, told, 4)
	require.Equal(t, "DefaultPolicyChanged shares that name no policy get native-burst-share (the node's label tranche.dev/default-policy)", told[0])
	require.Contains(t, told[1], `DefaultPolicyRefused metadata.labels[tranche.dev/default-policy]: Unsupported value: "fair"`)
	require.Contains(t, told[1], "shares that name no policy get guaranteed-burst-share (built in)")
	require.Equal(t, "DefaultPolicyChanged shares that name no policy get best-effort (the node's label tranche.dev/default-policy)", told[2])
	require.Equal(t, "DefaultPolicyChanged shares that name no policy get guaranteed-burst-share (built in)", told[3])
}

func TestALabelThatIsTakenAwayIsMended(t *testing.T) {
	t.Parallel()
	nodes, heard := &fixture.Objects{}, &events{}
	nodes.Set("n", "node1", policyOf("fair"))
	d := labels.NewDefaultPolicy(nodes, "node1", built(), heard)
	run(t, d.Run)
	becomes(t, d, share.GuaranteedBurst)
	nodes.Set("n", "node1", nil)
	require.Eventually(t, func() bool { return len(heard.told()) == 2 }, patient, time.Millisecond)
	require.Equal(t, "DefaultPolicyChanged shares that name no policy get guaranteed-burst-share (built in)", heard.told()[1])
}

func TestANodeWithoutLabelsHasWhatIsConfigured(t *testing.T) {
	t.Parallel()
	for name, nodes := range map[string]*fixture.Objects{"registered": {}, "not registered": {}} {
		if name == "registered" {
			nodes.Set("n", "node1", nil)
		}
		d := labels.NewDefaultPolicy(nodes, "node1", built(), &events{})
		run(t, d.Run)
		becomes(t, d, share.GuaranteedBurst)
	}
}

func TestWhoMayNotReadNodesHasWhatIsConfigured(t *testing.T) {
	t.Parallel()
	nodes, heard := &fixture.Objects{}, &events{}
	nodes.Fail(apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no rule")))
	d := labels.NewDefaultPolicy(nodes, "node1", built(), heard)
	run(t, d.Run)
	becomes(t, d, share.GuaranteedBurst)
	require.Eventually(t, func() bool { return len(heard.told()) == 1 }, patient, time.Millisecond)
	require.True(t, strings.HasPrefix(heard.told()[0], "NodeLabelsUnreadable "), heard.told()[0])
	nodes.Fail(nil)
	nodes.Set("n", "node1", policyOf("fixed-share"))
	becomes(t, d, share.Fixed)
	require.Len(t, heard.told(), 2)
	require.Equal(t, "DefaultPolicyChanged shares that name no policy get fixed-share (the node's label tranche.dev/default-policy)", heard.told()[1])
}

func TestAnAPIServerThatIsAwayChangesNoPolicy(t *testing.T) {
	t.Parallel()
	nodes := &fixture.Objects{}
	nodes.Set("n", "node1", policyOf("fixed-share"))
	d := labels.NewDefaultPolicy(nodes, "node1", built(), &events{})
	run(t, d.Run)
	becomes(t, d, share.Fixed)
	nodes.Fail(errAway)
	nodes.Forget()
	policy, err := d.Policy(share.ID{})
	require.NoError(t, err)
	require.Equal(t, claims.Default{Policy: share.Fixed, Why: "the node's label tranche.dev/default-policy"}, policy)
	nodes.Set("n", "node1", policyOf("best-effort"))
	nodes.Fail(nil)
	becomes(t, d, share.BestEffort)
}

func ExampleChoose() {
	configured := labels.Configured{Policy: share.GuaranteedBurst, By: "flag --default-policy"}
	choice, err := labels.Choose(map[string]string{v1alpha1.LabelDefaultPolicy: "fixed-share"}, configured)
	fmt.Println(choice.Policy, "by", choice.Why, err)
	choice, err = labels.Choose(nil, configured)
	fmt.Println(choice.Policy, "by", choice.Why, err)
	// Output:
	// fixed-share by the node's label tranche.dev/default-policy <nil>
	// guaranteed-burst-share by flag --default-policy <nil>
}
