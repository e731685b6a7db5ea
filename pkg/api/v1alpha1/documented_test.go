// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dra/tranche/deviceclasses"
	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
)

func documentation(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "deviceclasses", "README.md"))
	require.NoError(t, err)
	return string(raw)
}

// The claim that administrators copy from is a claim, and its ShareConfig is one
// that a node accepts.
func TestTheDocumentedShareConfigIsAccepted(t *testing.T) {
	t.Parallel()
	var documented []string
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(documentation(t), -1) {
		if strings.Contains(block[1], "kind: "+v1alpha1.KindShareConfig) {
			documented = append(documented, block[1])
		}
	}
	require.Len(t, documented, 1)
	var claim resourceapi.ResourceClaim
	require.NoError(t, yaml.UnmarshalStrict([]byte(documented[0]), &claim))
	require.Len(t, claim.Spec.Devices.Config, 1)
	require.Len(t, claim.Spec.Devices.Requests, 1)
	require.Equal(t, []string{claim.Spec.Devices.Requests[0].Name}, claim.Spec.Devices.Config[0].Requests)

	config, err := v1alpha1.Decode(claim.Spec.Devices.Config[0].Opaque.Parameters.Raw)
	require.NoError(t, err)
	require.NotNil(t, config.Policy)
	require.NotNil(t, config.Class)
	require.NotNil(t, config.Burst.Ceiling, "every field is shown")
	cores := claim.Spec.Devices.Requests[0].Exactly.Capacity.Requests["cores"]
	require.Empty(t, config.ValidateMerged(share.Limits{Cores: card.Percent(cores.Value()), Memory: 4096}, nil))
	for _, p := range share.Policies() {
		require.Contains(t, documented[0], string(p))
	}
	for _, c := range share.Classes() {
		require.Contains(t, documented[0], string(c))
	}
}

func TestTheDocumentedShareStatusHasEveryField(t *testing.T) {
	t.Parallel()
	blocks := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(documentation(t), -1)
	require.Len(t, blocks, 1)
	status := v1alpha1.NewShareStatus()
	require.NoError(t, yaml.UnmarshalStrict([]byte(blocks[0][1]), status))
	again, err := json.Marshal(status)
	require.NoError(t, err)
	require.JSONEq(t, blocks[0][1], string(again))
	require.Equal(t, v1alpha1.KindShareStatus, status.Kind)
	require.InDelta(t, status.WantedSeconds, status.ThrottledSeconds+status.WantedSeconds*status.AchievedPercent/100, 0.1, "it adds up")
	for f := range reflect.TypeFor[v1alpha1.ShareStatus]().Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" { // which is that of TypeMeta
			require.Contains(t, blocks[0][1], `"`+name+`"`)
		}
	}
}

func TestEveryClassIsDocumentedWithItsPolicy(t *testing.T) {
	t.Parallel()
	classes, err := deviceclasses.All()
	require.NoError(t, err)
	for _, class := range classes {
		_, row, found := strings.Cut(documentation(t), "| `"+class.Name+"` | ")
		require.True(t, found, class.Name)
		cell, _, _ := strings.Cut(row, " | ")
		config := v1alpha1.NewShareConfig()
		for _, c := range class.Spec.Config {
			layer, err := v1alpha1.Decode(c.Opaque.Parameters.Raw)
			require.NoError(t, err)
			config = v1alpha1.Merge(config, layer)
		}
		switch {
		case config.Policy != nil:
			require.Equal(t, "`"+string(*config.Policy)+"`", cell, class.Name)
		case config.Class != nil:
			require.Equal(t, "the node's default, class `"+string(*config.Class)+"`", cell, class.Name)
		}
	}
	require.Contains(t, documentation(t), "the node's default (`"+string(v1alpha1.DefaultPolicy)+"` unless set)")
}
