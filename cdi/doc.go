// SPDX-License-Identifier: Apache-2.0

// Package cdi makes everything that the Container Device Interface brings into
// a container for a share: the spec of a claim, the share's directory with
// share.json, and the driver files of the claim's cards. CONTRACT.md beside
// this file states what a container finds where and what may be relied upon.
//
// Build, ShareFile and ParseShareFile are pure. Specs and Dirs own the files
// below their directory, keep no state in memory, and may be used at the same
// time for different claims; two writers of one claim are kept apart by the
// caller. Sources of driver files look at the node on every call: a missing
// device node is found again once it is there.
package cdi
