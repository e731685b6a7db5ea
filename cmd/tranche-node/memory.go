// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

const (
	// memoryTarget in bytes is what the process may take, shares and cards of
	// a full node included; the collector works harder near it and never fails
	// because of it.
	memoryTarget = 36 << 20
	// collectAt is the growth in percent after which memory is collected. The
	// process idles most of the time, so memory is worth more than time.
	collectAt = 40
	// threads that run Go code at once: the work is waiting for disk and API
	// server, and each of them has caches of its own, on a node with many cores
	// some megabytes in all.
	threads = 4
	// settleAfter is when starting is over.
	settleAfter = 20 * time.Second
)

// limitMemory keeps the process small, unless the environment says otherwise.
func limitMemory(getenv func(string) string) {
	if getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryTarget)
	}
	if getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	if getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(min(threads, runtime.NumCPU()))
	}
}

// settleMemory gives back what only starting needs, once it is over: what the
// collector has freed, and the code that registered a thousand API types. The
// kernel maps code again from the file when it is run.
func settleMemory(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(settleAfter):
	}
	debug.FreeOSMemory()
	if err := dropProgramPages(); err != nil {
		klog.FromContext(ctx).V(2).Info("Kept the pages that only starting needed", "err", err)
	}
}

// dropProgramPages takes this program's code out of its resident memory; proc(5)
// has the format of the list. Only code: other read-only pages hold what the
// linker wrote at the start (RELRO), which no file could bring back.
func dropProgramPages() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(maps)) {
		var from, to uintptr
		var mode, path string
		if n, _ := fmt.Sscanf(line, "%x-%x %s %s %s %s %s", &from, &to, &mode, new(string), new(string), new(string), &path); n != 7 {
			continue // memory without a file
		}
		if path != program || mode != "r-xp" {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("give back %s: %w", line, errno)
		}
	}
	return nil
}
