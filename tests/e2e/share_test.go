// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/tests/kube"
)

// consumed checks what the scheduler granted.
func consumed(t *testing.T, result resourceapi.DeviceRequestAllocationResult, cores, memory string) {
	t.Helper()
	for name, want := range kube.Share(cores, memory) {
		got := result.ConsumedCapacity[name]
		require.Zero(t, got.Cmp(resource.MustParse(want)), "%s: %s, not %s", name, got.String(), want)
	}
}

func TestThreePodsShareACardAndTheFourthGoesToTheOther(t *testing.T) {
	n := newTeam(t, "three-and-one")
	for i, cores := range []string{"30", "30", "40"} {
		n.pod(t, fmt.Sprint("p", i), kube.Request("gpu", "share.tranche.dev", 1, kube.Share(cores, "4Gi")))
		n.ready(t, fmt.Sprint("p", i))
	}
	n.pod(t, "p3", kube.Request("gpu", "share.tranche.dev", 1, kube.Share("30", "4Gi")))
	n.ready(t, "p3")
	require.Equal(t, n.card(t, "p0"), n.card(t, "p1"))
	require.Equal(t, n.card(t, "p0"), n.card(t, "p2"))
	require.NotEqual(t, n.card(t, "p0"), n.card(t, "p3"))

	// Each container sees its own share and nobody else's.
	for i, cores := range []int{30, 30, 40, 30} {
		pod := fmt.Sprint("p", i)
		files := n.shareFiles(t, pod, "main")
		require.Len(t, files, 1)
		doc, err := cdi.ParseShareFile([]byte(n.inside(t, pod, "main", "cat /run/tranche/"+files[0]) + "\n"))
		require.NoError(t, err)
		require.EqualValues(t, cores, doc.Limits.Cores)
		require.EqualValues(t, 4096, doc.Limits.Memory)
		require.Equal(t, n.results(t, pod)[0].Device, doc.Device)
		require.Equal(t, string(*n.results(t, pod)[0].ShareID), doc.ShareID)
	}
	for _, write := range []string{"touch share.json", "touch new", "rm share.json"} {
		out := n.inside(t, "p0", "main", "cd /run/tranche/*-* && "+write+" 2>&1; true")
		require.Contains(t, out, "Read-only file system", write)
	}
}

func TestThe17thShareOfACardWaits(t *testing.T) {
	n := newTeam(t, "seventeen")
	// The other card is taken whole, so that there is one card to share.
	n.pod(t, "whole", kube.Request("gpu", "card.tranche.dev", 1, nil))
	n.ready(t, "whole")
	for i := range 16 {
		n.pod(t, fmt.Sprint("p", i), kube.Request("gpu", "besteffort.tranche.dev", 1, kube.Share("1", "256Mi")))
	}
	for i := range 16 {
		n.ready(t, fmt.Sprint("p", i))
	}
	n.pod(t, "p16", kube.Request("gpu", "besteffort.tranche.dev", 1, kube.Share("1", "256Mi")))
	n.waits(t, "p16")
	n.delete(t, "p3")
	n.ready(t, "p16")
}

func TestACardIsFullWhenEitherMemoryOrComputeIs(t *testing.T) {
	for name, tc := range map[string]struct{ filler, more, fits kube.Amounts }{
		"memory-first":  {kube.Share("10", "20Gi"), kube.Share("10", "5Gi"), kube.Share("80", "4Gi")},
		"compute-first": {kube.Share("90", "1Gi"), kube.Share("20", "1Gi"), kube.Share("10", "20Gi")},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTeam(t, name)
			for i := range cards {
				n.pod(t, fmt.Sprint("filler", i), kube.Request("gpu", "share.tranche.dev", 1, tc.filler))
				n.ready(t, fmt.Sprint("filler", i))
			}
			require.NotEqual(t, n.card(t, "filler0"), n.card(t, "filler1"))
			n.pod(t, "more", kube.Request("gpu", "share.tranche.dev", 1, tc.more))
			n.waits(t, "more")
			n.pod(t, "fits", kube.Request("gpu", "share.tranche.dev", 1, tc.fits))
			n.ready(t, "fits")
		})
	}
}

func TestCountTwoGivesTheSameShareOfTwoCards(t *testing.T) {
	n := newTeam(t, "count-two")
	n.pod(t, "p", kube.Request("gpu", "share.tranche.dev", 2, kube.Share("25", "4Gi")))
	n.ready(t, "p")
	results := n.results(t, "p")
	require.Len(t, results, 2)
	require.NotEqual(t, results[0].Device, results[1].Device)
	for _, r := range results {
		consumed(t, r, "25", "4Gi")
	}
	require.Len(t, n.shareFiles(t, "p", "main"), 2)
}

func TestAnEmptyRequestTakesAWholeCardAndNobodyJoins(t *testing.T) {
	n := newTeam(t, "whole")
	for i := range cards {
		n.pod(t, fmt.Sprint("whole", i), kube.Request("gpu", "card.tranche.dev", 1, nil))
		n.ready(t, fmt.Sprint("whole", i))
		consumed(t, n.results(t, fmt.Sprint("whole", i))[0], "100", "24Gi")
	}
	n.pod(t, "joins", kube.Request("gpu", "besteffort.tranche.dev", 1, kube.Share("0", "256Mi")))
	n.waits(t, "joins")
	n.pod(t, "third", kube.Request("gpu", "card.tranche.dev", 1, nil))
	n.waits(t, "third")
	n.delete(t, "whole0")
	n.ready(t, "joins")
	n.waits(t, "third")
}

