// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Made puts files of build/native/FLAVOUR, which are named from there, into a directory,
// each under its last name. Where they are not up to date, they are made in the
// directory: tests run beside each other, and two that make one file would spoil it.
func Made(dir string, files ...string) error {
	root, err := repository()
	if err != nil {
		return err
	}
	native := filepath.Join("build", "native", Flavour())
	if maker(root, native, files, "--question").Run() != nil {
		native = filepath.Join(dir, "made")
		if out, err := maker(root, native, files).CombinedOutput(); err != nil {
			return fmt.Errorf("make %v: %w: %s", files, err, out)
		}
	} else {
		native = filepath.Join(root, native)
	}
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(native, file))
		if err := errors.Join(err, os.WriteFile(filepath.Join(dir, filepath.Base(file)), content, 0o755)); err != nil {
			return err
		}
	}
	return nil
}

// maker makes files of a directory that is instead of build/native/FLAVOUR.
func maker(root, native string, files []string, flags ...string) *exec.Cmd {
	args := append([]string{"-s", "-C", root, "FLAVOUR=" + Flavour(), "NATIVE=" + native}, flags...)
	for _, file := range files {
		args = append(args, filepath.Join(native, file))
	}
	return exec.Command("make", args...)
}
