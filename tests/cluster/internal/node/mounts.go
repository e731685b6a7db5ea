// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/tests/cluster/internal/config"
	"github.com/tranche-dra/tranche/tests/cluster/internal/mountpoint"
)

// sysctls are what kubelet sets for the whole machine
// (k8s.io/component-helpers/node/util/sysctl). It finds them set already, in
// files of ours, and leaves the machine's alone.
var sysctls = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// mounts gives the node its own /run, /dev/shm, state directories and sysctls.
func mounts(s config.Settings) error {
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	if target, err := filepath.EvalSymlinks("/var/run"); err == nil && target != "/run" {
		if err := bind("/run", "/var/run"); err != nil {
			return err
		}
	}
	// Shared memory of pods and of the command: two clusters must not meet there, and nothing may stay.
	if err := unix.Mount("tmpfs", "/dev/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"); err != nil {
		return fmt.Errorf("mount /dev/shm: %w", err)
	}
	for _, dir := range []string{config.RunDir, "/run/lock", s.CDIDir, s.Etc("cni"), s.Logs("pods"), s.Data("volume-plugins"), s.Data("containerd")} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return fmt.Errorf("create directory: %w", err)
		}
	}
	if err := linkSocket(); err != nil {
		return err
	}
	for i, target := range config.MountPoints() {
		source := s.Data("mounts", strconv.Itoa(i))
		if err := os.MkdirAll(source, 0o750); err != nil {
			return fmt.Errorf("create directory: %w", err)
		}
		if err := mountpoint.Make(target); err != nil {
			return err
		}
		if err := bind(source, target); err != nil {
			return err
		}
	}
	return shadowSysctls()
}

// linkSocket offers containerd's socket at its usual path, where tools look for
// it. The link is relative: a pod that sees the node's root elsewhere follows it too.
func linkSocket() error {
	link := config.UsualContainerdSocket
	if err := os.MkdirAll(filepath.Dir(link), 0o750); err != nil {
		return fmt.Errorf("create directory: %w", err)
	}
	target, err := filepath.Rel(filepath.Dir(link), config.ContainerdSocket)
	if err != nil {
		return fmt.Errorf("link containerd's socket: %w", err)
	}
	if err := os.Symlink(target, link); err != nil {
		return fmt.Errorf("link containerd's socket: %w", err)
	}
	return nil
}

func shadowSysctls() error {
	for name, value := range sysctls {
		target := filepath.Join("/proc/sys", name)
		if _, err := os.Stat(target); err != nil {
			continue // a kernel without it
		}
		file := filepath.Join(config.RunDir, "sysctl."+strings.ReplaceAll(name, "/", "."))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o600); err != nil {
			return fmt.Errorf("write sysctl: %w", err)
		}
		if err := bind(file, target); err != nil {
			return err
		}
	}
	return nil
}

func bind(source, target string) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", source, target, err)
	}
	return nil
}
