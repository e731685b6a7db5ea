// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/pkg/durable"
	"github.com/tranche-dra/tranche/pkg/hostdir"
)

// Directory checks that this process can write to a directory.
type Directory struct {
	Path string
	// Remedy for one that is missing or cannot be written to.
	Remedy string
	// Lasting directories hold what must outlive a reboot.
	Lasting bool
	// Host is where the same directory is seen as the host has it.
	Host hostdir.Host
}

// remedyStale is for a directory that only a new container gets.
const remedyStale = "restart the driver's pod on this node (kubectl -n tranche-system delete pod): the one that follows mounts the directory of today"

// Examine implements Examiner.
func (d Directory) Examine(context.Context) []Finding {
	if err := d.Host.Check(d.Path); err != nil {
		return one(Problem, err.Error(), remedyStale)
	}
	if err := d.check(); err != nil {
		return one(Problem, err.Error(), d.Remedy)
	}
	if !d.Lasting {
		return one(OK, "can write to "+d.Path, "")
	}
	var system unix.Statfs_t
	if err := unix.Statfs(d.Path, &system); err != nil {
		return one(Problem, fmt.Sprintf("check directory %s: %v", d.Path, err), d.Remedy)
	}
	switch system.Type {
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC:
		return one(Warning, d.Path+" is in memory: who holds which share is forgotten at a reboot", "choose a directory on a disk: --state-dir")
	default:
		return one(OK, "can write to "+d.Path+", on a disk", "")
	}
}

func (d Directory) check() error {
	info, err := os.Stat(d.Path)
	if err != nil {
		return fmt.Errorf("check directory: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("check directory: %s is not a directory", d.Path)
	}
	if err := unix.Access(d.Path, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("check directory: write to %s: %w", d.Path, err)
	}
	return nil
}

// StateDirectory checks the directory of records and shares.
func StateDirectory(path string, host hostdir.Host) Directory {
	return Directory{Path: path, Host: host, Lasting: true, Remedy: "mount a directory of the node's disk there, or choose another: --state-dir"}
}

// KubeletDirectories checks where the driver's sockets are.
func KubeletDirectories(kubeletRoot string, host hostdir.Host) []Directory {
	const remedy = "kubelet makes it: see whether --kubelet-root is kubelet's --root-dir, and whether it is mounted at the same path here"
	return []Directory{
		{Path: filepath.Join(kubeletRoot, "plugins"), Host: host, Remedy: remedy},
		{Path: filepath.Join(kubeletRoot, "plugins_registry"), Host: host, Remedy: remedy},
	}
}

// CDIDirectory checks the directory of CDI specs.
type CDIDirectory struct {
	Path string
	// Host is where the same directory is seen as the host has it.
	Host hostdir.Host
}

// Examine implements Examiner.
func (d CDIDirectory) Examine(context.Context) []Finding {
	if err := d.Host.Check(d.Path); err != nil {
		return one(Problem, err.Error(), remedyStale)
	}
	err := cdi.NewSpecs(d.Path, durable.Files{}).Check()
	switch {
	case err == nil:
		return one(OK, "can write to "+d.Path, "")
	case errors.Is(err, fs.ErrNotExist):
		return one(Warning, err.Error(), "the driver makes it when it starts; should that not help, mount it: --cdi-root")
	default:
		return one(Problem, err.Error(), "let the driver write there, or choose another directory that the runtime reads: --cdi-root")
	}
}
