// SPDX-License-Identifier: Apache-2.0

package isolate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long the inside may take to end after a signal, before it is killed.
const patience = 20 * time.Second

// Run starts this program again with the given arguments as init of new
// namespaces and returns its exit status. SIGINT, SIGTERM and SIGHUP are passed
// on; a second one, or patience, ends everything inside at once.
func Run(ctx context.Context, args ...string) (int, error) {
	// The kernel sends the parent death signal when the thread that forked ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer signal.Stop(signals)

	// The same signals end the context: that must not kill the inside at once.
	ctx, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	command := exec.CommandContext(ctx, "/proc/self/exe", args...)
	command.Args[0] = os.Args[0]
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID,
		Pdeathsig:  unix.SIGKILL,
		// A Ctrl-C comes once, through us.
		Setpgid: true,
	}
	if err := command.Start(); err != nil {
		return 0, fmt.Errorf("create namespaces: %w", err)
	}
	ended := make(chan struct{})
	forwarded := make(chan struct{})
	go func() {
		defer close(forwarded)
		forward(signals, command.Process, kill, ended)
	}()
	err := command.Wait()
	close(ended)
	<-forwarded
	return status(err)
}

func forward(signals <-chan os.Signal, process *os.Process, kill func(), ended <-chan struct{}) {
	var late <-chan time.Time
	for {
		select {
		case <-ended:
			return
		case <-late:
			kill()
			late = nil
		case s := <-signals:
			if late != nil {
				kill()
				continue
			}
			_ = process.Signal(s) // it has ended: Wait tells
			late = time.After(patience)
		}
	}
}

// status makes an exit status out of a Wait's result, as a shell does.
func status(err error) (int, error) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit):
		if s, ok := exit.Sys().(syscall.WaitStatus); ok && s.Signaled() {
			return 128 + int(s.Signal()), nil
		}
		return exit.ExitCode(), nil
	}
	return 0, fmt.Errorf("wait for the namespaces' first process: %w", err)
}
