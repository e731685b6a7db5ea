// SPDX-License-Identifier: Apache-2.0

// Package wireclient is a client of tranche-arbiter in Go, for tests: it speaks
// the protocol of package wire and keeps a slot of the ledger as the sharing
// runtime does, and where a test wants it, as nobody should.
package wireclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/pkg/wire"
)

// RefusedError is an answer that is no welcome.
type RefusedError struct {
	Status wire.Status
	Reason string
}

// Error implements error.
func (r *RefusedError) Error() string { return fmt.Sprintf("refused (%s): %s", r.Status, r.Reason) }

// Client is one connection to the arbiter of a share, with the pages that it
// brought. Methods must not be called concurrently, but for those of the pages.
type Client struct {
	Conn    *net.UnixConn
	Welcome wire.Welcome
	// Grant and Ledger are nil for a probe, Demand for an observer.
	Grant  *wire.Grant
	Ledger *wire.Ledger
	Demand *wire.Demand
	// Files are the descriptors of the pages, in that order.
	Files []*os.File

	memory [][]byte
	id     uint64
}

// Dial connects to the socket in a share's directory and sends nothing.
func Dial(ctx context.Context, dir string) (*net.UnixConn, error) {
	// The path of the directory may be too long for a socket's address.
	opened, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer opened.Close() //nolint:errcheck // nothing was written
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unixpacket", "/proc/self/fd/"+strconv.Itoa(int(opened.Fd()))+"/"+wire.SocketName)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil //nolint:forcetypeassert // that is what it dials
}

// Hello is the first message of a client of this version.
func Hello(role wire.Role) wire.Hello {
	return wire.Hello{Magic: wire.MessageMagic, Version: wire.ContractVersion, Role: role, NSPID: int32(os.Getpid())}
}

// Connect says hello, with descriptors, and maps what comes back. The error is a
// *RefusedError where the arbiter says no.
func Connect(ctx context.Context, dir string, hello wire.Hello, files ...*os.File) (*Client, error) {
	conn, err := Dial(ctx, dir)
	if err != nil {
		return nil, err
	}
	c := &Client{Conn: conn}
	if err := c.greet(ctx, hello, files); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Attach becomes a process of the share.
func Attach(ctx context.Context, dir string) (*Client, error) {
	return Connect(ctx, dir, Hello(wire.RoleProcess))
}

// Again comes back with what another connection got.
func (c *Client) Again(ctx context.Context, dir string) (*Client, error) {
	hello := Hello(wire.RoleAgain)
	hello.Slot, hello.Nonce = c.Welcome.Slot, c.Welcome.Nonce
	return Connect(ctx, dir, hello, c.Files[1])
}

func (c *Client) greet(ctx context.Context, hello wire.Hello, files []*os.File) error {
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.Conn.SetDeadline(deadline); err != nil {
			return err
		}
		defer c.Conn.SetDeadline(time.Time{}) //nolint:errcheck // fails on closed connections only
	}
	var oob []byte
	if len(files) > 0 {
		var fds []int
		for _, f := range files {
			fds = append(fds, int(f.Fd()))
		}
		oob = unix.UnixRights(fds...)
	}
	if _, _, err := c.Conn.WriteMsgUnix(wire.Encode(hello), oob, nil); err != nil {
		return fmt.Errorf("say hello: %w", err)
	}
	return c.receive()
}

// receive reads the welcome and maps its pages.
func (c *Client) receive() error {
	message, oob := make([]byte, 512), make([]byte, 256)
	n, oobn, _, _, err := c.Conn.ReadMsgUnix(message, oob)
	if err != nil {
		return fmt.Errorf("read welcome: %w", err)
	}
	if c.Welcome, err = wire.Decode[wire.Welcome](message[:n]); err != nil {
		return err
	}
	if c.Welcome.Status < 0 {
		return &RefusedError{c.Welcome.Status, wire.Text(c.Welcome.Reason[:])}
	}
	controls, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return err
	}
	for _, control := range controls {
		fds, err := unix.ParseUnixRights(&control)
		if err != nil {
			return err
		}
		for _, fd := range fds {
			c.Files = append(c.Files, os.NewFile(uintptr(fd), "page"+strconv.Itoa(len(c.Files))))
		}
	}
	return c.mapPages()
}

