// SPDX-License-Identifier: Apache-2.0

// Package share describes a share: the part of one card that one request of one
// claim holds, how it is named on the node, and the arithmetic that decides
// whether shares fit on a card together. It is pure and imports the standard
// library and package card only.
package share
