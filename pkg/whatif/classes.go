// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dra/tranche/deviceclasses"
)

// classes by name.
type classes map[string]*resourceapi.DeviceClass

// classesOf are those that come with Tranche, and over them those of the files, the
// last file first.
func classesOf(files ...*Objects) (classes, error) {
	all, err := deviceclasses.All()
	if err != nil {
		return nil, err
	}
	known := classes{}
	for _, class := range all {
		known[class.Name] = class
	}
	for _, o := range files {
		for i := range o.Classes {
			known[o.Classes[i].Name] = &o.Classes[i]
		}
	}
	return known, nil
}
