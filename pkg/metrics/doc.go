// SPDX-License-Identifier: Apache-2.0

// Package metrics counts what tranche-node does and shows what is on its cards,
// for Prometheus. Node owns one registry; there is nothing global. The packages
// that are measured declare the few methods they call; Node has all of them, and
// Nop has them without effect. Everything is safe for concurrent use.
//
// Labels are bounded: cards of this node, faults that stand now, a fixed set of
// results, and at most maxKinds kinds of healing. Claims and pods never are
// labels here.
package metrics
