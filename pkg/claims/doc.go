// SPDX-License-Identifier: Apache-2.0

// Package claims turns an allocated ResourceClaim into the shares that it holds
// on this node. It is pure. What a share may use is read from what the
// scheduler granted (consumedCapacity), never from what the claim asked for:
// the scheduler rounds, and a class or a default fills in what was left out.
package claims
