// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tranche-dra/tranche/tests/cluster/internal/binaries"
	"github.com/tranche-dra/tranche/tests/cluster/internal/cgroups"
	"github.com/tranche-dra/tranche/tests/cluster/internal/config"
	"github.com/tranche-dra/tranche/tests/cluster/internal/host"
	"github.com/tranche-dra/tranche/tests/cluster/internal/isolate"
	"github.com/tranche-dra/tranche/tests/cluster/internal/mountpoint"
	"github.com/tranche-dra/tranche/tests/cluster/internal/node"
	"github.com/tranche-dra/tranche/tests/cluster/internal/oci"
	"github.com/tranche-dra/tranche/tests/cluster/internal/workdir"
)

// ExitBroken is the exit status for a cluster that failed, as opposed to its command.
const ExitBroken = 125

// pauseArchive is the pause image's file in a set of binaries.
const pauseArchive = "pause.tar"

// Options of one run. Spec.Settings need only hold what the user chose.
type Options struct {
	node.Spec
	// Work is the work directory; empty for a temporary one.
	Work string
	// InitArgs make this program call isolate.Init; the path of the spec is appended.
	InitArgs []string
}

// Builder returns a builder of the cluster's programs.
func Builder(sources string, say node.Say) (binaries.Builder, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return binaries.Builder{}, fmt.Errorf("find cache directory: %w", err)
	}
	return binaries.Builder{
		Sources: sources,
		Cache:   filepath.Join(cache, "tranche", "cluster"),
		Say:     say,
		Finish:  writePauseImage,
	}, nil
}

func writePauseImage(dir string) error {
	return oci.WriteFile(filepath.Join(dir, pauseArchive), oci.Image{
		Name:       config.PauseImage,
		Entrypoint: []string{"/pause"},
		User:       "65535:65535",
		Files:      []oci.File{{Path: "/pause", Source: filepath.Join(dir, "pause")}},
	})
}

// Run does everything and returns the exit status.
func Run(ctx context.Context, builder binaries.Builder, o Options, say node.Say) (code int, err error) {
	programs, err := host.Check(ctx, say)
	if err != nil {
		return 0, err
	}
	set, err := builder.Ensure(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, set.Release()) }()

	work, err := open(ctx, o.Work)
	if err != nil {
		return 0, err
	}
	defer func() {
		logs, cleared := work.Remove(err != nil || code != 0)
		if logs != "" {
			say("logs are in %s", logs)
		}
		err = errors.Join(err, cleared)
	}()
	root, err := cgroups.Create(ctx)
	if err != nil {
		return 0, err
	}
	// Not with ctx: what is to be removed is so after a signal too.
	defer func() {
		tidy := func() error { return mountpoint.Clear(config.MountPoints()) }
		err = errors.Join(err, root.Remove(context.WithoutCancel(ctx), tidy))
	}()

	spec := o.Spec
	spec.Settings.Work = work.Path
	spec.Settings.Binaries = set.Dir
	spec.Settings.Runc = programs.Runc
	spec.Settings.Cgroup = root.Path()
	spec.Images = append([]string{filepath.Join(set.Dir, pauseArchive)}, spec.Images...)
	spec.Begin = time.Now()
	return inside(ctx, spec, o.InitArgs)
}

func inside(ctx context.Context, spec node.Spec, initArgs []string) (int, error) {
	s := spec.Settings
	for _, dir := range []string{s.Etc(), s.Logs(), s.Data()} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return 0, fmt.Errorf("create directory: %w", err)
		}
	}
	file := s.Etc("run.json")
	if err := spec.Save(file); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, context.Cause(ctx)
	}
	return isolate.Run(ctx, append(initArgs, file)...)
}

// open takes the work directory.
func open(ctx context.Context, work string) (*workdir.Dir, error) {
	parent := work
	if work == "" {
		parent = os.TempDir()
	}
	// The inside has its own of these.
	for _, hidden := range []string{"/run", "/var/run", "/dev/shm", "/proc"} {
		if parent == hidden || strings.HasPrefix(parent, hidden+"/") {
			return nil, fmt.Errorf("use work directory %s: not below %s, which the cluster cannot see", parent, hidden)
		}
	}
	if work != "" {
		return workdir.Named(work)
	}
	return workdir.Temporary(ctx, parent)
}
