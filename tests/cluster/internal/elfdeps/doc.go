// SPDX-License-Identifier: Apache-2.0

// Package elfdeps finds what a dynamically linked program needs to start: its
// loader and, recursively, its shared libraries.
//
// It reads the ELF headers as the loader does (ld.so(8)) instead of running
// ldd, which executes the program's own loader.
package elfdeps
