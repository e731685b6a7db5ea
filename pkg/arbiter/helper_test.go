// SPDX-License-Identifier: Apache-2.0

package arbiter_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/pkg/wire"
	"github.com/tranche-dra/tranche/tests/wireclient"
)

// helperMain obeys commands of its standard input, one a line, until it ends.
func helperMain() {
	if len(os.Args) > 2 { // executed by a helper, who is asked again only now
		_, _ = fmt.Fprintln(os.Stdout, os.Args[2])
	}
	var c *wireclient.Client
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		var answer string
		if c, answer = obey(c, words[0], words[1:]); answer != "" {
			_, _ = fmt.Fprintln(os.Stdout, answer)
		}
	}
}

func obey(c *wireclient.Client, verb string, words []string) (*wireclient.Client, string) {
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	var amount uint64
	if len(words) > 0 {
		amount, _ = strconv.ParseUint(words[0], 10, 64)
	}
	switch verb {
	case "attach":
		attached, err := persist(ctx, func() (*wireclient.Client, error) { return wireclient.Attach(ctx, words[0]) })
		return attached, said(attached, err)
	case "again":
		attached, err := persist(ctx, func() (*wireclient.Client, error) { return c.Again(ctx, words[0]) })
		if err == nil && attached.Welcome.Status == wire.Moved {
			attached.Slot().Committed.Store(c.Slot().Committed.Load())
		}
		return attached, said(attached, err)
	case "forge": // comes back with a ledger of its own making
		forged, err := forge(c)
		if err == nil {
			hello := wireclient.Hello(wire.RoleAgain)
			hello.Slot, hello.Nonce = c.Welcome.Slot, c.Welcome.Nonce
			c, err = persist(ctx, func() (*wireclient.Client, error) { return wireclient.Connect(ctx, words[0], hello, forged) })
		}
		return c, said(c, err)
	case "take":
		return c, strconv.FormatBool(c.Take(amount))
	case "give":
		c.Give(amount)
		return c, "given"
	case "charge":
		return c, strconv.FormatUint(c.Charge(), 10)
	case "limit":
		return c, strconv.FormatUint(c.Grant.MemoryLimit.Load(), 10)
	case "measure":
		reply, err := c.Measure(amount)
		return c, fmt.Sprint(reply.Status, reply.Used, reply.Implicit, err)
	case "export":
		c.Slot().Exported.Add(amount)
		return c, "exported"
	case "reserve":
		c.Slot().Reserve.Add(amount)
		return c, "reserved"
	case "lost": // waits for the end of the connection
		_, err := c.Conn.Read(make([]byte, 1))
		return c, fmt.Sprint(err)
	case "close":
		return c, closeAll()
	case "work": // wants the card from now on
		go c.Work(context.Background(), nil)
		return c, "works"
	case "want": // wants the card, and never gives it back
		c.Want()
		return c, "wants"
	case "unmap": // forgets the ledger, but not its descriptor
		_ = unix.Munmap(unsafe.Slice((*byte)(unsafe.Pointer(c.Ledger)), wire.LedgerSize))
		return c, "unmapped"
	case "fork": // a child that has everything, and executes nothing
		return c, fork()
	case "scribble":
		scribble(unsafe.Slice((*byte)(unsafe.Pointer(c.Ledger)), unsafe.Sizeof(*c.Ledger)))
		return c, "scribbled"
	case "exec":
		program, _ := os.Executable()
		return c, fmt.Sprint(syscall.Exec(program, []string{program, helperArgument, "executed"}, os.Environ()))
	}
	return c, "unknown command " + verb
}

// persist tries until there is an answer.
func persist(ctx context.Context, try func() (*wireclient.Client, error)) (*wireclient.Client, error) {
	for {
		c, err := try()
		if refusal := new(wireclient.RefusedError); err == nil || errors.As(err, &refusal) || ctx.Err() != nil {
			return c, err
		}
	}
}

func said(c *wireclient.Client, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("slot %d %s", c.Welcome.Slot, c.Welcome.Status)
}

// closeAll closes all descriptors but the standard ones, as daemons do, and
// those that the Go runtime cannot do without.
func closeAll() string {
	entries, err := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		fd, _ := strconv.Atoi(e.Name())
		if link, _ := os.Readlink("/proc/self/fd/" + e.Name()); fd > 2 && !strings.HasPrefix(link, "anon_inode:[event") {
			_ = unix.Close(fd)
		}
	}
	return fmt.Sprint(err)
}

// fork makes a child that has all descriptors and waits for its own end.
func fork() string {
	child, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && child == 0 {
		for { // no Go code may run here
			_, _, _ = syscall.RawSyscall(syscall.SYS_PAUSE, 0, 0, 0)
		}
	}
	return strconv.Itoa(int(child))
}

// forge makes a ledger that looks like the client's.
func forge(c *wireclient.Client) (*os.File, error) {
	fd, err := unix.MemfdCreate("tranche-ledger", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "forged")
	if _, err := file.Write(unsafe.Slice((*byte)(unsafe.Pointer(c.Ledger)), wire.LedgerSize)); err != nil {
		return nil, err
	}
	_, err = unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	return file, err
}

func scribble(memory []byte) {
	for i := range memory {
		memory[i] = 0xff
	}
}
