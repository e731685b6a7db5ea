// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/share"
)

func TestTheLastQuarterOfTheRoomIsForSharesThatHaveLittle(t *testing.T) {
	t.Parallel()
	r := room{limit: 400}
	for has := range 300 {
		require.True(t, r.take(has))
	}
	require.False(t, r.take(300), "the greedy share has enough")
	for has := range assured {
		require.True(t, r.take(has), "another one has none")
	}
	require.False(t, r.take(assured))
	for range 36 {
		require.True(t, r.take(0))
	}
	require.False(t, r.take(0), "there is no more")
	r.give()
	require.True(t, r.take(0))
}

func TestAPaceAllowsABurstAndThenSoManyASecond(t *testing.T) {
	t.Parallel()
	p := newPace(10, 100)
	now := time.Unix(1, 0)
	for range 10 {
		require.Zero(t, p.take(now))
	}
	require.Equal(t, 10*time.Millisecond, p.take(now))
	require.Equal(t, 20*time.Millisecond, p.take(now))
	now = now.Add(20 * time.Millisecond)
	require.Equal(t, 10*time.Millisecond, p.take(now), "after those who wait")
	now = now.Add(time.Hour)
	for range 10 {
		require.Zero(t, p.take(now), "a burst, and no more for the waiting")
	}
	require.Positive(t, p.take(now))
}

func TestPodsByTheirControlGroups(t *testing.T) {
	t.Parallel()
	const uid = "8b101b5f-9bfc-453d-9d43-83ec3d61b3d8"
	for name, tc := range map[string]struct{ cgroups, want string }{
		"systemd":             {"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice/cri-containerd-0123.scope\n", uid},
		"cgroupfs, version 1": {"12:cpu:/kubepods/besteffort/pod" + uid + "/0123\n1:name=systemd:/kubepods/besteffort/pod" + uid + "/0123\n", uid},
		"none":                {"0::/user.slice/user-0.slice/session-1.scope\n", ""},
		"another word":        {"0::/system.slice/podman-1234.scope\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, podIn(tc.cgroups))
		})
	}
}

func TestAProcessOfTheHostIsInNoContainer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	shares, err := sharesMount(dir)
	require.NoError(t, err)
	require.NotEmpty(t, shares.device)
	require.True(t, strings.HasSuffix(dir, shares.root) || strings.HasSuffix(shares.root, dir), "%q is where %q is", shares.root, dir)
	keys, err := sharesOf(os.Getpid(), shares)
	require.NoError(t, err)
	require.Empty(t, keys)
	_, err = sharesOf(-1, shares)
	require.Error(t, err)
	_, err = sharesMount(dir + "/none")
	require.Error(t, err)
}

func TestOnlyTheShareAboveCountsAsAMount(t *testing.T) {
	t.Parallel()
	shares := mount{device: "8:1", root: "/var/lib/tranche/shares"}
	mounts := []mount{
		{"8:1", "/var/lib/tranche/shares/a", "/run/tranche/a"},
		{"8:2", "/var/lib/tranche/shares/b", "/another/disk"},
		{"8:1", "/var/lib/tranche/shares", "/all/of/them"},
		{"8:1", "/var/lib/tranche/shares/c/below", "/below"},
		{"8:1", "/other/var/lib/tranche/shares/d", "/looks/like/it"},
		{"8:1", "/var/lib/tranche/sharesX/e", "/looks/like/it"},
	}
	require.Equal(t, []share.Key{"a"}, shares.below(mounts))
}

func TestWhatIsLessThanNothingIsNothing(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, 1, less(3, 2))
	require.Zero(t, less(2, 3))
	require.Zero(t, less(0, ^uint64(0)))
}

func TestFactsOfThisProcess(t *testing.T) {
	t.Parallel()
	facts, err := statOf(os.Getpid())
	require.NoError(t, err)
	require.False(t, facts.ending)
	require.NotZero(t, facts.started)
	p, err := findProcess(os.Getpid())
	require.NoError(t, err)
	require.Equal(t, facts.image, p.image)
	require.False(t, p.same(process{pid: p.pid, started: p.started + 1}))
	require.NoError(t, p.pidfd.Close())
	_, err = findProcess(1 << 30)
	require.ErrorIs(t, err, errPeerGone)
}
