// SPDX-License-Identifier: Apache-2.0

// Package deviceclasses holds the DeviceClasses that come with Tranche, as the
// YAML files that are applied to a cluster and as objects.
package deviceclasses

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
)

// Names of the classes.
const (
	Card       = "card.tranche.dev"
	Share      = "share.tranche.dev"
	Fixed      = "fixed.tranche.dev"
	Burst      = "burst.tranche.dev"
	Weighted   = "weighted.tranche.dev"
	BestEffort = "besteffort.tranche.dev"
	Online     = "online.tranche.dev"
	Offline    = "offline.tranche.dev"
)

// Names lists all classes, whole cards first.
func Names() []string {
	return []string{Card, Share, Fixed, Burst, Weighted, BestEffort, Online, Offline}
}

// ErrNotDeviceClass says that a file holds something else.
var ErrNotDeviceClass = errors.New("not a DeviceClass of resource.k8s.io/v1")

//go:embed *.yaml
var files embed.FS

// All parses every class strictly, in the order of the file names.
func All() ([]*resourceapi.DeviceClass, error) {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, fmt.Errorf("list device classes: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := resourceapi.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register resource.k8s.io/v1: %w", err)
	}
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme,
		json.SerializerOptions{Yaml: true, Strict: true})
	var classes []*resourceapi.DeviceClass
	for _, name := range names {
		raw, err := files.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read device class %s: %w", name, err)
		}
		object, _, err := strict.Decode(raw, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("decode device class %s: %w", name, err)
		}
		class, ok := object.(*resourceapi.DeviceClass)
		if !ok {
			return nil, fmt.Errorf("decode device class %s: %w", name, ErrNotDeviceClass)
		}
		classes = append(classes, class)
	}
	return classes, nil
}
