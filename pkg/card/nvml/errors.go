// SPDX-License-Identifier: Apache-2.0

package nvml

import "errors"

var (
	// ErrUnavailable says that the driver is there but does not answer. The
	// cards that were listed before are still what there is.
	ErrUnavailable = errors.New("NVML does not answer")

	errNoDriver = errors.New("no NVIDIA driver")
	errNoEvents = errors.New("no card reports events")
)
