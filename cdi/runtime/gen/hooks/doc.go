// SPDX-License-Identifier: Apache-2.0

// Package hooks reads the table of hooks (cdi/runtime/hooks.tsv) and makes C
// of it. It has no state; all functions may be called concurrently.
//
// To add a symbol that a new driver exports:
//
//  1. Add its name to the list in tests/testdata/cuda that fits its library.
//  2. Give it a row in hooks.tsv. One that takes memory, gives it back or
//     starts work is hooked; any other is a pass. Types of its
//     parameters go to cdi/abi.
//  3. `make generate`, and write hook_NAME, unless the handler is an around.
//  4. `make check-abi`.
package hooks
