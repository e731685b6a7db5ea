// SPDX-License-Identifier: Apache-2.0

// Package isolate runs this program again as the first process of private mount,
// network and pid namespaces.
//
// Three processes take part:
//
//	run   on the machine; starts init, passes signals on, cleans up afterwards
//	init  process 1 of the namespaces; reaps orphans and does nothing else
//	node  does the work; when it ends so does init, and with it everything inside
//
// Init is apart from node because reaping orphans (containerd's shims leave some)
// takes wait(-1), which would steal the ends of the processes that node waits for.
// When run dies, even by SIGKILL, the kernel ends init.
package isolate
