// SPDX-License-Identifier: Apache-2.0

// Package sim is a source of cards that do not exist: a fleet file says what
// they are and what is wrong with them. It serves machines without a GPU, and
// tests, which script faults by replacing the file while the driver runs.
//
// The file is the only state. A Source reads it at every call and may be used
// by any number of goroutines; each Watch owns its own watcher. Replace the
// file by a rename: of a file that is written in place, a part could be read.
package sim
