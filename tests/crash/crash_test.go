// SPDX-License-Identifier: Apache-2.0

// Package crash kills the driver before every single change that preparing and
// unpreparing make to the disk, and checks that a retry ends where the
// uninterrupted run ends. The driver is a child process and the kill is
// SIGKILL: nothing gets to clean up.
package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dra/tranche/pkg/claims"
	"github.com/tranche-dra/tranche/pkg/durable"
	"github.com/tranche-dra/tranche/tests/fixture"
)

const (
	envJob  = "TRANCHE_CRASH_JOB"
	envStep = "TRANCHE_CRASH_STEP"
	envDir  = "TRANCHE_CRASH_DIR"
	boot    = "boot-1"
)

// The claims of all runs: a bystander on the same card, and the one that the
// driver dies over, with two shares of one card and one of another. It may also
// come back with another allocation under the same UID.
func bystander() *resourceapi.ResourceClaim {
	return fixture.Claim("bystander", fixture.Result{Request: "gpu", Card: 0, Cores: 10, Memory: "1Gi"})
}

func victim() *resourceapi.ResourceClaim {
	return fixture.Claim("victim",
		fixture.Result{Request: "a", Card: 0, Cores: 30, Memory: "4Gi"},
		fixture.Result{Request: "b", Card: 0, Cores: 20, Memory: "2Gi"},
		fixture.Result{Request: "b", Card: 1, Cores: 20, Memory: "2Gi"})
}

func reallocated() *resourceapi.ResourceClaim {
	claim := victim()
	for i := range claim.Status.Allocation.Devices.Results {
		id := *claim.Status.Allocation.Devices.Results[i].ShareID + "x"
		claim.Status.Allocation.Devices.Results[i].ShareID = &id
	}
	return claim
}

// jobs are what the child does.
var jobs = map[string]func(ctx context.Context, n *fixture.Node) error{
	"bystander": func(ctx context.Context, n *fixture.Node) error { return prepareOnce(ctx, n, bystander()) },
	"prepare":   func(ctx context.Context, n *fixture.Node) error { return prepareOnce(ctx, n, victim()) },
	"realloc":   func(ctx context.Context, n *fixture.Node) error { return prepareOnce(ctx, n, reallocated()) },
	"unprepare": func(ctx context.Context, n *fixture.Node) error { return n.Unprepare(ctx, claims.Of(victim())) },
	"restore": func(ctx context.Context, n *fixture.Node) error {
		_, err := n.Restore(ctx, string(victim().UID))
		return err
	},
}

func prepareOnce(ctx context.Context, n *fixture.Node, claim *resourceapi.ResourceClaim) error {
	prepared, err := n.Prepare(ctx, claim)
	if err == nil && len(prepared) != len(claim.Status.Allocation.Devices.Results) {
		return fmt.Errorf("prepared %d shares", len(prepared))
	}
	return err
}

// TestMain is the child when a job is named, and the tests otherwise.
func TestMain(m *testing.M) {
	job, isChild := os.LookupEnv(envJob)
	if !isChild {
		os.Exit(m.Run())
	}
	if err := child(job); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// child runs one job and dies before the step whose number it was given. It
// writes the number of steps that it took to a file beside the node's.
func child(job string) error {
	dieAt, err := strconv.Atoi(os.Getenv(envStep))
	if err != nil {
		return err
	}
	steps := 0
	files := durable.Files{Step: func(string, string) {
		if steps++; steps == dieAt {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}}
	dir := os.Getenv(envDir)
	// Only the job is interrupted, not the opening of the stores.
	if _, err := fixture.NewNode(filepath.Join(dir, "node"), 2, boot, durable.Files{}); err != nil {
		return err
	}
	node, err := fixture.NewNode(filepath.Join(dir, "node"), 2, boot, files)
	if err != nil {
		return err
	}
	if err := jobs[job](context.Background(), node); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "steps"), []byte(strconv.Itoa(steps)), 0o600)
}

// run starts a child and returns the steps that it took, or whether it died at dieAt.
func run(t *testing.T, dir, job string, dieAt int) (steps int, died bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), envJob+"="+job, envDir+"="+dir, envStep+"="+strconv.Itoa(dieAt))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		require.NoError(t, ctx.Err())
		return 0, true
	}
	require.NoError(t, err, "%s: %s", job, out)
	count, err := os.ReadFile(filepath.Join(dir, "steps"))
	require.NoError(t, err)
	steps, err = strconv.Atoi(string(count))
	require.NoError(t, err)
	return steps, false
}

