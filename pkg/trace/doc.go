// SPDX-License-Identifier: Apache-2.0

// Package trace reads what a cluster of GPUs had and what was asked of it, from
// CSV files in the columns of the trace that Alibaba published with the FGD paper
// (USENIX ATC 2023), and makes lists of arrivals of it. Chance comes from a seed, and
// but for Open, which reads files, the package is pure.
package trace
