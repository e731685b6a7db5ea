// SPDX-License-Identifier: Apache-2.0

// Package hostdir tells whether the directories that a process in a container
// was given are still those that the host has at the same paths. A container
// keeps what was mounted when it started: when the host's directory is deleted,
// moved, or covered by a new mount, the process goes on writing where nobody
// reads, without any error. Only another process, with mounts of today, gets the
// directory of today.
//
// Nothing here has state; everything may be used concurrently.
package hostdir
