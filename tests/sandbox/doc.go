// SPDX-License-Identifier: Apache-2.0

// Package sandbox runs programs as a container with shares would: in a mount
// namespace of their own, where /run is empty but for the directories of the
// shares, the cards and the driver, where the loader finds the sharing runtime
// by itself, and in a PID namespace of their own. No container runtime and no
// image is needed; all the rest of the file system is the machine's.
//
// A Box is such a place. It keeps one thread of the calling program inside, from
// which programs are started; nothing of it outlives Close, nor the calling
// program, however that ends. It takes root.
package sandbox
