// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dra/tranche/pkg/whatif"
	"github.com/tranche-dra/tranche/tests/kube"
)

// What kubectl tranche simulate says of the cluster as it is, the scheduler then does.
func TestSimulationAgreesWithTheScheduler(t *testing.T) {
	root, err := kube.Repository()
	require.NoError(t, err)
	t.Setenv("PATH", filepath.Join(root, "build/bin")+":"+os.Getenv("PATH"))
	f := newFakes(t, "simulated", 2, 2)
	f.share(t, "filler", "30", "4Gi")
	at := f.place(t, f.sleeper("filler-0", "filler"), f.sleeper("filler-1", "filler"), f.sleeper("filler-2", "filler"))
	fuller, emptier := at[2], at[0]
	if fuller == emptier {
		emptier = at[1]
	}
	require.NotEqual(t, fuller.Pool, emptier.Pool)

	// Small enough that one of the nodes is always the emptier one.
	share := kube.Request("gpu", "share.tranche.dev", 1, kube.Share("20", "2Gi"))
	f.agrees(t, "share", share)
	require.Equal(t, emptier, f.at(t, "share"))

	f.class(t, fuller)
	f.agrees(t, "own-class", kube.Request("gpu", ownClass, 1, kube.Share("10", "2Gi")))
	require.Equal(t, fuller, f.at(t, "own-class"))

	f.taint(t, emptier)
	f.agrees(t, "beside-a-taint", share)
	beside := f.at(t, "beside-a-taint")
	require.Equal(t, emptier.Pool, beside.Pool)
	require.NotEqual(t, emptier.Name, beside.Name)

	tolerant := *share.DeepCopy()
	tolerant.Exactly.Tolerations = []resourceapi.DeviceToleration{{Key: taintKey, Operator: resourceapi.DeviceTolerationOpExists}}
	tolerant.Exactly.Selectors = isCard(t, emptier)
	f.agrees(t, "tolerant", tolerant)
	require.Equal(t, emptier, f.at(t, "tolerant"))

	f.agrees(t, "none", kube.Request("gpu", "card.tranche.dev", 2, nil))

	plain := kube.Sleeper("plain")
	plain.Spec.NodeSelector = map[string]string{fakeLabel: f.name}
	plain.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"tranche.dev/gpu": resource.MustParse("1")}
	f.agreesOn(t, plain)
	require.Equal(t, fuller.Pool, f.at(t, "plain").Pool)

	_, err = kube.Kubectl(t.Context(), "cordon", fuller.Pool)
	require.NoError(t, err)
	f.agrees(t, "cordoned", share)
	require.Equal(t, beside, f.at(t, "cordoned"))
}

const ownClass = "simulated.tranche.dev"

// class of one's own, which selects the card.
func (f fakes) class(t *testing.T, card kube.Device) {
	t.Helper()
	known := client.ResourceV1().DeviceClasses()
	_, err := known.Create(t.Context(), &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: ownClass},
		Spec:       resourceapi.DeviceClassSpec{Selectors: isCard(t, card)},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, known.Delete(context.Background(), ownClass, metav1.DeleteOptions{})) })
}

func isCard(t *testing.T, card kube.Device) []resourceapi.DeviceSelector {
	t.Helper()
	return []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
		Expression: fmt.Sprintf(`device.driver == "gpu.tranche.dev" && device.attributes["gpu.tranche.dev"].uuid == %q`, *asPublished(t, card).Attributes["uuid"].StringValue),
	}}}
}

const taintKey = "e2e.tranche.dev/service"

// taint the card by a rule, as an administrator would.
func (f fakes) taint(t *testing.T, card kube.Device) {
	t.Helper()
	rules, driver := client.ResourceV1().DeviceTaintRules(), kube.Driver
	_, err := rules.Create(t.Context(), &resourceapi.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: f.name},
		Spec: resourceapi.DeviceTaintRuleSpec{
			DeviceSelector: &resourceapi.DeviceTaintSelector{Driver: &driver, Pool: &card.Pool, Device: &card.Name},
			Taint:          resourceapi.DeviceTaint{Key: taintKey, Effect: resourceapi.DeviceTaintEffectNoSchedule},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rules.Delete(context.Background(), f.name, metav1.DeleteOptions{})) })
}

// agrees compares for a pod with the request.
func (f fakes) agrees(t *testing.T, name string, request resourceapi.DeviceRequest) {
	t.Helper()
	template := kube.Template(name, request)
	template.TypeMeta = metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceClaimTemplate"}
	f.template(t, name, request)
	f.agreesOn(t, f.sleeper(name, name), template)
}

// agreesOn simulates the pod on what kubectl prints of the cluster, then creates it
// and compares. It comes with what it uses.
func (f fakes) agreesOn(t *testing.T, pod *corev1.Pod, with ...any) {
	t.Helper()
	name := pod.Name
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	said := f.simulate(t, append(with, pod)...)
	f.create(t, pod)
	if said.Placed == 0 {
		reason, _, _ := strings.Cut(said.Missing, ";")
		require.NotEmpty(t, reason)
		require.Contains(t, f.refused(t, name), strings.ReplaceAll(reason, " % ", " percent "))
		return
	}
	f.ready(t, name)
	card := f.at(t, name)
	require.Equal(t, []whatif.Place{{Node: card.Pool, Card: strconv.FormatInt(*asPublished(t, card).Attributes["index"].IntValue, 10)}}, said.On)
}

// simulate tells what would become of what comes.
func (f fakes) simulate(t *testing.T, comes ...any) whatif.Claim {
	t.Helper()
	dir := t.TempDir()
	cluster, claims := filepath.Join(dir, "cluster.json"), filepath.Join(dir, "claims.json")
	export, err := kube.Kubectl(t.Context(), "get", "nodes,resourceslices,resourceclaims,deviceclasses,devicetaintrules", "-A", "-o", "json")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(cluster, []byte(export), 0o600))
	var asked []byte
	for _, object := range comes {
		text, err := json.Marshal(object)
		require.NoError(t, err)
		asked = append(append(asked, text...), "\n---\n"...)
	}
	require.NoError(t, os.WriteFile(claims, asked, 0o600))
	out, err := kube.Kubectl(t.Context(), "tranche", "simulate", "--cluster", cluster, "--claims", claims, "--policy", "spread/binpack", "-o", "json")
	require.NoError(t, err)
	var report whatif.Report
	require.NoError(t, json.Unmarshal([]byte(out), &report), out)
	require.Empty(t, report.Unknown)
	require.Len(t, report.Policies[0].Claims, 1)
	return report.Policies[0].Claims[0]
}

// asPublished is the card as its node publishes it.
func asPublished(t *testing.T, card kube.Device) resourceapi.Device {
	t.Helper()
	all, err := client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range all.Items {
		for _, device := range all.Items[i].Spec.Devices {
			if all.Items[i].Spec.Driver == kube.Driver && all.Items[i].Spec.Pool.Name == card.Pool && device.Name == card.Name {
				return device
			}
		}
	}
	require.Fail(t, "the card is not published", "%s of %s", card.Name, card.Pool)
	return resourceapi.Device{}
}
