/* SPDX-License-Identifier: Apache-2.0
 *
 * What a program sees of the memory: its shares of a card as if they were the card.
 */
#include "context.h"
#include "zz_generated_hooks.h"

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Narrows what the driver says of the card down to the shares. */
static void narrow(struct card *card, uint64_t *free, uint64_t *total)
{
	uint64_t limit = card_limit(card);
	uint64_t charge;

	if (limit == TRANCHE_NO_LIMIT)
		return;
	card_look_again(card, 0);
	charge = card_charge(card);
	*total = least(*total, limit);
	*free = least(*free, charge < *total ? *total - charge : 0);
}

static CUresult info(uint64_t *free, uint64_t *total)
{
	struct owner owner;
	struct card *card;
	size_t real_free, real_total;
	CUresult result = context_current(&card, &owner);

	if (result == CUDA_SUCCESS)
		result = real_cuMemGetInfo_v2(&real_free, &real_total);
	if (result != CUDA_SUCCESS)
		return result;
	*free = real_free;
	*total = real_total;
	narrow(card, free, total);
	return CUDA_SUCCESS;
}

CUresult hook_cuMemGetInfo_v2(size_t *free, size_t *total)
{
	uint64_t all, left;
	CUresult result = info(&left, &all);

	if (result != CUDA_SUCCESS)
		return result;
	if (free)
		*free = left;
	if (total)
		*total = all;
	return CUDA_SUCCESS;
}

/* With 32 bits for each: what is more than they can say is their greatest value. */
CUresult hook_cuMemGetInfo(unsigned int *free, unsigned int *total)
{
	uint64_t all, left;
	CUresult result = info(&left, &all);

	if (result != CUDA_SUCCESS)
		return result;
	if (free)
		*free = (unsigned int)least(left, UINT32_MAX);
	if (total)
		*total = (unsigned int)least(all, UINT32_MAX);
	return CUDA_SUCCESS;
}

static CUresult total_of(uint64_t *total, CUdevice device)
{
	size_t real_total;
	CUresult result = real_cuDeviceTotalMem_v2(&real_total, device);
	struct card *card = cards_ready() == CUDA_SUCCESS ? card_of(device) : NULL;

	if (result != CUDA_SUCCESS)
		return result;
	*total = real_total;
	if (card && card->shares != 0)
		*total = least(real_total, card_limit(card));
	return CUDA_SUCCESS;
}

CUresult hook_cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	uint64_t total;
	CUresult result;

	if (!bytes)
		return real_cuDeviceTotalMem_v2(bytes, dev);
	result = total_of(&total, dev);
	if (result == CUDA_SUCCESS)
		*bytes = total;
	return result;
}

CUresult hook_cuDeviceTotalMem(unsigned int *bytes, CUdevice dev)
{
	uint64_t total;
	CUresult result;

	if (!bytes)
		return real_cuDeviceTotalMem(bytes, dev);
	result = total_of(&total, dev);
	if (result == CUDA_SUCCESS)
		*bytes = (unsigned int)least(total, UINT32_MAX);
	return result;
}
