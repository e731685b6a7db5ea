// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"runtime"

	"github.com/tranche-dra/tranche/tests/cluster/internal/binaries"
	"github.com/tranche-dra/tranche/tests/cluster/internal/cluster"
	"github.com/tranche-dra/tranche/tests/cluster/internal/node"
)

func sourcesFlag(flags *flag.FlagSet) *string {
	return flags.String("sources", "", "the repository's tests/cluster; found from the current directory where empty")
}

func newBuilder(sources string, say node.Say) (binaries.Builder, error) {
	if sources == "" {
		var err error
		if sources, err = findSources(); err != nil {
			return binaries.Builder{}, err
		}
	}
	return cluster.Builder(sources, say)
}

// findSources looks upwards from the current directory, then where this file was compiled from.
// The sources cannot be embedded: they are modules of their own.
func findSources() (string, error) {
	var candidates []string
	if dir, err := os.Getwd(); err == nil {
		for ; ; dir = filepath.Dir(dir) {
			candidates = append(candidates, dir, filepath.Join(dir, "tests", "cluster"))
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		candidates = append(candidates, filepath.Dir(file))
	}
	for _, dir := range candidates {
		if _, err := os.Stat(filepath.Join(dir, "kube", "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("find the sources of the cluster's programs: run inside the repository, or give --sources")
}
