// SPDX-License-Identifier: Apache-2.0

// Package prepare puts onto the node what a claim's containers need, and takes
// it away again. Both ways are state machines whose state is on disk: every
// step can be run again, by this process after a crash or by the other driver
// of a rolling update, and ends in the same state.
//
// Preparing: record Preparing (room is held from here on), share directories,
// the arbiter's answer that it serves them, CDI spec, record Prepared, which names
// the version of the sharing runtime. Unpreparing: record Unpreparing, CDI spec removed,
// share directories removed, record removed. So nothing is ever on the node
// without a record that tells whose it is.
//
// All methods are safe for concurrent use. Changes of one claim are serialized
// by a lock on disk; the decision on a card's room is taken under another.
package prepare
