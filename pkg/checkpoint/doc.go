// SPDX-License-Identifier: Apache-2.0

// Package checkpoint keeps what the node has prepared: one file per claim, so
// that a damaged file costs one claim and not the node. The disk is the truth;
// the store caches nothing that it does not verify against the disk, because
// during a rolling update two drivers work on the same directory.
//
// # Files
//
// <dir>/<claim UID>.json holds an Envelope. A file that cannot be read as one
// is moved to <dir>/damaged/ and reported once. A file of a newer format stays
// where it is, untouched, for the newer driver that wrote it.
//
// # Compatibility
//
// Fields may be added within a version: readers ignore what they do not know.
// A change of meaning takes a new version, and the code reads every version
// that was ever released (tests/compat holds one file of each). The name of
// the file, the fields "version", "checksum" and "record", and how the checksum
// is made never change: by them an older driver tells a newer record, which it
// leaves alone, from a damaged one.
package checkpoint
