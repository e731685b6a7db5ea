// SPDX-License-Identifier: Apache-2.0

// Package nodeview is what tranche-arbiter knows of the cards of its node and of
// who uses them at the moment: what package view knows of the whole cluster from
// the API server, here from the one that divides the cards. It has the types, the
// table for people, and a client of the arbiter's debug socket.
//
// # Version
//
// GET /v1/cards answers with one Node as JSON. Fields may be added to it at any
// time; one that changes its meaning or goes makes another path. Durations are
// integers of nanoseconds, amounts of memory are bytes unless the name says MiB.
//
// The package holds no state and may be used concurrently.
package nodeview
