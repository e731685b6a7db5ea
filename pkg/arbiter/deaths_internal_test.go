// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"os/exec"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheEndsOfProcessesAreTold(t *testing.T) {
	t.Parallel()
	d, err := awaitDeaths(t.Context())
	require.NoError(t, err)
	start := func() (process, *exec.Cmd) {
		cmd := exec.CommandContext(t.Context(), "cat")
		in, err := cmd.StdinPipe() // without an end
		require.NoError(t, err)
		t.Cleanup(func() { _ = in.Close() })
		require.NoError(t, cmd.Start())
		p, err := findProcess(cmd.Process.Pid)
		require.NoError(t, err)
		return p, cmd
	}
	end := func(cmd *exec.Cmd) {
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
	}
	ended, cmd := start()
	end(cmd)
	early := make(chan struct{})
	forget := d.await(ended, func() { close(early) })
	<-early
	forget()

	var told [3]atomic.Bool
	var processes [3]process
	var cmds [3]*exec.Cmd
	var forgets [3]func()
	last := make(chan struct{})
	for i := range told {
		processes[i], cmds[i] = start()
		forgets[i] = d.await(processes[i], func() {
			if told[i].Store(true); i == 2 {
				close(last)
			}
		})
	}
	forgets[0]()
	require.NoError(t, processes[1].pidfd.Close())
	for _, cmd := range cmds {
		end(cmd)
	}
	<-last
	require.False(t, told[0].Load(), "it was forgotten")
	require.False(t, told[1].Load(), "its descriptor was closed")
	d.end()
	for _, p := range []process{ended, processes[0], processes[2]} {
		require.NoError(t, p.pidfd.Close())
	}
}
