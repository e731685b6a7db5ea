// SPDX-License-Identifier: Apache-2.0

//go:build native

package runtime_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/tests/rig"
)

// Names of the runtime, and of its own threads.
const (
	library = "libcuda.so.1"
	warden  = "tranche-warden"
	liaison = "tranche-liaison"
)

// threadOf finds the only thread of a process with that name, which threads give themselves.
func threadOf(t *testing.T, pid int, name string) (tid int) {
	t.Helper()
	require.NoError(t, rig.Until("thread "+name, func() (bool, error) {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		for _, thread := range threads {
			is, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/comm", pid, thread.Name()))
			if err == nil && strings.TrimSpace(string(is)) == name {
				tid, err = strconv.Atoi(thread.Name())
				return err == nil, err
			}
		}
		return false, err
	}))
	return tid
}

// held is a thread that stands still, between any two of its instructions, until it is let go.
type held struct {
	tid int
	// do has what is to be done by the thread of ours that holds it: the kernel takes it from no
	// other.
	do    chan func()
	letGo func()
}

func hold(t *testing.T, pid int, name string) *held {
	t.Helper()
	h := &held{tid: threadOf(t, pid, name), do: make(chan func())}
	var work sync.WaitGroup
	work.Go(func() {
		runtime.LockOSThread()
		for do := range h.do {
			do()
		}
	})
	h.letGo = sync.OnceFunc(func() {
		h.by(func() error { return unix.PtraceDetach(h.tid) }) //nolint:errcheck // it may have been killed
		close(h.do)
		work.Wait()
	})
	t.Cleanup(h.letGo)
	require.NoError(t, h.by(func() error {
		return errors.Join(unix.PtraceSeize(h.tid), unix.PtraceInterrupt(h.tid), h.stands())
	}))
	return h
}

func (h *held) by(do func() error) error {
	done := make(chan error)
	h.do <- func() { done <- do() }
	return <-done
}

// stands waits until the thread does.
func (h *held) stands() error {
	var status unix.WaitStatus
	if _, err := unix.Wait4(h.tid, &status, unix.WALL, nil); err != nil {
		return err
	}
	if !status.Stopped() {
		return fmt.Errorf("the thread has ended: status %#x", status)
	}
	return nil
}

// advance lets the thread go on until it is so, and no instruction of the runtime further. It is
// asked only from when the thread has received a message.
func (h *held) advance(t *testing.T, so func() bool) {
	t.Helper()
	text, err := mappingsOf(h.tid)
	require.NoError(t, err)
	text = slices.DeleteFunc(text, func(m mapping) bool {
		return filepath.Base(m.path) != library || !strings.Contains(m.permissions, "x")
	})
	require.NoError(t, h.by(func() error {
		var registers unix.PtraceRegs
		for received := false; !received; {
			if err := errors.Join(unix.PtraceSyscall(h.tid, 0), h.stands(), unix.PtraceGetRegs(h.tid, &registers)); err != nil {
				return err
			}
			received = registers.Orig_rax == unix.SYS_RECVMSG && int64(registers.Rax) > 0
		}
		// What a sanitizer does for an access it does under locks of its own.
		for ours := false; !ours || !so(); {
			if err := errors.Join(unix.PtraceSingleStep(h.tid), h.stands(), unix.PtraceGetRegs(h.tid, &registers)); err != nil {
				return err
			}
			ours = slices.ContainsFunc(text, func(m mapping) bool { return m.from <= registers.Rip && registers.Rip < m.to })
		}
		return nil
	}))
}

// mapped is where a process has a file.
func mapped(t *testing.T, pid int, file *os.File) uint64 {
	t.Helper()
	var info unix.Stat_t
	require.NoError(t, unix.Fstat(int(file.Fd()), &info))
	all, err := mappingsOf(pid)
	require.NoError(t, err)
	for _, m := range all {
		if m.inode == info.Ino {
			return m.from
		}
	}
	require.Failf(t, "not mapped", "%s in process %d", file.Name(), pid)
	return 0
}

// variables of the runtime in a process that point there, by their addresses.
func variables(t *testing.T, pid int, pointing uint64) (at []uint64) {
	t.Helper()
	want := binary.NativeEndian.AppendUint64(nil, pointing)
	ours := false
	all, err := mappingsOf(pid)
	require.NoError(t, err)
	for _, m := range all {
		// What is zero at first is in a mapping without a name, behind those of the file.
		ours = filepath.Base(m.path) == library || ours && m.path == ""
		if !ours || !strings.HasPrefix(m.permissions, "rw") {
			continue
		}
		content := make([]byte, m.to-m.from)
		require.NoError(t, peek(pid, m.from, content))
		for i := 0; i+8 <= len(content); i += 8 {
			if bytes.Equal(content[i:i+8], want) {
				at = append(at, m.from+uint64(i))
			}
		}
	}
	require.NotEmpty(t, at, "variables that point to %#x", pointing)
	return at
}

// pointsElsewhere tells whether any of the variables does.
func pointsElsewhere(t *testing.T, pid int, variables []uint64, than uint64) bool {
	t.Helper()
	var word [8]byte
	for _, at := range variables {
		require.NoError(t, peek(pid, at, word[:]))
		if binary.NativeEndian.Uint64(word[:]) != than {
			return true
		}
	}
	return false
}

// sleepsOn waits until a thread waits for a word at that address.
func sleepsOn(t *testing.T, pid int, name string, word uint64) {
	t.Helper()
	path := fmt.Sprintf("/proc/%d/task/%d/syscall", pid, threadOf(t, pid, name))
	want := fmt.Sprintf("%d %#x ", unix.SYS_FUTEX, word)
	require.NoError(t, rig.Until(name+" to sleep", func() (bool, error) {
		now, err := os.ReadFile(path)
		return strings.HasPrefix(string(now), want), err
	}))
}
