// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	cdilib "tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
)

// Device is one share of a claim together with what its container needs for it.
type Device struct {
	Share share.Share
	Card  card.Card
	// HostDir is the share's directory, an absolute path on the host.
	HostDir string
	// Edits are what the card needs (DriverFiles.Device), nil for nothing.
	Edits *specs.ContainerEdits
}

// Build is the CDI spec of a claim as JSON: one device for each share, and what
// all of them need once in common, which may be nil. The same arguments in any
// order give the same bytes. The spec asks for the lowest CDI version that has
// its fields, so that older container runtimes take it. The arguments are not
// changed.
func Build(claim share.Claim, devices []Device, common *specs.ContainerEdits) ([]byte, error) {
	data, err := build(claim, devices, common)
	if err != nil {
		return nil, fmt.Errorf("build the CDI spec of claim %s: %w", claim, err)
	}
	return data, nil
}

func build(claim share.Claim, devices []Device, common *specs.ContainerEdits) ([]byte, error) {
	if err := checkUID(claim.UID); err != nil {
		return nil, err
	}
	edits, err := normalize(common)
	if err != nil {
		return nil, err
	}
	spec := specs.Spec{Kind: Kind, ContainerEdits: edits}
	for _, d := range devices {
		device, err := buildDevice(claim, d)
		if err != nil {
			return nil, fmt.Errorf("request %s: %w", d.Share.Request, err)
		}
		spec.Devices = append(spec.Devices, device)
	}
	slices.SortFunc(spec.Devices, func(a, b specs.Device) int { return cmp.Compare(a.Name, b.Name) })
	if spec.Version, err = specs.MinimumRequiredVersion(&spec); err != nil {
		return nil, err
	}
	if err := validate(&spec); err != nil {
		return nil, err
	}
	data, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(data, '\n'), nil
}

func buildDevice(claim share.Claim, d Device) (specs.Device, error) {
	key := d.Share.Key()
	if err := checkKey(key); err != nil {
		return specs.Device{}, err
	}
	if d.Share.Claim.UID != claim.UID {
		return specs.Device{}, fmt.Errorf("share %s belongs to claim %s", key, d.Share.Claim)
	}
	if !filepath.IsAbs(d.HostDir) {
		return specs.Device{}, fmt.Errorf("directory %q of share %s is not an absolute path", d.HostDir, key)
	}
	edits, err := normalize(d.Edits, &specs.ContainerEdits{Mounts: []*specs.Mount{{
		HostPath:      d.HostDir,
		ContainerPath: ContainerDir(key),
		Options:       []string{"ro", "nosuid", "nodev", "noexec", "rbind", "rprivate"},
	}}})
	if err != nil {
		return specs.Device{}, err
	}
	return specs.Device{Name: string(key), ContainerEdits: edits}, nil
}

// normalize joins edits into one with sorted parts and private mounts. Hooks
// keep their order, in which they run. What is said twice is kept once; two
// different things at one path of the container are an error, because the
// runtime would silently take the later.
func normalize(parts ...*specs.ContainerEdits) (specs.ContainerEdits, error) {
	var all cdilib.ContainerEdits
	all.ContainerEdits = &specs.ContainerEdits{}
	for _, p := range parts {
		if p != nil {
			all.Append(&cdilib.ContainerEdits{ContainerEdits: p})
		}
	}
	if err := all.Validate(); err != nil {
		return specs.ContainerEdits{}, err
	}
	edits := *all.ContainerEdits
	for i, m := range edits.Mounts {
		edits.Mounts[i] = private(m)
	}
	var err, errNodes, errEnv error
	edits.Mounts, err = unique("mounts", edits.Mounts, func(m *specs.Mount) string { return m.ContainerPath })
	edits.DeviceNodes, errNodes = unique("device nodes", edits.DeviceNodes, func(n *specs.DeviceNode) string { return n.Path })
	edits.Env, errEnv = unique("values of variable", edits.Env, variable)
	edits.Hooks = uniqueHooks(edits.Hooks)
	edits.AdditionalGIDs = slices.Compact(slices.Sorted(slices.Values(edits.AdditionalGIDs)))
	return edits, errors.Join(err, errNodes, errEnv)
}

// private is the mount with propagation "rprivate": neither do mounts made on
// the host later show up in the container, nor the other way round.
func private(m *specs.Mount) *specs.Mount {
	mount := *m
	mount.Options = slices.DeleteFunc(slices.Clone(m.Options), func(o string) bool {
		return slices.Contains([]string{"private", "rprivate", "shared", "rshared", "slave", "rslave", "unbindable", "runbindable"}, o)
	})
	mount.Options = append(mount.Options, "rprivate")
	return &mount
}

// unique sorts list by the name of its elements and drops repetitions.
func unique[T any](what string, list []T, name func(T) string) ([]T, error) {
	sorted := slices.Clone(list)
	slices.SortStableFunc(sorted, func(a, b T) int { return cmp.Compare(name(a), name(b)) })
	sorted = slices.CompactFunc(sorted, func(a, b T) bool { return reflect.DeepEqual(a, b) })
	for i := 1; i < len(sorted); i++ {
		if name(sorted[i-1]) == name(sorted[i]) {
			return nil, fmt.Errorf("two different %s %q", what, name(sorted[i]))
		}
	}
	return sorted, nil
}

func uniqueHooks(hooks []*specs.Hook) []*specs.Hook {
	var kept []*specs.Hook
	for _, h := range hooks {
		if !slices.ContainsFunc(kept, func(k *specs.Hook) bool { return reflect.DeepEqual(k, h) }) {
			kept = append(kept, h)
		}
	}
	return kept
}

// variable is the name in "name=value".
func variable(env string) string {
	name, _, _ := strings.Cut(env, "=")
	return name
}

// validate checks what the CDI library checks when it reads a spec, with the
// library's own functions: its check of a whole spec works on files only.
// Edits were checked while they were joined; kind and version are right by
// construction.
func validate(spec *specs.Spec) error {
	if len(spec.Devices) == 0 {
		return errors.New("no devices")
	}
	for i, d := range spec.Devices {
		if err := parser.ValidateDeviceName(d.Name); err != nil {
			return err
		}
		if i > 0 && spec.Devices[i-1].Name == d.Name {
			return fmt.Errorf("two shares have the key %s", d.Name)
		}
	}
	return nil
}
