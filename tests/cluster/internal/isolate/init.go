// SPDX-License-Identifier: Apache-2.0

package isolate

import (
	"errors"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// Init is process 1: it gives the namespaces their own mounts and /proc, starts
// this program again with the given arguments, and reaps until that ends.
func Init(args ...string) (int, error) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	if err := privateMounts(); err != nil {
		return 0, err
	}
	process, err := os.StartProcess("/proc/self/exe", append([]string{os.Args[0]}, args...), &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err != nil {
		return 0, fmt.Errorf("start node: %w", err)
	}
	go func() { // ends with this process
		for s := range signals {
			_ = process.Signal(s) // it has ended: the loop below tells
		}
	}()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, fmt.Errorf("reap: %w", err)
		case pid == process.Pid && status.Exited():
			return status.ExitStatus(), nil
		case pid == process.Pid && status.Signaled():
			return 128 + int(status.Signal()), nil
		}
	}
}

// privateMounts cuts the mounts off from the machine's. Inside they are shared
// again, among the node and its containers, as on any node.
func privateMounts() error {
	for _, propagation := range []uintptr{unix.MS_PRIVATE, unix.MS_SHARED} {
		if err := unix.Mount("", "/", "", propagation|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("cut mounts off: %w", err)
		}
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}
