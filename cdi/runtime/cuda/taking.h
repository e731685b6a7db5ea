/* SPDX-License-Identifier: Apache-2.0
 *
 * One call of the driver that takes memory by name:
 *
 *	result = taking_begin(&taking, kind, bytes);
 *	if (result == CUDA_SUCCESS)
 *		do
 *			result = real_...;
 *		while (taking_again(&taking, &result));
 *
 * Afterwards result is the caller's; CUDA_SUCCESS and not taking.plain: the charge has
 * its room in charge->hold, and taking_end follows once it is settled and kept.
 */
#ifndef TRANCHE_TAKING_H
#define TRANCHE_TAKING_H

#include "charge.h"

struct taking {
	struct card *card;
	struct charge *charge; /* NULL: who asked has a hold of his own */
	struct hold *hold;
	uint64_t bytes;
	unsigned tries;
	bool plain; /* nothing is counted: the call is part of another one */
};

CUresult taking_begin(struct taking *taking, enum charge_kind kind, uint64_t bytes);
/* The same on a certain card, into the caller's hold. */
CUresult taking_begin_on(struct taking *taking, struct card *card, struct hold *hold, uint64_t bytes);
/* True: the call failed for want of memory, some was found, call again. */
bool taking_again(struct taking *taking, CUresult *result);
void taking_end(struct taking *taking);

#endif
