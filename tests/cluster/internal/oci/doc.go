// SPDX-License-Identifier: Apache-2.0

// Package oci writes container images from files of this machine, without a
// daemon and without a registry: an OCI image layout with one layer, as a tar
// archive that containerd imports.
//
// The same files give the same bytes: entries are sorted, owners and times are
// zero, and modes are reduced to whether a file is executable.
package oci
