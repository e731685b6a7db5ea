/* SPDX-License-Identifier: Apache-2.0
 *
 * How much memory a graph needs.
 */
#ifndef TRANCHE_GRAPH_H
#define TRANCHE_GRAPH_H

#include "card.h"

struct need;

/* Adds up what the graph's allocation nodes ask for, with those of child graphs and
 * of conditional nodes' bodies. */
CUresult graph_needs(CUgraph graph, struct need **needs);
void graph_add_need(struct need **needs, struct card *card, uint64_t bytes);

#endif
