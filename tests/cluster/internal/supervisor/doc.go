// SPDX-License-Identifier: Apache-2.0

// Package supervisor starts, stops and watches the cluster's components.
//
// A Supervisor owns its processes. Every process has one goroutine that waits
// for it; operations on one component are serialised, operations on different
// ones run side by side. A component that ends without having been stopped is
// reported on Deaths with the last lines of its log.
package supervisor
