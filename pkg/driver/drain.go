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
	idle []chan struct{} // guarded by mu; closed when n becomes zero
}

func (o *open) enter() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n++
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

// answering is how long an answer may take from a handler to kubelet: gRPC does
// not say when it has left.
const answering = 100 * time.Millisecond

// drain lets calls end that are under way, and their answers arrive. A call
// that is cut off is repeated by kubelet only after a minute or more, so a
// rolling update must cut none. New calls go to the newer instance already. A
// call that waits for another try gives up at once. The registration socket goes
// only after that: kubelet closes its connection, with all calls on it, when it
// misses the socket, and that it did so says that it has all answers.
func (d *Driver) drain(ctx context.Context) {
	logger := klog.FromContext(ctx)
	logger.Info("Asked to stop")
	close(d.draining)
	limit := time.NewTimer(d.timing.Drain)
	defer limit.Stop()
	select {
	case <-d.calls.none():
	case <-ctx.Done():
	case <-limit.C:
		logger.Info("Calls of kubelet are cut off: they take too long", "waited", d.timing.Drain)
		return
	}
	// A call counts until its handler returns, and the answer is written after that.
	select {
	case <-time.After(answering):
	case <-ctx.Done():
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
