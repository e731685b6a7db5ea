// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// PluginOf is the driver as the helper calls it.
func PluginOf(d *Driver) kubeletplugin.DRAPlugin { return plugin{d} }

// IsDraining tells whether the driver was asked to end.
func IsDraining(d *Driver) bool {
	select {
	case <-d.draining:
		return true
	default:
		return false
	}
}

// LimitListings changes how long a listing may take.
func LimitListings(i *Inventory, limit time.Duration) *Inventory {
	i.limit = limit
	return i
}
