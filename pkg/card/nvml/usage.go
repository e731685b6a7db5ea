// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/card"
)

// OpenerOf opens NVML in that file, for Options.Open. A process can use one
// library only: the first that was loaded serves every Source.
func OpenerOf(path string) func() gonvml.Interface {
	return func() gonvml.Interface { return gonvml.New(gonvml.WithLibraryPath(path)) }
}

// bytesUnknown is what the driver says where it does not know, as under Windows'
// driver model: NVML_VALUE_NOT_AVAILABLE.
const bytesUnknown = ^uint64(0)

// Processes tells what processes hold of a card. Their numbers are those of the
// host where this process is in the host's PID namespace; elsewhere the driver
// leaves out those that it cannot name. The error wraps ErrUnavailable, also
// where the driver does not know how much some process holds.
func (s *Source) Processes(ctx context.Context, id card.UUID) ([]card.ProcessMemory, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read processes of card %s: %w", id, err)
	}
	var processes []card.ProcessMemory
	generation, err := s.call(func(lib gonvml.Interface) (err error) {
		processes, err = processesOf(lib, id)
		return err
	})
	if err != nil {
		// The next call starts NVML anew: a card may have been reset.
		s.end(generation)
		return nil, fmt.Errorf("read processes of card %s: %w", id, err)
	}
	return processes, nil
}

// Kept tells at most how much a card holds for no process, in bytes, besides what
// the driver says that it has in reserve for itself: what is used of the card less
// what processes hold. A driver holds some more on its own account, so it is
// hardly ever 0; and it is too little where a process that took memory in the
// meantime had less than before and after.
func (s *Source) Kept(ctx context.Context, id card.UUID) (bytes uint64, exact bool, err error) {
	if err := ctx.Err(); err != nil {
		return 0, false, fmt.Errorf("read memory of card %s: %w", id, err)
	}
	generation, err := s.call(func(lib gonvml.Interface) (err error) {
		bytes, err = keptOf(ctx, lib, id)
		return err
	})
	if err != nil {
		s.end(generation)
		return 0, false, fmt.Errorf("read memory of card %s: %w", id, err)
	}
	return bytes, false, nil
}

func keptOf(ctx context.Context, lib gonvml.Interface, id card.UUID) (uint64, error) {
	before, err := processesOf(lib, id)
	if err != nil {
		return 0, err
	}
	device, ret := lib.DeviceGetHandleByUUID(string(id))
	if ret != gonvml.SUCCESS {
		return 0, fmt.Errorf("find card: %w: %w", ErrUnavailable, ret)
	}
	q := &query{lib: lib, logger: klog.FromContext(ctx).WithValues("card", id)}
	v2, ok := ask(q, "nvmlDeviceGetMemoryInfo_v2", device.GetMemoryInfo_v2)
	used := v2.Used
	if !ok {
		v1, ret := device.GetMemoryInfo()
		if ret != gonvml.SUCCESS {
			return 0, fmt.Errorf("read memory: %w: %w", ErrUnavailable, ret)
		}
		used = v1.Used
	}
	after, err := processesOf(lib, id)
	if err != nil {
		return 0, err
	}
	held := make(map[int]uint64, len(before))
	for _, p := range before {
		held[p.PID] = p.Bytes
	}
	for _, p := range after {
		used -= min(used, p.Bytes, held[p.PID])
	}
	return used, nil
}

// processesOf lists those that compute and those that draw; who does both is in
// either list, with all that it holds.
func processesOf(lib gonvml.Interface, id card.UUID) ([]card.ProcessMemory, error) {
	device, ret := lib.DeviceGetHandleByUUID(string(id))
	if ret != gonvml.SUCCESS {
		return nil, fmt.Errorf("find card: %w: %w", ErrUnavailable, ret)
	}
	computing, ret := device.GetComputeRunningProcesses()
	if ret != gonvml.SUCCESS {
		return nil, fmt.Errorf("list processes: %w: %w", ErrUnavailable, ret)
	}
	drawing, ret := device.GetGraphicsRunningProcesses()
	if ret != gonvml.SUCCESS && ret != gonvml.ERROR_NOT_SUPPORTED {
		return nil, fmt.Errorf("list processes with graphics: %w: %w", ErrUnavailable, ret)
	}
	held := map[int]uint64{}
	for _, p := range slices.Concat(computing, drawing) {
		if p.UsedGpuMemory == bytesUnknown {
			return nil, fmt.Errorf("list processes: %w: the driver does not say what process %d holds", ErrUnavailable, p.Pid)
		}
		held[int(p.Pid)] = max(held[int(p.Pid)], p.UsedGpuMemory)
	}
	processes := make([]card.ProcessMemory, 0, len(held))
	for pid, bytes := range held {
		processes = append(processes, card.ProcessMemory{PID: pid, Bytes: bytes})
	}
	slices.SortFunc(processes, func(a, b card.ProcessMemory) int { return cmp.Compare(a.PID, b.PID) })
	return processes, nil
}

// Computed tells what part of the time since the last call for that card processes
// had work on it, as the driver's samples say. Who had none may be left out. The
// first call gives nothing. The error wraps ErrUnavailable, also where the driver
// does not know.
func (s *Source) Computed(ctx context.Context, id card.UUID) ([]card.ProcessCompute, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read what processes compute on card %s: %w", id, err)
	}
	var samples []gonvml.ProcessUtilizationSample
	s.mu.Lock()
	since := s.sampled[id]
	s.mu.Unlock()
	_, err := s.call(func(lib gonvml.Interface) (err error) {
		samples, err = samplesOf(lib, id, since)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read what processes compute on card %s: %w", id, err)
	}
	latest, parts := since, map[int]float64{}
	for _, sample := range samples {
		latest = max(latest, sample.TimeStamp)
		if sample.TimeStamp > since {
			parts[int(sample.Pid)] = max(parts[int(sample.Pid)], float64(min(sample.SmUtil, 100))/100)
		}
	}
	s.mu.Lock()
	s.sampled[id] = latest
	s.mu.Unlock()
	var processes []card.ProcessCompute
	for pid, part := range parts {
		if since != 0 && part > 0 {
			processes = append(processes, card.ProcessCompute{PID: pid, Part: part})
		}
	}
	slices.SortFunc(processes, func(a, b card.ProcessCompute) int { return cmp.Compare(a.PID, b.PID) })
	return processes, nil
}

// samplesOf are the latest of each process, since a time of the driver's.
func samplesOf(lib gonvml.Interface, id card.UUID, since uint64) ([]gonvml.ProcessUtilizationSample, error) {
	device, ret := lib.DeviceGetHandleByUUID(string(id))
	if ret != gonvml.SUCCESS {
		return nil, fmt.Errorf("find card: %w: %w", ErrUnavailable, ret)
	}
	samples, ret := device.GetProcessUtilization(since)
	switch {
	case ret == gonvml.SUCCESS:
		return samples, nil
	case ret == gonvml.ERROR_NOT_FOUND, ret == gonvml.ERROR_INSUFFICIENT_SIZE && len(samples) == 0: // nobody computed
		return nil, nil
	}
	return nil, fmt.Errorf("read samples: %w: %w", ErrUnavailable, ret)
}
