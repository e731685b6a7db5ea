// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/tranche-dra/tranche/tests/golden"
)

// clock goes on by a second at every look.
func clock() func() time.Time {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return func() time.Time {
		now = now.Add(time.Second)
		return now
	}
}

// newDemo is a demo in the world given, and what it says.
func newDemo(w *world) (*demo, *bytes.Buffer) {
	var said bytes.Buffer
	return &demo{
		client: w.client, kubectl: w.kubectl, talk: w.talk, say: newNarrator(&said, clock()), patience: time.Minute,
		program: "build/bin/demo",
	}, &said
}

func TestTheStory(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ keep, testCluster bool }{
		"ends": {false, true}, "stays": {true, true}, "own": {true, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d, said := newDemo(w)
			d.keep, d.testCluster = test.keep, test.testCluster
			require.NoError(t, d.run(t.Context()))
			golden.Equal(t, name+".golden.txt", said.Bytes())
			require.Equal(t, []string{"apply -k " + localCluster, "apply -f " + threePods + " -o json", "apply -f " + fourthPod + " -o json", "apply -f " + wholeCard + " -o json", "logs part-a", "logs part-a", "logs part-c"}, w.calls)
		})
	}
}

func TestWhatStopsTheStory(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*world)
		is     error
		says   []string
	}{
		"kubectl fails": {
			change: func(w *world) { w.kubectlFails = errors.New("no such file") },
			says:   []string{"install the driver: no such file"},
		},
		"the driver is never ready: its last words are shown": {
			change: func(w *world) { w.ready = 0 },
			says:   []string{"wait for the driver to be ready on every node: not within", "0 of 1 pods are ready", "Last lines of tranche-system/tranche-node-x"},
		},
		"the arbiter is never ready": {
			change: func(w *world) { w.arbiters = 0 },
			says:   []string{"wait for the arbiter to be ready on every node: not within", "0 of 1 pods are ready"},
		},
		"a card is missing": {
			change: func(w *world) { w.cards = 1 },
			says:   []string{"wait for the cards to be published: not within", "1 of 2 cards are published"},
		},
		"a pod cannot be placed: the scheduler's reason is shown": {
			change: func(w *world) { w.pending["c"] = true },
			says:   []string{"to run: not within", "default/c is Pending; cannot allocate all claims", "Pod default/c: FailedScheduling: no card"},
		},
		"three pods that ought to share a card are on two": {
			change: func(w *world) { w.places["c"] = 1 },
			is:     errPlacement, says: []string{"default/c", "it is on card 1, default/a on card 0"},
		},
		"the fourth pod is on the card that is full": {
			change: func(w *world) { w.places["d"] = 0 },
			is:     errPlacement, says: []string{"it is on card 0, which was full"},
		},
		"a pod runs without a share": {
			change: func(w *world) { delete(w.places, "b") },
			is:     errPlacement, says: []string{"default/b", "it holds no share"},
		},
		"the pod without room finds some": {
			change: func(w *world) { w.pending["e"] = false },
			says:   []string{"wait for the scheduler to say why default/e waits: not within", "it has no event FailedScheduling"},
		},
		"a program never gets to its limit": {
			change: func(w *world) { w.silent = true },
			says:   []string{"wait for pod part-a to say how far it got: not within", "it has not said"},
		},
		"a program cannot compute; the others do not wait for it": {
			change: func(w *world) { w.workFails = errors.New("no such pod") },
			says:   []string{"compute in pod part-c: no such pod"},
		},
		"a program does not say what it did": {
			change: func(w *world) { w.idle = true },
			is:     errNotSaid, says: []string{"compute in pod part-", "find the number of launches"},
		},
		"nobody refuses the wrong claim": {
			change: func(w *world) { w.refuses = false },
			says:   []string{"wait for a wrong claim to be refused: not within", "the API server accepts it"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			test.change(w)
			d, _ := newDemo(w)
			d.patience = 300 * time.Millisecond
			err := d.run(t.Context())
			require.Error(t, err)
			for _, words := range test.says {
				require.ErrorContains(t, err, words)
			}
			if test.is != nil {
				require.ErrorIs(t, err, test.is)
			}
		})
	}
}

