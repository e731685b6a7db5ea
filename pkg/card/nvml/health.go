// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"encoding/binary"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dra/tranche/pkg/card"
)

// Kinds of faults.
const (
	// FaultLost is a card that cannot be reached any more.
	FaultLost = "GpuLost"
	// FaultNotAnswering is a card that refuses to be queried.
	FaultNotAnswering = "NotAnswering"
	// FaultXID is a hardware error that the driver reported as an event.
	FaultXID = "XidError"
	// FaultECC is memory that failed beyond correction since the driver was loaded.
	FaultECC = "EccError"
	// FaultRowRemap is memory that failed and has no spare rows left.
	FaultRowRemap = "RowRemapFailed"
	// FaultRecovery is a card for which the driver asks for a reset or more.
	FaultRecovery = "RecoveryNeeded"
)

// health is what queries tell about a card at present. Messages never carry
// counters: each new message is a write to the API server.
type health struct {
	faults []card.Fault
	// told is set where the driver itself says whether the card is usable.
	told bool
}

// unanswered is the health of a card that gave ret instead of an answer.
func unanswered(ret gonvml.Return) health {
	f := card.Fault{Kind: FaultNotAnswering, Message: "NVML: " + ret.Error()}
	if ret == gonvml.ERROR_GPU_IS_LOST {
		f.Kind, f.Evict = FaultLost, true
	}
	return health{faults: []card.Fault{f}}
}

// healthOf asks for all conditions that stand until the card is reset. A row
// that waits to be remapped is none: new work may be started beside it.
func healthOf(q *query, device gonvml.Device) health {
	h := health{}
	action, told := recoveryAction(q, device)
	h.told = told
	if action != gonvml.GPU_RECOVERY_ACTION_NONE {
		h.faults = append(h.faults, card.Fault{Kind: FaultRecovery, Message: recoveryMessage(action)})
	}
	failed, _ := ask(q, "nvmlDeviceGetRemappedRows", func() (bool, gonvml.Return) {
		_, _, _, failed, ret := device.GetRemappedRows()
		return failed, ret
	})
	if failed {
		h.faults = append(h.faults, card.Fault{Kind: FaultRowRemap, Message: "no spare memory rows are left: replace the card"})
	}
	if told {
		// The counter says that something was wrong, the driver whether it is.
		return h
	}
	uncorrected, _ := ask(q, "nvmlDeviceGetTotalEccErrors", func() (uint64, gonvml.Return) {
		return device.GetTotalEccErrors(gonvml.MEMORY_ERROR_TYPE_UNCORRECTED, gonvml.VOLATILE_ECC)
	})
	if uncorrected > 0 {
		h.faults = append(h.faults, card.Fault{Kind: FaultECC, Message: "uncorrectable memory errors: reset the card"})
	}
	return h
}

// recoveryAction is what newer drivers say must be done, and whether they do.
func recoveryAction(q *query, device gonvml.Device) (gonvml.DeviceGpuRecoveryAction, bool) {
	values := []gonvml.FieldValue{{FieldId: gonvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	_, ok := ask(q, "nvmlDeviceGetFieldValues", func() (struct{}, gonvml.Return) {
		return struct{}{}, device.GetFieldValues(values)
	})
	if !ok || gonvml.Return(values[0].NvmlReturn) != gonvml.SUCCESS { //nolint:gosec // NVML's own number
		return gonvml.GPU_RECOVERY_ACTION_NONE, false
	}
	// The value is a number of at most 4 bytes on a little-endian machine.
	return gonvml.DeviceGpuRecoveryAction(binary.LittleEndian.Uint32(values[0].Value[:4])), true //nolint:gosec // an enumeration
}

func recoveryMessage(action gonvml.DeviceGpuRecoveryAction) string {
	switch action {
	case gonvml.GPU_RECOVERY_ACTION_GPU_RESET, gonvml.GPU_RECOVERY_ACTION_DRAIN_AND_RESET, gonvml.GPU_RECOVERY_ACTION_BUS_RESET:
		return "the driver asks for a reset of the card"
	case gonvml.GPU_RECOVERY_ACTION_NODE_REBOOT, gonvml.GPU_RECOVERY_ACTION_SYSTEM_REBOOT:
		return "the driver asks for a reboot"
	case gonvml.GPU_RECOVERY_ACTION_DRAIN_P2P:
		return "the driver asks to end work that uses peer cards"
	default:
		return "the driver asks for a recovery action"
	}
}
