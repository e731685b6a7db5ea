// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache"
	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/deviceclasses"
)

// classes that claims and limits may name.
type classes struct {
	byName map[string]*resourceapi.DeviceClass
	// byResource finds them by extended resource, as the scheduler does.
	byResource *extendedresourcecache.ExtendedResourceCache
}

// classesOf are those that come with Tranche, and over them those of the files, the
// last file first.
func classesOf(files ...*Objects) (classes, error) {
	all, err := deviceclasses.All()
	if err != nil {
		return classes{}, err
	}
	known := classes{map[string]*resourceapi.DeviceClass{}, extendedresourcecache.NewExtendedResourceCache(klog.Logger{})}
	for _, class := range all {
		known.byName[class.Name] = class
	}
	for _, o := range files {
		for i := range o.Classes {
			known.byName[o.Classes[i].Name] = &o.Classes[i]
		}
	}
	for _, class := range known.byName {
		known.byResource.OnAdd(class, true)
	}
	return known, nil
}
