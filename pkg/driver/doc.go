// SPDX-License-Identifier: Apache-2.0

// Package driver connects Tranche to kubelet and to the API server: it serves
// kubelet's calls to prepare and unprepare claims, reports the health of cards,
// registers with kubelet, and keeps this node's ResourceSlices in line with the
// cards that are there.
//
// What a claim needs is done by a Preparer, what a card is comes from a
// card.Source; this package decides when, how often it is tried again, and who
// is told. Inventory owns the cards last seen, publisher owns what is to be
// published, sliceController owns the connection to the API server's slices.
// Every goroutine ends before Run returns.
//
// During a rolling update two processes run this package on one node. They
// share nothing in memory; their sockets have different names.
package driver
