// SPDX-License-Identifier: Apache-2.0

// Package metrics counts what tranche-node and tranche-arbiter do and shows what
// is on their cards, for Prometheus. Node and Arbiter own one registry each;
// there is nothing global. The packages that are measured declare the few methods
// they call; Node and Arbiter have all of them, and Nop has Node's without
// effect. Everything is safe for concurrent use.
//
// Labels are bounded: cards of this node, faults that stand now, a fixed set of
// results, and at most maxKinds kinds of healing. Claims are labels of what
// their shares hold, as long as the shares exist, and pods never are.
package metrics
