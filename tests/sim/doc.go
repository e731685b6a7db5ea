// SPDX-License-Identifier: Apache-2.0

// Package sim tests the simulated driver from outside, by programs in C.
package sim
