// SPDX-License-Identifier: Apache-2.0

package podresources

import "errors"

// ErrUnavailable says that kubelet does not answer: its socket is missing, no
// process listens on it, or this kubelet does not offer the call. Nothing is
// known then about devices and claims, which is not the same as "none".
var ErrUnavailable = errors.New("kubelet's PodResources API is unavailable")
