// SPDX-License-Identifier: Apache-2.0

// Package nvidia is the source of driver files for NVIDIA cards. It asks the
// NVIDIA Container Toolkit's nvcdi, on every call, what the installed driver
// consists of, takes out what would get around a share's limits, and turns
// paths as this process sees them into paths of the host.
//
// It keeps no state and may be used by several goroutines at once. What puts
// something else in the place of a library wraps Files and edits its answers,
// whose mounts have the library's path in the container (".../libcuda.so.<version>").
package nvidia
