// SPDX-License-Identifier: Apache-2.0

// Command gen writes what of the simulated libcuda follows from the lists of real
// drivers in tests/testdata/cuda: the exported symbols, a stub for each of them
// that nothing defines, what cuGetProcAddress answers in each profile, and
// the names of errors.
//
// Stubs are weak: where the driver has the function, the linker takes that one. So
// this needs to run when a list changes, not when a function is added.
package main
