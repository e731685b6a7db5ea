// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Operations and flags of futexes, which golang.org/x/sys does not name: see
// futex(2) and the kernel's userspace-api/futex2.rst.
const (
	futexWaitBitset = 9
	futexWakeOp     = 1
	futexPrivate    = 128
	futexMatchAny   = math.MaxUint32

	futex2Size32 = 0x02
	// maxWaiters of one futex_waitv (FUTEX_WAITV_MAX).
	maxWaiters = 128
)

// waiter is struct futex_waitv.
type waiter struct {
	value   uint64
	address uint64
	flags   uint32
	_       uint32
}

// address of a word for the kernel. The word outlives the call: it is this process's, or
// in a page that is mapped. Where that has gone, the call fails.
func address(word *atomic.Uint32) uintptr {
	return uintptr(unsafe.Pointer(word)) //nolint:gosec // system calls take addresses
}

// waitFor waits while the word has the value. Shared words are those of pages that
// other processes have mapped.
func waitFor(word *atomic.Uint32, value, private uint32) waiter {
	return waiter{value: uint64(value), address: uint64(address(word)), flags: futex2Size32 | private}
}

// wakeAll wakes everybody who waits on the word. It does not wait.
func wakeAll(word *atomic.Uint32, private uintptr) {
	_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, address(word), futexWakeOp|private, math.MaxInt32, 0, 0, 0)
}

// waitAny waits until one of the words is not what it was, is woken, or the time of
// CLOCK_MONOTONIC has come. It gives the number of the word that was woken, or -1.
func waitAny(words []waiter, until time.Duration) (woken int, err error) {
	at := unix.NsecToTimespec(int64(until))
	n, _, errno := unix.Syscall6(unix.SYS_FUTEX_WAITV, uintptr(unsafe.Pointer(unsafe.SliceData(words))), uintptr(len(words)), 0, //nolint:gosec // see address
		uintptr(unsafe.Pointer(&at)), unix.CLOCK_MONOTONIC, 0) //nolint:gosec // see address
	if errno == 0 {
		return int(n), nil
	}
	// EFAULT: the page has gone meanwhile.
	if slices.Contains([]unix.Errno{unix.EAGAIN, unix.ETIMEDOUT, unix.EINTR, unix.EFAULT}, errno) {
		return -1, nil
	}
	return -1, errno
}

// waitOne is waitAny for a single word, which all kernels have.
func waitOne(word *atomic.Uint32, value uint32, private uintptr, until time.Duration) {
	at := unix.NsecToTimespec(int64(until))
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, address(word), futexWaitBitset|private, uintptr(value),
		uintptr(unsafe.Pointer(&at)), 0, futexMatchAny) //nolint:gosec // see address
}

// waitsForMany tells whether the kernel can wait for several words: Linux 5.16, and a
// seccomp profile that knows the call.
func waitsForMany() bool {
	var word atomic.Uint32
	_, err := waitAny([]waiter{waitFor(&word, 1, futexPrivate)}, 0)
	return !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM)
}

// monotonic is the time of CLOCK_MONOTONIC, as everybody on the node sees it.
func monotonic() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // that clock is always there
	return time.Duration(now.Nano())
}