func (c *Client) mapPages() (err error) {
	if len(c.Files) > 0 {
		if c.Grant, err = mapPage[wire.Grant](c, 0, wire.GrantSize, unix.PROT_READ); err != nil {
			return err
		}
	}
	if len(c.Files) > 1 {
		if c.Ledger, err = mapPage[wire.Ledger](c, 1, wire.LedgerSize, unix.PROT_READ|unix.PROT_WRITE); err != nil {
			return err
		}
	}
	if len(c.Files) > 2 {
		c.Demand, err = mapPage[wire.Demand](c, 2, wire.DemandSize, unix.PROT_READ|unix.PROT_WRITE)
	}
	return err
}

func mapPage[P wire.Page](c *Client, file, size, protection int) (*P, error) {
	memory, err := unix.Mmap(int(c.Files[file].Fd()), 0, size, protection, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map page %d: %w", file, err)
	}
	c.memory = append(c.memory, memory)
	return wire.In[P](memory)
}

// Slot is the client's own.
func (c *Client) Slot() *wire.Slot { return &c.Ledger.Slot[c.Welcome.Slot] }

// Charge is what the share's processes hold together. Whoever has the grant of an
// arbiter that is no more finds the others by the ledger's number of slots.
func (c *Client) Charge() uint64 {
	return c.Ledger.Charge(max(c.Grant.SlotsUsed.Load(), c.Ledger.SlotsUsed.Load()))
}

// Take takes bytes from the share's room, or nothing where they do not fit. It
// does not try again when others are about to take.
func (c *Client) Take(bytes uint64) bool {
	s := c.Slot()
	s.Inflight.Add(1)
	s.Pending.Add(bytes)
	fits := c.Charge() <= c.Grant.MemoryLimit.Load()
	if fits {
		s.Committed.Add(bytes)
		s.Changes.Add(1)
	}
	s.Pending.Add(-bytes)
	s.Inflight.Add(^uint32(0))
	return fits
}

// Give gives bytes back.
func (c *Client) Give(bytes uint64) {
	s := c.Slot()
	s.Inflight.Add(1)
	s.Committed.Add(-bytes)
	s.Changes.Add(1)
	s.Inflight.Add(^uint32(0))
}

// Measure asks for a measurement and waits for it.
func (c *Client) Measure(settle uint64) (wire.Reply, error) {
	return c.request(wire.OpMeasure, settle)
}

// MeasureAll asks for a measurement of all processes, and waits for it.
func (c *Client) MeasureAll(settle uint64) (wire.Reply, error) {
	return c.request(wire.OpMeasureAll, settle)
}

func (c *Client) request(op wire.Op, settle uint64) (wire.Reply, error) {
	c.id++
	request := wire.Request{Magic: wire.MessageMagic, Op: op, ID: c.id, Settle: settle}
	if _, err := c.Conn.Write(wire.Encode(request)); err != nil {
		return wire.Reply{}, fmt.Errorf("ask for a measurement: %w", err)
	}
	message := make([]byte, 512)
	n, err := c.Conn.Read(message)
	if err != nil {
		return wire.Reply{}, fmt.Errorf("read measurement: %w", err)
	}
	reply, err := wire.Decode[wire.Reply](message[:n])
	if err == nil && reply.ID != c.id {
		err = fmt.Errorf("read measurement: the answer is to %d, not to %d", reply.ID, c.id)
	}
	return reply, err
}

// Close ends the connection and lets go of the pages.
func (c *Client) Close() error {
	err := c.Conn.Close()
	for _, memory := range c.memory {
		err = errors.Join(err, unix.Munmap(memory))
	}
	for _, f := range c.Files {
		err = errors.Join(err, f.Close())
	}
	c.memory, c.Files = nil, nil
	return err
}

// Wait tries until the arbiter serves the share, or ctx ends.
func Wait(ctx context.Context, dir string) error {
	for {
		probe, err := Connect(ctx, dir, Hello(wire.RoleProbe))
		if err == nil {
			return probe.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the socket %s: %w", filepath.Join(dir, wire.SocketName), errors.Join(context.Cause(ctx), err))
		case <-time.After(time.Millisecond):
		}
	}
}
