// SPDX-License-Identifier: Apache-2.0

// Package whatif tells what would happen to a live cluster if claims came, or pods
// with claims: which would find room, where, and what would be free afterwards,
// under each policy. The cluster is what kubectl get prints of it. Taints of cards
// and of nodes count, and what tolerates them, and nodeSelector. Only cards are
// counted, not CPU and memory of the hosts.
//
// The package is pure: it reads from the readers that it is given and writes to
// the writers that it is given.
package whatif
