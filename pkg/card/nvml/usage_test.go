// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"context"
	"testing"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/card/nvml"
)

const firstUUID card.UUID = "GPU-8f3c2a10-5b7e-4c21-9d0a-000000000000"

// answers are what a card says of its processes.
type answers struct {
	computing, drawing       []gonvml.ProcessInfo
	computingRet, drawingRet gonvml.Return
}

// asked is a machine whose first card gives these answers.
func asked(t *testing.T, a answers) *machine {
	t.Helper()
	m := newMachine(t, dgxa100.New())
	d := m.device(0)
	d.GetComputeRunningProcessesFunc = func() ([]gonvml.ProcessInfo, gonvml.Return) { return a.computing, a.computingRet }
	d.GetGraphicsRunningProcessesFunc = func() ([]gonvml.ProcessInfo, gonvml.Return) { return a.drawing, a.drawingRet }
	m.DeviceGetHandleByUUIDFunc = func(uuid string) (gonvml.Device, gonvml.Return) {
		if uuid != d.UUID {
			return nil, gonvml.ERROR_NOT_FOUND
		}
		return d, gonvml.SUCCESS
	}
	return m
}

func TestWhatProcessesHold(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answers
		want []card.ProcessMemory
	}{
		"nobody uses the card": {answers{}, []card.ProcessMemory{}},
		"some compute, some draw, and one does both": {
			answers{
				computing: []gonvml.ProcessInfo{{Pid: 30, UsedGpuMemory: 3}, {Pid: 10, UsedGpuMemory: 1}},
				drawing:   []gonvml.ProcessInfo{{Pid: 20, UsedGpuMemory: 2}, {Pid: 10, UsedGpuMemory: 1}},
			},
			[]card.ProcessMemory{{PID: 10, Bytes: 1}, {PID: 20, Bytes: 2}, {PID: 30, Bytes: 3}},
		},
		"a card that cannot draw": {
			answers{computing: []gonvml.ProcessInfo{{Pid: 30, UsedGpuMemory: 3}}, drawingRet: gonvml.ERROR_NOT_SUPPORTED},
			[]card.ProcessMemory{{PID: 30, Bytes: 3}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := asked(t, tc.answers).source(nvml.Options{}).Processes(t.Context(), firstUUID)
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
}

func TestACardThatDoesNotTell(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answers
		card card.UUID
		says string
	}{
		"a card that is not there":    {answers{}, "GPU-none", "find card: NVML does not answer"},
		"a card that is lost":         {answers{computingRet: gonvml.ERROR_GPU_IS_LOST}, firstUUID, "list processes: NVML does not answer"},
		"a card that is lost between": {answers{drawingRet: gonvml.ERROR_GPU_IS_LOST}, firstUUID, "list processes with graphics: NVML does not answer"},
		"a driver that does not know": {
			answers{computing: []gonvml.ProcessInfo{{Pid: 7, UsedGpuMemory: ^uint64(0)}}}, firstUUID, "the driver does not say what process 7 holds",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := asked(t, tc.answers)
			s := m.source(nvml.Options{})
			_, err := s.Processes(t.Context(), tc.card)
			require.ErrorIs(t, err, nvml.ErrUnavailable)
			require.ErrorContains(t, err, tc.says)
			require.ErrorContains(t, err, string(tc.card))
			require.Equal(t, 1, m.shutdowns, "NVML is started anew the next time")
		})
	}
}

