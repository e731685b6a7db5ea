// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/wire"
)

// ErrNotServed says that the arbiter does not serve a share.
var ErrNotServed = errors.New("the arbiter does not serve the share")

// Remedy is what helps against ErrNotServed.
const Remedy = "see that tranche-arbiter runs on this node (kubectl -n tranche-system get pods -o wide -l app.kubernetes.io/name=tranche-arbiter) and what it logs"

const (
	// A socket comes a moment after its share, and nothing tells when: the pause
	// between two tries grows from one to the other.
	firstPause, lastPause = 200 * time.Microsecond, 20 * time.Millisecond
)

// Arbiter is the arbiter of this node.
type Arbiter struct {
	// Patience is how long Await waits for one that does not serve a share yet.
	Patience time.Duration
}

// Await returns as soon as the share in the directory dir is served. The error
// wraps ErrNotServed and names share, socket and remedy.
func (a Arbiter) Await(ctx context.Context, key share.Key, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, a.Patience)
	defer cancel()
	start := time.Now()
	pause := time.NewTimer(0)
	defer pause.Stop()
	<-pause.C
	var cause error
	for next := firstPause; ; next = min(2*next, lastPause) {
		err := Ask(ctx, dir)
		if err == nil {
			return nil
		}
		// A try that is cut off at the end says less than the one before.
		cut, _ := errors.AsType[net.Error](err)
		if cause == nil || ctx.Err() == nil && (cut == nil || !cut.Timeout()) {
			cause = err
		}
		pause.Reset(next)
		select {
		case <-pause.C:
		case <-ctx.Done():
			return fmt.Errorf("%w %s, asked for %s: %w: %s", ErrNotServed, key, time.Since(start).Round(time.Millisecond), cause, Remedy)
		}
	}
}

// Ask asks once whether the share in the directory dir is served.
func Ask(ctx context.Context, dir string) error {
	socket := filepath.Join(dir, wire.SocketName)
	welcome, err := greet(ctx, dir)
	if err != nil {
		return fmt.Errorf("ask %s: %w", socket, err)
	}
	if welcome.Status != wire.OK {
		return fmt.Errorf("ask %s: the answer is %q: %s", socket, welcome.Status, wire.Text(welcome.Reason[:]))
	}
	return nil
}

// greet says hello and takes the answer.
func greet(ctx context.Context, dir string) (welcome wire.Welcome, err error) {
	conn, err := dial(ctx, dir)
	if err != nil {
		return welcome, err
	}
	defer conn.Close() //nolint:errcheck // nothing is lost with it
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return welcome, err
		}
	}
	// A context that ends early ends the talk.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	hello := wire.Hello{Magic: wire.MessageMagic, Version: wire.ContractVersion, Role: wire.RoleProbe, NSPID: int32(os.Getpid())} //nolint:gosec // a PID fits
	if _, err := conn.Write(wire.Encode(hello)); err != nil {
		return welcome, plain(err)
	}
	answer := make([]byte, wire.WelcomeSize+1)
	n, err := conn.Read(answer)
	if err != nil {
		return welcome, plain(err)
	}
	return wire.Decode[wire.Welcome](answer[:n])
}

// dial connects by way of an open directory: paths of shares are longer than a
// socket's address may be.
func dial(ctx context.Context, dir string) (net.Conn, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	// Cheaper than a socket, where many wait for an arbiter that is busy.
	var info unix.Stat_t
	if err := unix.Fstatat(fd, wire.SocketName, &info, 0); err != nil {
		return nil, err
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unixpacket", fmt.Sprintf("/proc/self/fd/%d/%s", fd, wire.SocketName))
	return conn, plain(err)
}

// plain is the error without the address, which means nothing to others.
func plain(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return fmt.Errorf("%s: %w", op.Op, op.Err)
	}
	return err
}
