// SPDX-License-Identifier: Apache-2.0

// Package trace reads what a cluster of GPUs had and what was asked of it, from
// CSV files in the columns of the trace that Alibaba published with the FGD paper
// (USENIX ATC 2023), and makes lists of arrivals of it. It is pure: it reads from
// the readers that it is given, and chance comes from a seed.
package trace
