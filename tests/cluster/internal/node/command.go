// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/tests/cluster/internal/config"
	"github.com/tranche-dra/tranche/tests/cluster/internal/pki"
)

// exitNotFound is a shell's exit status for a command that is not there.
const exitNotFound = 127

// graceful is how long a command may take to end after SIGTERM.
const graceful = 10 * time.Second

// runCommands runs the command, then the shell where one is wanted.
func runCommands(ctx context.Context, spec Spec, say Say) (int, error) {
	env, err := environment(spec)
	if err != nil {
		return 0, err
	}
	code := 0
	if len(spec.Command) > 0 {
		bounded, cancel := ctx, context.CancelFunc(func() {})
		if spec.Timeout > 0 {
			bounded, cancel = context.WithTimeoutCause(ctx, spec.Timeout, fmt.Errorf("the command took longer than %s", spec.Timeout))
		}
		defer cancel()
		if code, err = execute(bounded, spec.Command, spec.Dir, env); err != nil {
			return code, err
		}
		say("command ended with status %d", code)
	}
	if !spec.Keep {
		return code, nil
	}
	say("the cluster stays up until you leave this shell; kubectl is set up, '$TRANCHE_CLUSTER_CTL ctl status' shows its components")
	if _, err := execute(ctx, []string{shell()}, spec.Dir, env); err != nil {
		return 0, err
	}
	return code, nil
}

func shell() string {
	for _, candidate := range []string{os.Getenv("SHELL"), "bash"} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path
		}
	}
	return "sh"
}

// environment is what the command gets to know of the cluster.
func environment(spec Spec) ([]string, error) {
	s := spec.Settings
	tools := filepath.Join(config.RunDir, "bin")
	if err := os.MkdirAll(tools, 0o750); err != nil {
		return nil, fmt.Errorf("create directory of tools: %w", err)
	}
	for name, target := range map[string]string{
		"kubectl": s.Binary("kubectl"), "ctr": s.Binary("ctr"), "tranche-cluster": spec.Tool,
	} {
		if err := os.Symlink(target, filepath.Join(tools, name)); err != nil {
			return nil, fmt.Errorf("link tool: %w", err)
		}
	}
	// For us too: the command itself is looked up there.
	if err := os.Setenv("PATH", tools+":"+os.Getenv("PATH")); err != nil {
		return nil, fmt.Errorf("set PATH: %w", err)
	}
	return append(os.Environ(),
		"KUBECONFIG="+s.PKI(pki.Admin+".kubeconfig"),
		"TRANCHE_CLUSTER_CTL="+filepath.Join(tools, "tranche-cluster"),
		"TRANCHE_CLUSTER_SOCKET="+config.ControlSocket,
		"TRANCHE_CLUSTER_NODE="+config.NodeName,
		"TRANCHE_CLUSTER_NODE_IP="+config.NodeIP.String(),
		"TRANCHE_CLUSTER_WORK="+s.Work,
		"TRANCHE_CLUSTER_BINARIES="+s.Binaries,
		"TRANCHE_CLUSTER_PKI="+s.PKI(),
		"TRANCHE_CLUSTER_LOGS="+s.Logs(),
		"TRANCHE_CLUSTER_CGROUP="+s.Cgroup,
		"TRANCHE_CLUSTER_CDI_DIR="+s.CDIDir,
		"CONTAINERD_ADDRESS="+config.ContainerdSocket,
		"CONTAINERD_NAMESPACE=k8s.io",
	), nil
}

// execute runs one command on our standard streams, in a process group of its own.
func execute(ctx context.Context, argv []string, dir string, env []string) (int, error) {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return exitNotFound, fmt.Errorf("find command: %w", err)
	}
	command := exec.CommandContext(ctx, path, argv[1:]...)
	command.Dir, command.Env = dir, env
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if Terminal(os.Stdin) {
		// It may read from the terminal, and gets the Ctrl-C that is typed there.
		command.SysProcAttr.Foreground, command.SysProcAttr.Ctty = true, int(os.Stdin.Fd())
	}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
	command.WaitDelay = graceful
	err = command.Run()
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
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
	return 0, fmt.Errorf("run command: %w", err)
}

// Terminal says whether a file is one.
func Terminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
