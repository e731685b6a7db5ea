// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"fmt"

	"k8s.io/klog/v2"
)

// detail hands what nvcdi has to say to a contextual logger. It warns of every
// optional file that a driver installation does not have, on each call, so all
// of it is detail; what matters comes back as an error.
type detail struct{ logger klog.Logger }

func (d detail) log(level, format string, args []any) {
	if v := d.logger.V(4); v.Enabled() {
		v.Info("NVIDIA Container Toolkit", "level", level, "message", fmt.Sprintf(format, args...))
	}
}

func (d detail) Errorf(format string, args ...any)   { d.log("error", format, args) }
func (d detail) Warningf(format string, args ...any) { d.log("warning", format, args) }
func (d detail) Infof(format string, args ...any)    { d.log("info", format, args) }
func (d detail) Debugf(format string, args ...any)   { d.log("debug", format, args) }
func (d detail) Tracef(format string, args ...any)   { d.log("trace", format, args) }
