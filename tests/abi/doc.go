// SPDX-License-Identifier: Apache-2.0

// Package abi has the tests of the sharing runtime's ABI (`make check-abi`):
// that cdi/runtime/hooks.tsv has a row for every symbol of every known driver, that
// nothing which takes memory, frees it or starts work is passed on by mistake,
// and that the libraries built from the table are fit to be put into any container.
//
// How to add a symbol is told in package cdi/runtime/gen/hooks. A driver that is
// new as a whole gets lists of its own beside the others in tests/testdata/cuda:
//
//	nm -D --defined-only libcuda.so.1 | awk '{print $3}' | sort -u
//
// Subpackage real compares with real drivers (`make test-abi-real`), layout
// compares the declarations of cdi/abi with NVIDIA's headers.
package abi
