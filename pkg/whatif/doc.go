// SPDX-License-Identifier: Apache-2.0

// Package whatif tells what would happen to a live cluster if claims came: which
// would find room, where, and what would be free afterwards, under each policy.
// The cluster is what kubectl get prints of it. Only cards are counted, not CPU
// and memory of the hosts: a claim asks for none.
//
// The package is pure: it reads from the readers that it is given and writes to
// the writers that it is given.
package whatif
