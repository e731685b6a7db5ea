// SPDX-License-Identifier: Apache-2.0

// Package doctor looks at a node the way an administrator would who was told
// that pods get no cards: it asks the container runtime, kubelet, the API
// server, the cards and the files, and says for each what it saw and what to do.
// It changes nothing on the node, but that opening the records and asking for a
// simulated card's files make the directories that the driver makes as well. A
// check is a plain value that does its I/O only when it is asked to examine;
// checks share no state and run concurrently.
package doctor