// twice makes the pod with a second container, which uses the same claim.
func (n team) twice(t *testing.T, pod *corev1.Pod, request resourceapi.DeviceRequest) *corev1.Pod {
	t.Helper()
	n.template(t, "gpu", request)
	kube.Use(pod, 0, "gpu", "gpu")
	second := pod.Spec.Containers[0].DeepCopy()
	second.Name = "second"
	pod.Spec.Containers = append(pod.Spec.Containers, *second)
	return n.create(t, pod)
}

func TestTwoContainersOnOneClaimSeeTheSameShare(t *testing.T) {
	n := newTeam(t, "one-claim")
	n.twice(t, kube.Sleeper("p"), kube.Request("gpu", "share.tranche.dev", 1, kube.Share("30", "4Gi")))
	n.ready(t, "p")
	require.Len(t, n.results(t, "p"), 1)
	require.Equal(t, n.shareFiles(t, "p", "main"), n.shareFiles(t, "p", "second"))
}

func TestTwoClaimsInOneContainerAreTwoShares(t *testing.T) {
	n := newTeam(t, "two-claims")
	n.template(t, "a", kube.Request("gpu", "share.tranche.dev", 1, kube.Share("30", "4Gi")))
	n.template(t, "b", kube.Request("gpu", "fixed.tranche.dev", 1, kube.Share("20", "2Gi")))
	pod := kube.Sleeper("p")
	kube.Use(pod, 0, "a", "a")
	kube.Use(pod, 0, "b", "b")
	n.create(t, pod)
	n.ready(t, "p")
	require.Len(t, n.shareFiles(t, "p", "main"), 2)
	policies := n.inside(t, "p", "main", "cat /run/tranche/*/share.json")
	require.Contains(t, policies, `"policy": "fixed-share"`)
	require.Contains(t, policies, `"policy": "guaranteed-burst-share"`)
}

func TestTwoPodsShareOneClaim(t *testing.T) {
	n := newTeam(t, "shared-claim")
	n.claim(t, "shared", kube.Request("gpu", "share.tranche.dev", 1, kube.Share("30", "4Gi")))
	shared := "shared"
	for _, name := range []string{"a", "b"} {
		pod := kube.Sleeper(name)
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &shared}}
		pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
		n.create(t, pod)
	}
	n.ready(t, "a", "b")
	require.Equal(t, n.shareFiles(t, "a", "main"), n.shareFiles(t, "b", "main"))
	n.delete(t, "a")
	require.Len(t, n.shareFiles(t, "b", "main"), 1, "the other pod keeps the share")
	require.NotEmpty(t, left(t))
}

func TestTheSameCardTwiceInOneClaim(t *testing.T) {
	n := newTeam(t, "same-card")
	n.template(t, "gpu",
		kube.Request("a", "share.tranche.dev", 1, kube.Share("30", "4Gi")),
		kube.Request("b", "offline.tranche.dev", 1, kube.Amounts{"cores": "0", "offlineCores": "40", "memory": "2Gi"}))
	pod := kube.Sleeper("p")
	kube.Use(pod, 0, "gpu", "gpu")
	n.create(t, pod)
	n.ready(t, "p")
	results := n.results(t, "p")
	require.Len(t, results, 2)
	require.Equal(t, results[0].Device, results[1].Device)
	require.NotEqual(t, results[0].ShareID, results[1].ShareID)
	require.Len(t, n.shareFiles(t, "p", "main"), 2)
	require.Contains(t, n.inside(t, "p", "main", "cat /run/tranche/*/share.json"), `"class": "offline"`)
}

func TestAPlainPodWithALimitGetsAWholeCard(t *testing.T) {
	n := newTeam(t, "plain")
	pod := kube.Sleeper("p")
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"tranche.dev/gpu": resource.MustParse("1")}
	n.create(t, pod)
	n.ready(t, "p")
	results := n.results(t, "p")
	require.Len(t, results, 1)
	consumed(t, results[0], "100", "24Gi")
	require.Contains(t, n.inside(t, "p", "main", "cat /run/tranche/*/share.json"), `"whole": true`)
}

func TestAFinishedPodGivesItsShareBack(t *testing.T) {
	n := newTeam(t, "finished")
	n.template(t, "big", kube.Request("gpu", "share.tranche.dev", 2, kube.Share("100", "20Gi")))
	job := kube.Sleeper("job")
	kube.Use(job, 0, "gpu", "big")
	job.Spec.RestartPolicy = corev1.RestartPolicyNever
	job.Spec.Containers[0].Command = []string{"/bin/busybox", "sh", "-c", "until test -e /tmp/end; do sleep 0.1; done"}
	job.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}}
	job.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	n.create(t, job)
	n.ready(t, "job")
	next := kube.Sleeper("next")
	kube.Use(next, 0, "gpu", "big")
	n.create(t, next)
	n.waits(t, "next")
	n.inside(t, "job", "main", "touch /tmp/end")
	n.ready(t, "next")
	done, err := client.CoreV1().Pods(n.name).Get(t.Context(), "job", metav1.GetOptions{})
	require.NoError(t, err, "the finished pod is still there")
	require.Equal(t, corev1.PodSucceeded, done.Status.Phase)
}

// The longest names that kubelet itself can run: it makes a directory of
// namespace, name and UID, which must stay below 255 bytes.
func TestLongNames(t *testing.T) {
	label := strings.Repeat("a123456789", 6) + "abc"
	n := newTeam(t, label)
	n.pod(t, label, kube.Request(label, "share.tranche.dev", 1, kube.Share("30", "4Gi")))
	pod := kube.Sleeper("")
	pod.GenerateName = strings.Repeat("b123456789", 14) + "-"
	kube.Use(pod, 0, "gpu", label)
	generated := n.create(t, pod).Name
	n.ready(t, label, generated)
	require.Len(t, n.shareFiles(t, label, "main"), 1)
	require.Len(t, n.shareFiles(t, generated, "main"), 1)
}
