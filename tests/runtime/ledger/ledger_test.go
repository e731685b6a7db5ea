// SPDX-License-Identifier: Apache-2.0

//go:build native

// Package ledger tests the algorithm of the shared ledger by itself.
package ledger

import (
	"context"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// build makes hammer, with the flags given besides the usual ones.
func build(t *testing.T, flags ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "hammer")
	session := filepath.Join("..", "..", "..", "cdi", "runtime", "session")
	args := append([]string{
		"-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-fno-strict-aliasing", "-g", "-pthread",
		"-DLEDGER_STEP()=hammer_step()", "-include", filepath.Join("testdata", "step.h"),
		"-I" + filepath.Dir(session), filepath.Join("testdata", "hammer.c"), filepath.Join(session, "ledger.c"), filepath.Join(session, "sync.c"), "-o", program,
	}, flags...)
	out, err := exec.CommandContext(t.Context(), "gcc", args...).CombinedOutput()
	require.NoErrorf(t, err, "%s", out)
	return program
}

func TestTheTruthIsNeverAboveTheLimit(t *testing.T) {
	t.Parallel()
	type run struct {
		limit, most, processes, threads, rounds, kills int
	}
	const endless = 1 << 40
	tests := []struct {
		name  string
		run   run
		flags []string
	}{
		{"threads of one process with room for all are never refused", run{4 * 64, 64, 1, 4, 100_000, 0}, []string{"-O2"}},
		{"processes with room for all are never refused", run{4 * 64, 64, 4, 1, 100_000, 0}, []string{"-O2"}},
		{"processes and threads with room for all are never refused", run{16 * 64, 64, 4, 4, 20_000, 0}, []string{"-O2"}},
		{"many who want all of it take turns", run{64, 64, 4, 2, 3_000, 0}, []string{"-O2"}},
		{"room for half of them", run{4 * 64, 64, 4, 2, 20_000, 0}, []string{"-O2"}},
		{"killed at any instant, with room for all, nobody else is refused", run{8 * 64, 64, 4, 2, 20_000, 150}, []string{"-O2"}},
		{"killed at any instant, with room for half of them", run{4 * 64, 64, 4, 2, 5_000, 150}, []string{"-O2"}},
		{"one unit for everybody, with kills", run{1, 1, 8, 1, 3_000, 100}, []string{"-O2"}},
		{"an endless limit", run{endless, 1 << 30, 2, 2, 20_000, 20}, []string{"-O2"}},
		{"threads under the thread sanitizer", run{3 * 64, 64, 1, 4, 5_000, 0}, []string{"-O1", "-fsanitize=thread"}},
		{
			"processes under the address and undefined behaviour sanitizers",
			run{4 * 64, 64, 3, 2, 5_000, 30},
			[]string{"-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			program := build(t, tt.flags...)
			// Nobody waits for ever: not even as long as this.
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			r := tt.run
			args := []string{}
			for _, n := range []int{r.limit, r.most, r.processes, r.threads, r.rounds, r.kills} {
				args = append(args, strconv.Itoa(n))
			}
			out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
			require.NoErrorf(t, err, "hammer %v: %s", args, out)
			t.Logf("%s", out)
		})
	}
}
