// SPDX-License-Identifier: Apache-2.0

package podresources_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tranche-dra/tranche/pkg/podresources"
)

func TestAnswersMayBeLargeButNotWithoutBound(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for name, tc := range map[string]struct {
		bytes  int
		answer codes.Code
	}{
		"more than gRPC takes by default": {5 * mib, codes.OK},
		"nearly the most that is read":    {15 * mib, codes.OK},
		"more than that is refused":       {17 * mib, codes.ResourceExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			large := strings.Repeat("x", tc.bytes)
			client := podresources.New(serve(t, &kubelet{
				allocatable: &podresourcesv1.AllocatableResourcesResponse{Devices: []*podresourcesv1.ContainerDevices{{ResourceName: "r", DeviceIds: []string{large}}}},
				pods: &podresourcesv1.ListPodResourcesResponse{PodResources: []*podresourcesv1.PodResources{{
					Name: large, Containers: []*podresourcesv1.ContainerResources{{DynamicResources: []*podresourcesv1.DynamicResource{dynamic("team", "a")}}},
				}}},
			}))
			devices, err := client.Allocatable(t.Context())
			require.Equal(t, tc.answer, status.Code(err), "%v", err)
			require.Equal(t, tc.answer == codes.OK, len(devices) == 1)
			claims, err := client.ClaimsInUse(t.Context())
			require.Equal(t, tc.answer, status.Code(err), "%v", err)
			require.Equal(t, tc.answer == codes.OK, len(claims) == 1)
		})
	}
}
