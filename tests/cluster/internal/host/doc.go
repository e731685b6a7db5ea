// SPDX-License-Identifier: Apache-2.0

// Package host checks that the machine can run a cluster, and on Debian installs
// what is missing.
package host
