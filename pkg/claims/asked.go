// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/share"
)

// ClassAsked is the class that a request will have once it is allocated, by the
// configuration of its device class and of the claim, of which the later wins. The
// error is of configurations that cannot be read; those count for nothing.
func ClassAsked(claim *resourceapi.ResourceClaimSpec, request string, class *resourceapi.DeviceClass) (share.Class, error) {
	var all []resourceapi.DeviceConfiguration
	for _, c := range class.Spec.Config {
		all = append(all, c.DeviceConfiguration)
	}
	for _, c := range claim.Devices.Config {
		if len(c.Requests) == 0 || slices.Contains(c.Requests, request) {
			all = append(all, c.DeviceConfiguration)
		}
	}
	found := share.NoClass
	var errs []error
	for _, c := range all {
		if c.Opaque == nil || c.Opaque.Driver != v1alpha1.DriverName {
			continue
		}
		config, err := v1alpha1.Decode(c.Opaque.Parameters.Raw)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("read configuration: %w", err))
		case config.Class != nil:
			found = *config.Class
		}
	}
	return found, errors.Join(errs...)
}
