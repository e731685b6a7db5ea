// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/stretchr/testify/require"
	cdilib "tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/durable"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/tests/golden"
)

// installed is the runtime of these tests.
func installed() Runtime { return Runtime{Dir: "/var/lib/tranche/runtime/sha256-5f70"} }

// simCommon is what all simulated cards need.
func simCommon(t *testing.T) *specs.ContainerEdits {
	t.Helper()
	edits, err := simSource().Common(t.Context(), nil, installed())
	require.NoError(t, err)
	return edits
}

func simSource() SimulatedDriver {
	return NewSimulatedDriver("/run/tranche/cards", func(dir string, c card.Card) (string, error) { return filepath.Join(dir, string(c.UUID)), nil })
}

// simDevice is a share of a simulated card.
func simDevice(t *testing.T, s share.Share, c card.Card) Device {
	t.Helper()
	edits, err := simSource().Device(t.Context(), c)
	require.NoError(t, err)
	d := deviceOf(s, c)
	d.Edits = edits
	return d
}

// nodeEdits has the shape of what a real card needs. /dev/null stands for its
// node, for the library looks at the node when it edits a container.
func nodeEdits(name string) *specs.ContainerEdits {
	return &specs.ContainerEdits{DeviceNodes: []*specs.DeviceNode{{Path: "/dev/" + name, HostPath: "/dev/null", Permissions: "rw"}}}
}

// realCommon has the shape of what all cards of a real driver need.
func realCommon() *specs.ContainerEdits {
	edits := nodeEdits("nvidiactl")
	edits.Env = []string{"NVIDIA_VISIBLE_DEVICES=void"}
	substitution := installed().Substitute([]*specs.Mount{
		{HostPath: "/usr/lib64/libcuda.so.580.65.06", ContainerPath: "/usr/lib64/libcuda.so.580.65.06", Options: []string{"ro", "rbind", "rshared"}},
		{HostPath: "/dev/null", ContainerPath: "/var/run/nvidia-container-devices/void", Options: []string{"ro", "bind", "rshared"}},
	}, func(*specs.Mount) bool { return true })
	edits.Mounts = slices.Concat(substitution.Driver, substitution.Runtime)
	edits.Hooks = []*specs.Hook{
		{HookName: "createContainer", Path: "/usr/bin/nvidia-cdi-hook", Args: []string{"nvidia-cdi-hook", "update-ldcache"}},
		{HookName: "createContainer", Path: "/usr/bin/nvidia-cdi-hook", Args: []string{"nvidia-cdi-hook", "create-symlinks"}},
	}
	return edits
}

func TestSpecsOfClaims(t *testing.T) {
	t.Parallel()
	one := shareOf(uidA, "gpu", "11111111-1111-1111-1111-111111111111", cardA)
	twin := shareOf(uidA, "gpu", "22222222-2222-2222-2222-222222222222", cardA)
	other := shareOf(uidA, "gpu", "33333333-3333-3333-3333-333333333333", cardB)
	whole := shareOf(uidA, "main/whole", "", cardB)
	whole.Whole = true
	withNode := func(s share.Share, c card.Card, node string) Device {
		d := deviceOf(s, c)
		d.Edits = nodeEdits(node)
		return d
	}
	for _, row := range []struct {
		name, golden string
		devices      []Device
		common       *specs.ContainerEdits
	}{
		{"one share of a simulated card", "one-share.json", []Device{simDevice(t, one, cardA)}, simCommon(t)},
		{"two shares on two simulated cards", "two-simulated.json", []Device{simDevice(t, one, cardA), simDevice(t, other, cardB)}, simCommon(t)},
		{"two shares on two cards", "two-shares.json", []Device{withNode(one, cardA, "nvidia0"), withNode(other, cardB, "nvidia1")}, realCommon()},
		{"the same card twice in a claim", "same-card-twice.json", []Device{withNode(one, cardA, "nvidia0"), withNode(twin, cardA, "nvidia0")}, realCommon()},
		{"a whole card that needs nothing in common", "whole-card.json", []Device{withNode(whole, cardB, "nvidia1")}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			data, err := Build(claim(uidA), row.devices, row.common)
			require.NoError(t, err)
			golden.Equal(t, row.golden, data)

			slices.Reverse(row.devices)
			again, err := Build(claim(uidA), row.devices, row.common)
			require.NoError(t, err)
			require.Equal(t, string(data), string(again), "the order of the arguments does not show")

			file := filepath.Join(t.TempDir(), "spec.json")
			require.NoError(t, os.WriteFile(file, data, 0o600))
			spec, err := cdilib.ReadSpec(file, 0)
			require.NoError(t, err, "the CDI library reads it")
			require.Equal(t, "0.5.0", spec.Version, "what old container runtimes know")
			for _, d := range row.devices {
				require.NotNil(t, spec.GetDevice(string(d.Share.Key())))
			}
			require.Len(t, spec.Devices, len(row.devices))
			for _, m := range mountsOf(spec.Spec) {
				require.Equal(t, "rprivate", m.Options[len(m.Options)-1], m.ContainerPath)
				require.NotContains(t, m.Options, "rshared", m.ContainerPath)
			}
		})
	}
}

