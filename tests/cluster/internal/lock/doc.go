// SPDX-License-Identifier: Apache-2.0

// Package lock says who lives: an flock on a directory belongs to one process
// and ends with it, however it ends.
//
// The cluster marks its cgroup, its work directory and the binaries that it
// runs from in this way. A name with a process id would not do: ids are used
// again, and mean something else in another pid namespace.
package lock