// tree is every file and directory of the node with mode and content.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	root := filepath.Join(dir, "node")
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content := info.Mode().String()
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content += "\n" + string(data)
		}
		if d.Name() == "lock" {
			content = info.Mode().String() // its mark is random
		}
		all[strings.TrimPrefix(path, root)] = strings.ReplaceAll(content, dir, "<dir>")
		return nil
	}))
	return all
}

// requireNoOrphans checks what must hold at every moment, retried or not: what
// the victim has on the node, a record tells of.
func requireNoOrphans(t *testing.T, files map[string]string) {
	t.Helper()
	uid := string(victim().UID)
	record, recorded := files["/state/claims/"+uid+".json"]
	for path := range files {
		// The record itself may be half-written under its temporary name.
		if strings.Contains(path, uid) && !strings.HasPrefix(path, "/state/claims/") {
			require.True(t, recorded, "%s without a record", path)
		}
	}
	if recorded {
		_, content, _ := strings.Cut(record, "\n")
		require.True(t, json.Valid([]byte(content)), "a record is whole at every moment")
	}
}

func TestRetryAfterAKillAnywhereEqualsTheUninterruptedRun(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		// before brings the node to where job starts; job is killed; after is
		// what is retried, and ends where want ends uninterrupted.
		before    []string
		job       string
		after     []string
		wantAfter []string
	}{
		{"prepare, then prepare again", nil, "prepare", []string{"prepare"}, []string{"prepare"}},
		{"prepare, then the pod is deleted", nil, "prepare", []string{"unprepare"}, []string{"prepare", "unprepare"}},
		{"prepare, then the driver heals and the pod is deleted", nil, "prepare", []string{"restore", "unprepare"}, []string{"prepare", "unprepare"}},
		{"prepare, then the driver heals and kubelet tries again", nil, "prepare", []string{"restore", "prepare"}, []string{"prepare"}},
		{"unprepare, then unprepare again", []string{"prepare"}, "unprepare", []string{"unprepare"}, []string{"prepare", "unprepare"}},
		{"unprepare, then the driver heals", []string{"prepare"}, "unprepare", []string{"restore", "unprepare"}, []string{"prepare", "unprepare"}},
		{"unprepare, then another pod uses the claim", []string{"prepare"}, "unprepare", []string{"prepare"}, []string{"prepare"}},
		{"prepare of a claim that was allocated again", []string{"prepare"}, "realloc", []string{"realloc"}, []string{"prepare", "realloc"}},
		{"healing of a wiped node", []string{"prepare", "wipe"}, "restore", []string{"restore"}, []string{"prepare"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			start := func(t *testing.T, jobs []string) string {
				t.Helper()
				dir := t.TempDir()
				for _, job := range append([]string{"bystander"}, jobs...) {
					if job == "wipe" {
						wipe(t, dir)
						continue
					}
					_, died := run(t, dir, job, 0)
					require.False(t, died)
				}
				return dir
			}
			want := tree(t, start(t, tc.wantAfter))
			total, died := run(t, start(t, tc.before), tc.job, 0)
			require.False(t, died)
			require.Greater(t, total, 5, "the job changes the disk")
			for step := 1; step <= total; step++ {
				dir := start(t, tc.before)
				_, died := run(t, dir, tc.job, step)
				require.True(t, died, "step %d of %d", step, total)
				requireNoOrphans(t, tree(t, dir))
				for _, job := range tc.after {
					// A second kill, later in the retry, changes nothing.
					run(t, dir, job, step/2+1)
					_, died := run(t, dir, job, 0)
					require.False(t, died)
				}
				require.Empty(t, cmp.Diff(want, tree(t, dir)), "killed before step %d of %d", step, total)
			}
		})
	}
}

func wipe(t *testing.T, dir string) {
	t.Helper()
	for _, d := range []string{"node/cdi", "node/state/shares"} {
		entries, err := os.ReadDir(filepath.Join(dir, d))
		require.NoError(t, err)
		for _, e := range entries {
			if strings.Contains(e.Name(), string(victim().UID)) {
				require.NoError(t, os.RemoveAll(filepath.Join(dir, d, e.Name())))
			}
		}
	}
}