func mountsOf(spec *specs.Spec) []*specs.Mount {
	mounts := spec.ContainerEdits.Mounts
	for _, d := range spec.Devices {
		mounts = append(mounts, d.ContainerEdits.Mounts...)
	}
	return mounts
}

func TestBuildLeavesItsArgumentsAlone(t *testing.T) {
	t.Parallel()
	device := deviceOf(shareOf(uidA, "gpu", "1", cardA), cardA)
	device.Edits = nodeEdits("nvidia0")
	common := realCommon()
	_, err := Build(claim(uidA), []Device{device}, common)
	require.NoError(t, err)
	require.Equal(t, realCommon(), common)
	require.Equal(t, nodeEdits("nvidia0"), device.Edits)
}

func TestWhatIsSaidTwiceIsKeptOnce(t *testing.T) {
	t.Parallel()
	device := deviceOf(shareOf(uidA, "gpu", "1", cardA), cardA)
	read := func(common *specs.ContainerEdits) *specs.Spec {
		data, err := Build(claim(uidA), []Device{device}, common)
		require.NoError(t, err)
		spec, err := cdilib.ParseSpec(data)
		require.NoError(t, err)
		return spec
	}
	twice := realCommon()
	again := realCommon()
	twice.Env = append(twice.Env, again.Env...)
	twice.Mounts = append(twice.Mounts, again.Mounts...)
	twice.DeviceNodes = append(twice.DeviceNodes, again.DeviceNodes...)
	twice.Hooks = append(twice.Hooks, again.Hooks...)
	require.Equal(t, read(realCommon()), read(twice))

	twice.AdditionalGIDs = []uint32{44, 27, 44}
	require.Equal(t, []uint32{27, 44}, read(twice).ContainerEdits.AdditionalGIDs)
}

func TestBuildRefuses(t *testing.T) {
	t.Parallel()
	good := deviceOf(shareOf(uidA, "gpu", "1", cardA), cardA)
	mount := func(host, container string) *specs.ContainerEdits {
		return &specs.ContainerEdits{Mounts: []*specs.Mount{{HostPath: host, ContainerPath: container}}}
	}
	with := func(change func(*Device)) []Device {
		d := good
		change(&d)
		return []Device{d}
	}
	for _, row := range []struct {
		name    string
		uid     string
		devices []Device
		common  *specs.ContainerEdits
		says    string
	}{
		{"a claim without shares", uidA, nil, nil, "no devices"},
		{"a claim UID that is a path", "../" + uidA, []Device{good}, nil, "not usable as a file name"},
		{"an empty claim UID", "", []Device{good}, nil, "not usable as a file name"},
		{"a share of another claim", uidB, []Device{good}, nil, "belongs to claim team-a/notebook"},
		{"the same share twice", uidA, []Device{good, good}, nil, "two shares have the key"},
		{"a share directory that is not absolute", uidA, with(func(d *Device) { d.HostDir = "shares/x" }), nil, "not an absolute path"},
		{"two different mounts in one place", uidA, []Device{good}, &specs.ContainerEdits{
			Mounts: append(mount("/a/lib.so", "/lib.so").Mounts, mount("/b/lib.so", "/lib.so").Mounts...),
		}, `two different mounts "/lib.so"`},
		{"a mount in the place of the share's directory", uidA, with(func(d *Device) {
			d.Edits = mount("/elsewhere", ContainerDir(good.Share.Key()))
		}), nil, "two different mounts"},
		{"two values of one variable", uidA, []Device{good}, &specs.ContainerEdits{Env: []string{"A=1", "A=2"}}, `two different values of variable "A"`},
		{"a variable without a value", uidA, []Device{good}, &specs.ContainerEdits{Env: []string{"A"}}, "invalid environment variable"},
		{"a mount without a source", uidA, []Device{good}, mount("", "/lib.so"), "empty host path"},
		{"a hook of an unknown kind", uidA, with(func(d *Device) {
			d.Edits = &specs.ContainerEdits{Hooks: []*specs.Hook{{HookName: "whenever", Path: "/bin/true"}}}
		}), nil, "invalid hook name"},
		{"edits with a hole", uidA, []Device{good}, &specs.ContainerEdits{Mounts: []*specs.Mount{nil}}, "nil"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			_, err := Build(share.Claim{UID: row.uid, Namespace: "team-a", Name: "notebook"}, row.devices, row.common)
			require.ErrorContains(t, err, row.says)
			require.ErrorContains(t, err, "team-a/notebook")
		})
	}
}

// inject is what the container runtime makes of a container that was given
// those devices.
func inject(t *testing.T, dir string, ids ...string) *oci.Spec {
	t.Helper()
	cache, err := cdilib.NewCache(cdilib.WithSpecDirs(dir), cdilib.WithAutoRefresh(false))
	require.NoError(t, err)
	container := &oci.Spec{
		Process: &oci.Process{Env: []string{"PATH=/bin", "NVIDIA_VISIBLE_DEVICES=all"}},
		Mounts:  []oci.Mount{{Destination: "/proc", Type: "proc", Source: "proc"}},
	}
	missing, err := cache.InjectDevices(container, ids...)
	require.NoError(t, err)
	require.Empty(t, missing)
	require.Empty(t, cache.GetErrors())
	return container
}

