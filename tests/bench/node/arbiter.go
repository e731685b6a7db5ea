// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// arbiterPatience is generous: it ends only runs that have failed.
	arbiterPatience = 10 * time.Second
	inMemory        = "/dev/shm"
	arbiterPackage  = "github.com/tranche-dra/tranche/cmd/tranche-arbiter"
)

// startArbiter builds tranche-arbiter and runs it for the node whose files are
// below dir. Stop ends it.
func startArbiter(ctx context.Context, dir string) (stop func(), err error) {
	program := filepath.Join(dir, "tranche-arbiter")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-tags", "grpcnotrace", "-o", program, arbiterPackage)
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the arbiter: %w: %s", err, out)
	}
	run, err := os.MkdirTemp(inMemory, "tranche-run-") // as /run is
	if err != nil {
		return nil, err
	}
	arbiter := exec.CommandContext(ctx, program, "--state-dir="+filepath.Join(dir, "state"), "--run-dir="+run,
		"--metrics-address=", "--kubernetes=false")
	log, err := os.Create(filepath.Join(dir, "arbiter.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the arbiter has it open
	arbiter.Stderr = log
	if err := arbiter.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the arbiter: %w", err), os.RemoveAll(run))
	}
	return func() {
		_ = arbiter.Process.Signal(unix.SIGTERM)
		_ = arbiter.Wait() // nothing is judged by how it ends
		_ = os.RemoveAll(run)
	}, nil
}
