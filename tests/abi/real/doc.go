// SPDX-License-Identifier: Apache-2.0

// Package real compares the sharing runtime with NVIDIA's own libraries, on a
// machine without a GPU: the driver answers dlsym and cuGetProcAddress all the
// same, and libcudart asks it for everything before it finds that there is no card.
//
// The libraries come as packages of Debian's component non-free, by the
// machine's own mirror but a configuration of apt apart from the machine's, into the
// user's cache; they are neither installed nor changed. `make test-abi-real` runs the tests;
// without it, they are skipped.
package real