func TestShow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.install(t.Context())
	w.pods(t.Context(), "a", "d")
	for name, args := range map[string][]string{"show.golden.txt": {"show"}, "show.golden.json": {"show", "--json"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			cmd := newCommand(func(string) (kubernetes.Interface, error) { return w.client, nil })
			cmd.SetArgs(args)
			cmd.SetOut(&out)
			require.NoError(t, cmd.ExecuteContext(t.Context()))
			golden.Equal(t, name, out.Bytes())
		})
	}
	t.Run("a cluster that cannot be reached is an error", func(t *testing.T) {
		t.Parallel()
		cmd := newCommand(connect)
		cmd.SetArgs([]string{"show", "--kubeconfig", filepath.Join(t.TempDir(), "none")})
		require.ErrorIs(t, cmd.ExecuteContext(t.Context()), os.ErrNotExist)
	})
	t.Run("where no cluster is named the error says how to name one", func(t *testing.T) {
		t.Parallel()
		empty := filepath.Join(t.TempDir(), "empty")
		require.NoError(t, os.WriteFile(empty, nil, 0o600))
		cmd := newCommand(connect)
		cmd.SetArgs([]string{"show", "--kubeconfig", empty})
		require.ErrorIs(t, cmd.ExecuteContext(t.Context()), errNoCluster)
	})
}

func TestAwait(t *testing.T) {
	t.Parallel()
	t.Run("it asks until nothing is missing, whatever went wrong in between", func(t *testing.T) {
		t.Parallel()
		d, _ := newDemo(newWorld(t))
		asked := 0
		require.NoError(t, d.await(t.Context(), "it", func(context.Context) (string, error) {
			asked++
			switch asked {
			case 1:
				return "all", nil
			case 2:
				return "", errors.New("busy")
			}
			return "", nil
		}))
		require.Equal(t, 3, asked)
	})
	t.Run("an interrupt ends it without an explanation", func(t *testing.T) {
		t.Parallel()
		d, _ := newDemo(newWorld(t))
		interrupted := errors.New("interrupted")
		ctx, cancel := context.WithCancelCause(t.Context())
		err := d.await(ctx, "it", func(context.Context) (string, error) {
			cancel(interrupted)
			return "all", nil
		})
		require.ErrorIs(t, err, interrupted)
		require.NotContains(t, err.Error(), "Warnings")
	})
	t.Run("the last error is what was missing", func(t *testing.T) {
		t.Parallel()
		d, _ := newDemo(newWorld(t))
		d.patience = 150 * time.Millisecond
		err := d.await(t.Context(), "it", func(context.Context) (string, error) { return "", errors.New("API server is away") })
		require.ErrorContains(t, err, "wait for it: not within 150ms: API server is away")
	})
}

func TestPodsInWhatKubectlPrints(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		printed string
		want    []types.NamespacedName
		fails   bool
	}{
		"a list with other things": {
			printed: `{"kind":"List","items":[{"kind":"Pod","metadata":{"namespace":"n","name":"a"}},{"kind":"Service","metadata":{"name":"s"}}]}`,
			want:    []types.NamespacedName{{Namespace: "n", Name: "a"}},
		},
		"a single pod": {
			printed: `{"kind":"Pod","metadata":{"namespace":"n","name":"a"}}`,
			want:    []types.NamespacedName{{Namespace: "n", Name: "a"}},
		},
		"no pod":    {printed: `{"kind":"List","items":[]}`},
		"not JSON":  {printed: `pod/a created`, fails: true},
		"cut short": {printed: `{"kind":"List"`, fails: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := podsIn([]byte(test.printed))
			require.Equal(t, test.fails, err != nil)
			require.Equal(t, test.want, got)
		})
	}
}

func TestKubectlErrorsSayWhatTheToolSaid(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := filepath.Join(dir, "tool")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\necho out \"$@\" ${KUBECONFIG}\npwd\necho problem >&2\n[ \"$1\" != fail ]\n"), 0o700))
	tool := kubectl{dir: dir, program: program, kubeconfig: "/some/file"}
	out, err := tool.run(t.Context(), "get", "pods")
	require.NoError(t, err)
	require.Equal(t, "out get pods /some/file\n"+dir+"\n", string(out))
	_, err = tool.run(t.Context(), "fail", "now")
	require.ErrorContains(t, err, "run kubectl fail now: exit status 1\nproblem")
}

func TestBlocksAreSetIn(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	n := newNarrator(&said, clock())
	n.block("\na\n\nb\n")
	require.Equal(t, "   a\n\n   b\n", said.String())
}

func TestParagraphsAreBrokenIntoLines(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	n := newNarrator(&said, clock())
	long := strings.Repeat("x", 120)
	n.text(strings.Repeat("word ", 25) + long + " end")
	require.Equal(t, "   "+strings.TrimSuffix(strings.Repeat("word ", 20), " ")+"\n   word word word word word\n   "+long+"\n   end\n", said.String())
}
