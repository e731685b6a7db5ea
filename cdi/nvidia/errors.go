// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"errors"
	"fmt"
)

// ErrMissingNode says that a device node which the driver makes is not there.
// It may be there a moment later: the module is loaded, or nvidia-modprobe or
// the driver's pod has not run yet.
var ErrMissingNode = errors.New("device node is missing")

// missingNode names a node as the host knows it, and what to do.
func missingNode(hostPath, remedy string) error {
	return fmt.Errorf("%s: %w: %s", hostPath, ErrMissingNode, remedy)
}
