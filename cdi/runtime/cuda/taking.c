/* SPDX-License-Identifier: Apache-2.0 */
#include "taking.h"

#include <stdlib.h>

#include "trim.h"

/* Once, over all tries of a call, memory is looked for that the process's own pools
 * do not use. */
static bool find_room(struct taking *taking)
{
	return taking->tries++ == 0 && trim_card(taking->card);
}

static CUresult take(struct taking *taking)
{
	CUresult result;

	do {
		card_begin(taking->card);
		result = hold_take(taking->hold, taking->card, LEDGER_COMMITTED, taking->bytes);
		if (result == CUDA_SUCCESS)
			return CUDA_SUCCESS;
		card_end(taking->card);
	} while (result == CUDA_ERROR_OUT_OF_MEMORY && find_room(taking));
	return result;
}

static CUresult begin(struct taking *taking, enum charge_kind kind)
{
	struct owner owner;
	CUresult result = context_current(&taking->card, &owner);

	if (result != CUDA_SUCCESS)
		return result;
	taking->charge = charge_new(kind, &owner);
	if (!taking->charge)
		return CUDA_ERROR_OUT_OF_MEMORY;
	taking->hold = &taking->charge->hold;
	result = take(taking);
	if (result != CUDA_SUCCESS)
		free(taking->charge);
	return result;
}

CUresult taking_begin(struct taking *taking, enum charge_kind kind, uint64_t bytes)
{
	CUresult result;

	*taking = (struct taking){ .bytes = bytes, .plain = !guard_enter() };
	if (taking->plain)
		return CUDA_SUCCESS;
	result = begin(taking, kind);
	if (result != CUDA_SUCCESS)
		guard_leave();
	return result;
}

CUresult taking_begin_on(struct taking *taking, struct card *card, struct hold *hold, uint64_t bytes)
{
	CUresult result;

	*taking = (struct taking){ .card = card, .hold = hold, .bytes = bytes, .plain = !guard_enter() };
	if (taking->plain)
		return CUDA_SUCCESS;
	result = take(taking);
	if (result != CUDA_SUCCESS)
		guard_leave();
	return result;
}

bool taking_again(struct taking *taking, CUresult *result)
{
	if (taking->plain || *result == CUDA_SUCCESS)
		return false;
	hold_keep(taking->hold, 0);
	card_end(taking->card);
	if (*result == CUDA_ERROR_OUT_OF_MEMORY && find_room(taking) && take(taking) == CUDA_SUCCESS)
		return true;
	free(taking->charge);
	guard_leave();
	return false;
}

void taking_end(struct taking *taking)
{
	card_end(taking->card);
	guard_leave();
}