func TestTwoClaimsInOneContainer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store := NewSpecs(dir, durable.Files{})
	first := deviceOf(shareOf(uidA, "gpu", "1", cardA), cardA)
	second := deviceOf(shareOf(uidB, "gpu", "2", cardB), cardB)
	third := deviceOf(shareOf(uidB, "gpu", "3", cardB), cardB)
	first.Edits, second.Edits, third.Edits = nodeEdits("nvidia0"), nodeEdits("nvidia1"), nodeEdits("nvidia1")
	var ids []string
	for uid, devices := range map[string][]Device{uidA: {first}, uidB: {second, third}} {
		data, err := Build(claim(uid), devices, realCommon())
		require.NoError(t, err)
		_, err = store.Write(uid, data)
		require.NoError(t, err)
	}
	for _, d := range []Device{first, second, third} {
		ids = append(ids, DeviceID(d.Share.Key()))
	}
	container := inject(t, dir, ids...)

	var places []string
	for _, m := range container.Mounts {
		places = append(places, m.Destination)
	}
	require.Len(t, places, 1+3+3, "proc, the three common mounts once, a directory for each share")
	for _, d := range []Device{first, second, third} {
		require.Contains(t, places, ContainerDir(d.Share.Key()))
	}
	require.Equal(t, []string{"PATH=/bin", "NVIDIA_VISIBLE_DEVICES=void"}, container.Process.Env)
	require.Len(t, container.Linux.Devices, 1+2, "a node that several devices bring is there once")
	// The library does not join hooks; NVIDIA's may run twice.
	require.Len(t, container.Hooks.CreateContainer, 4)
	data, err := json.MarshalIndent(container, "", "  ")
	require.NoError(t, err)
	golden.Equal(t, "two-claims-container.json", append(data, '\n'))
}

// A container with claims of two releases gets one runtime, whole: that of the
// claim that comes last.
func TestClaimsOfTwoReleasesInOneContainerGetOneRuntime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var ids []string
	for i, uid := range []string{uidA, uidB} {
		device := simDevice(t, shareOf(uid, "gpu", "1", cardA), cardA)
		common, err := simSource().Common(t.Context(), nil, Runtime{Dir: []string{"/runtime/old", "/runtime/new"}[i]})
		require.NoError(t, err)
		data, err := Build(claim(uid), []Device{device}, common)
		require.NoError(t, err)
		_, err = NewSpecs(dir, durable.Files{}).Write(uid, data)
		require.NoError(t, err)
		ids = append(ids, DeviceID(device.Share.Key()))
	}
	var from []string
	for _, m := range inject(t, dir, ids...).Mounts {
		if strings.HasPrefix(m.Source, "/runtime/") {
			from = append(from, m.Source)
		}
	}
	require.Len(t, from, 6)
	for _, source := range from {
		require.True(t, strings.HasPrefix(source, "/runtime/new/"), source)
	}
}

func TestTheSameCardTwiceGivesOneNodeAndTwoDirectories(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := deviceOf(shareOf(uidA, "gpu", "1", cardA), cardA), deviceOf(shareOf(uidA, "gpu", "2", cardA), cardA)
	a.Edits, b.Edits = nodeEdits("nvidia0"), nodeEdits("nvidia0")
	data, err := Build(claim(uidA), []Device{a, b}, realCommon())
	require.NoError(t, err)
	_, err = NewSpecs(dir, durable.Files{}).Write(uidA, data)
	require.NoError(t, err)

	container := inject(t, dir, DeviceID(a.Share.Key()), DeviceID(b.Share.Key()))
	require.Len(t, container.Linux.Devices, 1+1, "the card's node, and the one of all cards")
	var shares int
	for _, m := range container.Mounts {
		if strings.HasPrefix(m.Destination, ContainerRoot+"/"+uidA) {
			shares++
			require.Equal(t, []string{"ro", "nosuid", "nodev", "noexec", "rbind", "rprivate"}, m.Options)
		}
	}
	require.Equal(t, 2, shares)

	alone := inject(t, dir, DeviceID(b.Share.Key()))
	require.Len(t, alone.Mounts, 1+3+1, "a container that was given one share of the claim does not get the other")
}

func TestNamesOfPeopleDoNotReachTheSpec(t *testing.T) {
	t.Parallel()
	long := share.Claim{UID: uidA, Namespace: strings.Repeat("n", 63), Name: strings.Repeat("ü", 126) + "x"}
	s := shareOf(uidA, "gpu", "1", cardA)
	s.Claim = long
	data, err := Build(long, []Device{deviceOf(s, cardA)}, nil)
	require.NoError(t, err)
	plain, err := Build(claim(uidA), []Device{deviceOf(shareOf(uidA, "gpu", "1", cardA), cardA)}, nil)
	require.NoError(t, err)
	require.Equal(t, string(plain), string(data))
}
