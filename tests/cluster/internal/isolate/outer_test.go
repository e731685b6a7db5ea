// SPDX-License-Identifier: Apache-2.0

package isolate

import (
	"errors"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStatusIsWhatAShellWouldSay(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -KILL $$": 137} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			got, err := status(exec.Command("sh", "-c", script).Run())
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
	_, err := status(errors.New("no child"))
	require.ErrorContains(t, err, "no child")
}
