// SPDX-License-Identifier: Apache-2.0

// Package libraries keeps the libraries that containers mount, the sharing
// runtime and the simulated driver, in directories that are named by a digest of
// their content. A directory is made whole or not at all, and never changed:
// containers that run keep the version that they started with, whatever is
// installed beside it.
//
//	<root>/sha256-<64 hexadecimal digits>/runtime/libcuda.so.1
//	<root>/sha256-<64 hexadecimal digits>/runtime/libnvidia-ml.so.1
//	<root>/sha256-<64 hexadecimal digits>/sim/libcuda-real.so.1
//	<root>/sha256-<64 hexadecimal digits>/sim/libnvidia-ml-real.so.1
//
// Several processes may install into one root at the same time. No version is
// ever removed: the driver that is being replaced by an update may still prepare
// claims with its own.
package libraries
