// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"testing"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/card/nvml"
)

func TestConditionsThatStand(t *testing.T) {
	t.Parallel()
	recovery := func(a gonvml.DeviceGpuRecoveryAction) func(*machine) {
		return func(m *machine) { m.recovery = map[int]gonvml.DeviceGpuRecoveryAction{0: a} }
	}
	for name, tc := range map[string]struct {
		set  func(*machine)
		want []card.Fault
	}{
		"a row that waits to be remapped is no fault": {func(*machine) {}, nil},
		"no spare rows": {
			func(m *machine) { m.remapFailed[0] = true },
			[]card.Fault{{Kind: nvml.FaultRowRemap, Message: "no spare memory rows are left: replace the card"}},
		},
		"uncorrectable errors on an old driver": {
			func(m *machine) { m.uncorrected[0] = 3 },
			[]card.Fault{{Kind: nvml.FaultECC, Message: "uncorrectable memory errors: reset the card"}},
		},
		"uncorrectable errors that the driver has dealt with": {
			func(m *machine) { m.uncorrected[0] = 3; recovery(gonvml.GPU_RECOVERY_ACTION_NONE)(m) }, nil,
		},
		"a reset is needed": {
			recovery(gonvml.GPU_RECOVERY_ACTION_GPU_RESET),
			[]card.Fault{{Kind: nvml.FaultRecovery, Message: "the driver asks for a reset of the card"}},
		},
		"a reboot is needed": {
			recovery(gonvml.GPU_RECOVERY_ACTION_NODE_REBOOT),
			[]card.Fault{{Kind: nvml.FaultRecovery, Message: "the driver asks for a reboot"}},
		},
		"peers must be drained": {
			recovery(gonvml.GPU_RECOVERY_ACTION_DRAIN_P2P),
			[]card.Fault{{Kind: nvml.FaultRecovery, Message: "the driver asks to end work that uses peer cards"}},
		},
		"an action newer than this code": {
			recovery(77), []card.Fault{{Kind: nvml.FaultRecovery, Message: "the driver asks for a recovery action"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, dgxa100.New())
			tc.set(m)
			cards := list(t, m.source(nvml.Options{}))
			require.Equal(t, tc.want, cards[0].Faults)
			require.True(t, cards[1].Healthy())

			m.recovery, m.uncorrected, m.remapFailed = nil, nil, nil
			require.True(t, list(t, m.source(nvml.Options{}))[0].Healthy(), "the fault goes with its cause")
		})
	}
}
