// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"fmt"
	"path"

	"tags.cncf.io/container-device-interface/pkg/parser"

	"github.com/tranche-dra/tranche/pkg/share"
)

// Names under which the container runtime knows the devices of this driver.
const (
	Vendor = "gpu.tranche.dev"
	Class  = "share"
	Kind   = Vendor + "/" + Class
)

// Places in a container. They are part of the contract (CONTRACT.md).
const (
	// ContainerRoot holds one directory for each share of the container.
	ContainerRoot = "/run/tranche"
	// ContainerDriverDir holds the vendor's own libraries where Tranche put
	// something else in their usual place.
	ContainerDriverDir = ContainerRoot + "/driver"
)

// ShareFileName is the name of the file in a share's directory that says what
// the share may use.
const ShareFileName = "share.json"

// DeviceID is the qualified CDI name of a share, which kubelet hands to the
// container runtime.
func DeviceID(k share.Key) string { return parser.QualifiedName(Vendor, Class, string(k)) }

// ContainerDir is where a container finds the directory of a share.
func ContainerDir(k share.Key) string { return path.Join(ContainerRoot, string(k)) }

func checkUID(claimUID string) error {
	if !share.UsableUID(claimUID) {
		return fmt.Errorf("claim UID %q: %w", claimUID, ErrName)
	}
	return nil
}

func checkKey(k share.Key) error {
	if _, ok := k.ClaimUID(); !ok {
		return fmt.Errorf("share key %q: %w", k, ErrName)
	}
	return nil
}
