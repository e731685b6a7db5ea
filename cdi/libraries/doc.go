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
// Several processes may install into one root, and prune it, at the same time. A
// version is removed once nobody needs it: no claim's record names it, and no
// driver runs that gives it to new claims. There may be two drivers for the time
// of an update, and the older one still prepares claims with its own version, so
// each holds a lock on the directory of its own.
package libraries
