// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// calls counts calls of kubelet that are under way.
type calls struct {
	mu   sync.Mutex
	n    int             // guarded by mu
	idle []chan struct{} // guarded by mu; closed when n becomes zero
}

func (c *calls) enter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
}

func (c *calls) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n > 0 {
		return
	}
	for _, ch := range c.idle {
		close(ch)
	}
	c.idle = nil
}

// none is closed as soon as no call is under way.
func (c *calls) none() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := make(chan struct{})
	if c.n == 0 {
		close(ch)
		return ch
	}
	c.idle = append(c.idle, ch)
	return ch
}

// drain lets calls end that are under way. A call that is cut off is repeated
// by kubelet only after a minute or more, so a rolling update must not cut any:
// without its registration socket kubelet forgets this process and asks the
// newer one, and a call that waits for another try gives up at once.
func (d *Driver) drain(ctx context.Context) {
	logger := klog.FromContext(ctx)
	logger.Info("Asked to stop")
	close(d.draining)
	if err := os.Remove(d.sockets.registrationPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		logger.Error(err, "Cannot remove the registration socket early")
	}
	limit := time.NewTimer(d.timing.Drain)
	defer limit.Stop()
	select {
	case <-d.calls.none():
	case <-ctx.Done():
	case <-limit.C:
		logger.Info("Calls of kubelet are cut off: they take too long", "waited", d.timing.Drain)
	}
}