func TestWhatIsHeldForNoProcess(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	for name, tc := range map[string]struct {
		before, after []gonvml.ProcessInfo
		used          uint64
		old           bool
		want          uint64
	}{
		"all is held by processes":                 {[]gonvml.ProcessInfo{{Pid: 1, UsedGpuMemory: gib}}, []gonvml.ProcessInfo{{Pid: 1, UsedGpuMemory: gib}}, gib, false, 0},
		"some is not":                              {[]gonvml.ProcessInfo{{Pid: 1, UsedGpuMemory: gib}}, []gonvml.ProcessInfo{{Pid: 1, UsedGpuMemory: gib}}, 3 * gib, false, 2 * gib},
		"the driver does not say what it reserves": {nil, nil, gib, true, gib},
		"a process takes more in the meantime":     {[]gonvml.ProcessInfo{{Pid: 1, UsedGpuMemory: gib}}, []gonvml.ProcessInfo{{Pid: 1, UsedGpuMemory: 2 * gib}}, 2 * gib, false, gib},
		"a process ends in the meantime":           {[]gonvml.ProcessInfo{{Pid: 1, UsedGpuMemory: gib}}, nil, 2 * gib, false, 2 * gib},
		"a process comes in the meantime":          {nil, []gonvml.ProcessInfo{{Pid: 1, UsedGpuMemory: gib}}, 2 * gib, false, 2 * gib},
		"processes hold more than is used":         {[]gonvml.ProcessInfo{{Pid: 1, UsedGpuMemory: gib}}, []gonvml.ProcessInfo{{Pid: 1, UsedGpuMemory: gib}}, 0, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := asked(t, answers{})
			lists := [][]gonvml.ProcessInfo{tc.before, tc.after}
			m.device(0).GetComputeRunningProcessesFunc = func() ([]gonvml.ProcessInfo, gonvml.Return) {
				next := lists[0]
				lists = lists[1:]
				return next, gonvml.SUCCESS
			}
			m.device(0).GetMemoryInfo_v2Func = func() (gonvml.Memory_v2, gonvml.Return) {
				return gonvml.Memory_v2{Used: tc.used, Reserved: gib}, gonvml.SUCCESS
			}
			m.device(0).GetMemoryInfoFunc = func() (gonvml.Memory, gonvml.Return) { return gonvml.Memory{Used: tc.used}, gonvml.SUCCESS }
			m.missing["nvmlDeviceGetMemoryInfo_v2"] = tc.old
			got, exact, err := m.source(nvml.Options{}).Kept(t.Context(), firstUUID)
			require.NoError(t, err)
			require.False(t, exact)
			require.Equal(t, tc.want, got)
		})
	}
	lost := asked(t, answers{computingRet: gonvml.ERROR_GPU_IS_LOST})
	_, _, err := lost.source(nvml.Options{}).Kept(t.Context(), firstUUID)
	require.ErrorIs(t, err, nvml.ErrUnavailable)
}

func TestAMachineWithoutADriverTellsNothing(t *testing.T) {
	t.Parallel()
	m := asked(t, answers{})
	m.init = gonvml.ERROR_LIBRARY_NOT_FOUND
	_, err := m.source(nvml.Options{}).Processes(t.Context(), firstUUID)
	require.ErrorContains(t, err, "no NVIDIA driver")
}

func TestProcessesAreNotReadForWhoHasGone(t *testing.T) {
	t.Parallel()
	m := asked(t, answers{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := m.source(nvml.Options{}).Processes(ctx, firstUUID)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, m.inits)
}

func TestWhatProcessesCompute(t *testing.T) {
	t.Parallel()
	var samples []gonvml.ProcessUtilizationSample
	var ret gonvml.Return
	var asked uint64
	m := newMachine(t, dgxa100.New())
	d := m.device(0)
	d.GetProcessUtilizationFunc = func(since uint64) ([]gonvml.ProcessUtilizationSample, gonvml.Return) {
		asked = since
		return samples, ret
	}
	m.DeviceGetHandleByUUIDFunc = func(string) (gonvml.Device, gonvml.Return) { return d, gonvml.SUCCESS }
	s := m.source(nvml.Options{})
	for _, step := range []struct {
		name    string
		samples []gonvml.ProcessUtilizationSample
		ret     gonvml.Return
		since   uint64
		want    []card.ProcessCompute
	}{
		{"the first call", []gonvml.ProcessUtilizationSample{{Pid: 7, TimeStamp: 100, SmUtil: 50}}, gonvml.SUCCESS, 0, nil},
		{"nothing new", []gonvml.ProcessUtilizationSample{{Pid: 7, TimeStamp: 100, SmUtil: 50}}, gonvml.SUCCESS, 100, nil},
		{
			"two that compute, and one that does not",
			[]gonvml.ProcessUtilizationSample{{Pid: 7, TimeStamp: 200, SmUtil: 50}, {Pid: 3, TimeStamp: 210, SmUtil: 25}, {Pid: 4, TimeStamp: 210}},
			gonvml.SUCCESS, 100,
			[]card.ProcessCompute{{PID: 3, Part: 0.25}, {PID: 7, Part: 0.5}},
		},
		{"nobody since", nil, gonvml.ERROR_NOT_FOUND, 210, nil},
		{"nobody, as another driver says it", []gonvml.ProcessUtilizationSample{}, gonvml.ERROR_INSUFFICIENT_SIZE, 210, nil},
	} {
		samples, ret = step.samples, step.ret
		got, err := s.Computed(t.Context(), firstUUID)
		require.NoError(t, err, step.name)
		require.Equal(t, step.want, got, step.name)
		require.Equal(t, step.since, asked, step.name)
	}
	ret = gonvml.ERROR_NOT_SUPPORTED
	_, err := s.Computed(t.Context(), firstUUID)
	require.ErrorIs(t, err, nvml.ErrUnavailable)
}
