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
)

// Directory checks that this process can write to a directory.
type Directory struct {
	Path string
	// Remedy for one that is missing or cannot be written to.
	Remedy string
	// Lasting directories hold what must outlive a reboot.
	Lasting bool
}

// Examine implements Examiner.
func (d Directory) Examine(context.Context) []Finding {
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
func StateDirectory(path string) Directory {
	return Directory{Path: path, Lasting: true, Remedy: "mount a directory of the node's disk there, or choose another: --state-dir"}
}

// KubeletDirectories checks where the driver's sockets are.
func KubeletDirectories(kubeletRoot string) []Directory {
	const remedy = "kubelet makes it: see whether --kubelet-root is kubelet's --root-dir, and whether it is mounted at the same path here"
	return []Directory{
		{Path: filepath.Join(kubeletRoot, "plugins"), Remedy: remedy},
		{Path: filepath.Join(kubeletRoot, "plugins_registry"), Remedy: remedy},
	}
}

// CDIDirectory checks the directory of CDI specs at that path.
type CDIDirectory string

// Examine implements Examiner.
func (d CDIDirectory) Examine(context.Context) []Finding {
	path := string(d)
	err := cdi.NewSpecs(path, durable.Files{}).Check()
	switch {
	case err == nil:
		return one(OK, "can write to "+path, "")
	case errors.Is(err, cdi.ErrDirectoryGone):
		return one(Problem, err.Error(), "delete the driver's pod on this node; the one that follows mounts the directory of today")
	case errors.Is(err, fs.ErrNotExist):
		return one(Warning, err.Error(), "the driver makes it when it starts; should that not help, mount it: --cdi-root")
	default:
		return one(Problem, err.Error(), "let the driver write there, or choose another directory that the runtime reads: --cdi-root")
	}
}
