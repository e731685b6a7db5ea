// SPDX-License-Identifier: Apache-2.0

package arbiter_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/tests/wireclient"
)

// helperMain obeys commands of its standard input, one a line, until it ends.
func helperMain() {
	var c *wireclient.Client
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		var answer string
		if c, answer = obey(c, words[0], words[1:]); answer != "" {
			fmt.Println(answer)
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
		attached, err := wireclient.Attach(ctx, words[0])
		return attached, said(attached, err)
	case "again":
		attached, err := c.Again(ctx, words[0])
		if err == nil && attached.Welcome.Status != 0 {
			attached.Slot().Committed.Store(c.Slot().Committed.Load())
		}
		return attached, said(attached, err)
	case "take":
		return c, strconv.FormatBool(c.Take(amount))
	case "charge":
		return c, strconv.FormatUint(c.Charge(), 10)
	case "limit":
		return c, strconv.FormatUint(c.Grant.MemoryLimit.Load(), 10)
	case "measure":
		reply, err := c.Measure(amount)
		return c, fmt.Sprint(reply.Status, reply.Used, reply.Implicit, err)
	case "reserve":
		c.Slot().Reserve.Add(amount)
		return c, "reserved"
	case "lost": // waits for the end of the connection
		_, err := c.Conn.Read(make([]byte, 1))
		return c, fmt.Sprint(err)
	case "close":
		return c, closeAll()
	case "scribble":
		scribble(unsafe.Slice((*byte)(unsafe.Pointer(c.Ledger)), unsafe.Sizeof(*c.Ledger)))
		return c, "scribbled"
	case "exec":
		program, _ := os.Executable()
		return c, fmt.Sprint(syscall.Exec(program, []string{program, helperArgument}, os.Environ()))
	}
	return c, "unknown command " + verb
}

func said(c *wireclient.Client, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("slot %d %s", c.Welcome.Slot, c.Welcome.Status)
}

// closeAll closes all descriptors but the standard ones, as daemons do.
func closeAll() string { return fmt.Sprint(unix.CloseRange(3, 1<<20, 0)) }

func scribble(memory []byte) {
	for i := range memory {
		memory[i] = 0xff
	}
}
