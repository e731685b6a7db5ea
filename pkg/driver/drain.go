// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// open counts things that are open and tells when none is.
type open struct {
	mu   sync.Mutex
	n    int             // guarded by mu
	all  int             // guarded by mu; how many have been open so far
	idle []chan struct{} // guarded by mu; closed when n becomes zero
}

func (o *open) enter() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n++
	o.all++
}

// opened is how many have been open since the beginning.
func (o *open) opened() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all
}

func (o *open) leave() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.n--; o.n > 0 {
		return
	}
	for _, ch := range o.idle {
		close(ch)
	}
	o.idle = nil
}

// none is closed as soon as nothing is open.
func (o *open) none() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	ch := make(chan struct{})
	if o.n == 0 {
		close(ch)
		return ch
	}
	o.idle = append(o.idle, ch)
	return ch
}

// drain lets calls end that are under way, and their answers arrive. A call
// that is cut off, or fails, is repeated by kubelet only after a minute or more,
// so a rolling update must cut none, and a call that waits for another try has
// it while there is time. New calls go to the newer instance as soon as kubelet
// is connected to it, and until then to this one. The registration socket goes
// only when none has come for a while: kubelet closes its connection, with all
// calls on it, when it misses the socket, and that it did so says that it has all
// answers.
func (d *Driver) drain(ctx context.Context) {
	logger := klog.FromContext(ctx)
	logger.Info("Asked to stop")
	close(d.draining)
	defer time.AfterFunc(d.timing.Drain*2/3, func() { close(d.lastTry) }).Stop()
	limit := time.NewTimer(d.timing.Drain)
	defer limit.Stop()
	for calls := -1; calls != d.calls.opened(); {
		calls = d.calls.opened()
		select {
		case <-d.calls.none():
		case <-ctx.Done():
			return
		case <-limit.C:
			logger.Info("Calls of kubelet are cut off: they take too long", "waited", d.timing.Drain)
			return
		}
		// A call counts until its handler returns, and the answer is written after that.
		sleep(ctx, d.timing.Answer)
	}
	if err := os.Remove(d.sockets.registrationPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		logger.Error(err, "Cannot remove the registration socket early")
	}
	select {
	case <-d.connections.none():
	case <-ctx.Done():
	case <-limit.C:
		logger.V(2).Info("Kubelet keeps its connection", "waited", d.timing.Drain)
	}
}

// listen opens the DRA socket as the helper would, and counts its connections.
func (d *Driver) listen(ctx context.Context, path string) (net.Listener, error) {
	// What a killed process of this pod left behind is in the way.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove socket of an earlier process: %w", err)
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	return countingListener{listener, &d.connections}, nil
}

// countingListener counts the connections that are open.
type countingListener struct {
	net.Listener
	connections *open
}

// Accept implements net.Listener.
func (l countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.connections.enter()
	return &countedConn{Conn: conn, connections: l.connections}, nil
}

type countedConn struct {
	net.Conn
	connections *open
	once        sync.Once
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.once.Do(c.connections.leave)
	return c.Conn.Close()
}
