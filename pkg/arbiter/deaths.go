// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// deaths tells of the ends of processes, on a thread that runs before others as the
// scheduling thread does: somebody may wait for the card that the dead had. The poller
// of Go's runtime has the priority of everybody, and is late where the node is busy.
type deaths struct {
	epoll, stop int // descriptors
	done        chan struct{}
	// awaited has who is to be told, by a number that is used once only, unlike those
	// of descriptors. Zero is not used.
	awaited sync.Map
	last    atomic.Uint64
}

// mostDeaths are told of at once.
const mostDeaths = 64

// awaitDeaths starts the thread.
func awaitDeaths(ctx context.Context) (*deaths, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("wait for ends of processes: %w", err)
	}
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("wait for ends of processes: %w", err), unix.Close(epoll))
	}
	d := &deaths{epoll: epoll, stop: stop, done: make(chan struct{})}
	if err := d.add(stop, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("wait for ends of processes: %w", err), unix.Close(stop), unix.Close(epoll))
	}
	go d.run(ctx)
	return d, nil
}

func (d *deaths) add(fd int, number uint64) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(uint32(number)), Pad: int32(number >> 32)} //nolint:gosec // two halves
	return unix.EpollCtl(d.epoll, unix.EPOLL_CTL_ADD, fd, &event)
}

func numberOf(e *unix.EpollEvent) uint64 { return uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32 } //nolint:gosec // two halves

// await has a function called once the process has ended, which must not wait for
// anything. Nobody counts on it: the kernel may have no memory for it.
func (d *deaths) await(p process, tell func()) (forget func()) {
	number := d.last.Add(1)
	d.awaited.Store(number, tell)
	if raw, err := p.pidfd.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = d.add(int(fd), number) }) // see above
	}
	return func() { d.awaited.Delete(number) }
}

func (d *deaths) run(ctx context.Context) {
	defer close(d.done)
	runtime.LockOSThread()                     // and never unlocked: the thread ends with the goroutine
	hurry(klog.NewContext(ctx, klog.Logger{})) // the scheduling thread has said how
	var events [mostDeaths]unix.EpollEvent
	for {
		n, err := unix.EpollWait(d.epoll, events[:], -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			klog.FromContext(ctx).Error(err, "Ends of processes are noticed late")
			return
		}
		for i := range max(n, 0) {
			number := numberOf(&events[i])
			if number == 0 {
				return
			}
			if tell, ok := d.awaited.LoadAndDelete(number); ok {
				tell.(func())() //nolint:forcetypeassert // nothing else is there
			}
		}
	}
}

// end ends the thread, and waits for it.
func (d *deaths) end() {
	_, _ = unix.Write(d.stop, binary.NativeEndian.AppendUint64(nil, 1)) // cannot fail: the counter is zero
	<-d.done
	_ = unix.Close(d.stop)  // nothing is lost
	_ = unix.Close(d.epoll) // nothing is lost
}
