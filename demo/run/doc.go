// SPDX-License-Identifier: Apache-2.0

// Command run is the demonstration: in a cluster that kubectl reaches, it
// installs Tranche with simulated cards, lets pods share them, and shows who got
// what. Every wait has a deadline; one that passes is explained with what the
// cluster says about itself. `make demo` runs it in a cluster of its own.
//
// One goroutine does everything, in the order in which it is told.
package main
