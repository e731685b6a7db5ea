/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays: the driver lays them out as it likes. Room is taken for the most that they can
 * need; afterwards the driver is asked, and where it does not say, the card is
 * measured.
 */
#include <stdlib.h>

#include "taking.h"
#include "vmm.h"
#include "zz_generated_hooks.h"

#define NO_MEMORY (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)

static uint64_t format_bytes(CUarray_format format)
{
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return 1;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4;
	default: /* compressed and planar formats: none has more for one element */
		return 8;
	}
}

static uint64_t rounded(uint64_t value, uint64_t unit)
{
	return value > UINT64_MAX - unit ? UINT64_MAX : (value + unit - 1) / unit * unit;
}

static uint64_t times(uint64_t a, uint64_t b)
{
	uint64_t product;

	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/* Textures are stored in tiles of at most 512 bytes by 128 rows; thin ones in flatter
 * tiles. */
static uint64_t level_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int level)
{
	uint64_t width = d->Width >> level ? d->Width >> level : 1;
	uint64_t height = d->Height >> level ? d->Height >> level : 1;
	uint64_t depth = d->Depth;
	uint64_t channels = d->NumChannels ? d->NumChannels : 1;

	if (!(d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)))
		depth = depth >> level;
	width = rounded(times(width, channels * format_bytes(d->Format)), 512);
	height = height >= 64 ? rounded(height, 128) : rounded(height, height > 8 ? 64 : 8);
	return times(times(width, height), depth ? depth : 1);
}

static uint64_t most_bytes(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned int levels)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < levels && i < 64; i++)
		if (__builtin_add_overflow(sum, level_bytes(descriptor, i), &sum))
			return UINT64_MAX;
	return frames_of(sum);
}

/* The array is there: charges what it takes. */
static void keep(struct taking *taking, uint64_t key, const CUDA_ARRAY_MEMORY_REQUIREMENTS *needs)
{
	struct charge *charge = taking->charge;
	struct hold doubt = { .card = taking->card };

	if (taking->plain)
		return;
	charge->key = key;
	if (needs) {
		hold_keep(&charge->hold, frames_of(needs->size));
	} else {
		hold_doubt(&charge->hold, false);
		hold_merge(&doubt, &charge->hold);
		charge->measured = true;
	}
	charge_insert(charge);
	taking_end(taking);
	if (doubt.bytes != 0)
		hold_measure(&doubt, taking->card, false);
}

static void keep_array(struct taking *taking, CUarray array)
{
	CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
	bool known = !taking->plain && real_cuArrayGetMemoryRequirements(&needs, array, taking->card->device) == CUDA_SUCCESS;

	keep(taking, (uint64_t)(uintptr_t)array, known ? &needs : NULL);
}

static CUresult begin(struct taking *taking, const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned int levels)
{
	return taking_begin(taking, levels == 0 ? CHARGE_ARRAY : CHARGE_MIPMAP, most_bytes(descriptor, levels ? levels : 1));
}

static CUresult check_ready(void)
{
	struct owner owner;
	struct card *card;
	CUresult result = context_current(&card, &owner);

	return result == CUDA_SUCCESS ? card_refusal(card) : result;
}

CUresult hook_cuArrayCreate(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR_v1 *pAllocateArray)
{
	CUDA_ARRAY3D_DESCRIPTOR descriptor = { .Width = 0 };
	struct taking taking;
	CUresult result;

	if (!pHandle || !pAllocateArray)
		return real_cuArrayCreate(pHandle, pAllocateArray);
	result = cards_ready(); /* before the driver is ready it reads nothing either */
	if (result != CUDA_SUCCESS)
		return result;
	descriptor.Width = pAllocateArray->Width;
	descriptor.Height = pAllocateArray->Height;
	descriptor.Format = pAllocateArray->Format;
	descriptor.NumChannels = pAllocateArray->NumChannels;
	result = begin(&taking, &descriptor, 0);
	if (result != CUDA_SUCCESS)
		return result;
	do
		result = real_cuArrayCreate(pHandle, pAllocateArray);
	while (taking_again(&taking, &result));
	if (result == CUDA_SUCCESS)
		keep_array(&taking, *pHandle);
	return result;
}

CUresult hook_cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
	CUDA_ARRAY3D_DESCRIPTOR descriptor = { .Width = 0 };
	struct taking taking;
	CUresult result;

	if (!pHandle || !pAllocateArray)
		return real_cuArrayCreate_v2(pHandle, pAllocateArray);
	result = cards_ready(); /* before the driver is ready it reads nothing either */
	if (result != CUDA_SUCCESS)
		return result;
	descriptor.Width = pAllocateArray->Width;
	descriptor.Height = pAllocateArray->Height;
	descriptor.Format = pAllocateArray->Format;
	descriptor.NumChannels = pAllocateArray->NumChannels;
	result = begin(&taking, &descriptor, 0);
	if (result != CUDA_SUCCESS)
		return result;
	do
		result = real_cuArrayCreate_v2(pHandle, pAllocateArray);
	while (taking_again(&taking, &result));
	if (result == CUDA_SUCCESS)
		keep_array(&taking, *pHandle);
	return result;
}

CUresult hook_cuArray3DCreate(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *pAllocateArray)
{
	CUDA_ARRAY3D_DESCRIPTOR descriptor = { .Width = 0 };
	struct taking taking;
	CUresult result;

	if (!pHandle || !pAllocateArray)
		return real_cuArray3DCreate(pHandle, pAllocateArray);
	result = cards_ready(); /* before the driver is ready it reads nothing either */
	if (result != CUDA_SUCCESS)
		return result;
	descriptor.Width = pAllocateArray->Width;
	descriptor.Height = pAllocateArray->Height;
	descriptor.Depth = pAllocateArray->Depth;
	descriptor.Format = pAllocateArray->Format;
	descriptor.NumChannels = pAllocateArray->NumChannels;
	descriptor.Flags = pAllocateArray->Flags;
	result = begin(&taking, &descriptor, 0);
	if (result != CUDA_SUCCESS)
		return result;
	do
		result = real_cuArray3DCreate(pHandle, pAllocateArray);
	while (taking_again(&taking, &result));
	if (result == CUDA_SUCCESS)
		keep_array(&taking, *pHandle);
	return result;
}

CUresult hook_cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
	struct taking taking;
	CUresult result;

	if (!pHandle || !pAllocateArray)
		return real_cuArray3DCreate_v2(pHandle, pAllocateArray);
	result = cards_ready(); /* before the driver is ready it reads nothing either */
	if (result != CUDA_SUCCESS)
		return result;
	if (pAllocateArray->Flags & NO_MEMORY) {
		result = check_ready();
		return result == CUDA_SUCCESS ? real_cuArray3DCreate_v2(pHandle, pAllocateArray) : result;
	}
	result = begin(&taking, pAllocateArray, 0);
	if (result != CUDA_SUCCESS)
		return result;
	do
		result = real_cuArray3DCreate_v2(pHandle, pAllocateArray);
	while (taking_again(&taking, &result));
	if (result == CUDA_SUCCESS)
		keep_array(&taking, *pHandle);
	return result;
}

CUresult hook_cuMipmappedArrayCreate(CUmipmappedArray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
				     unsigned int numMipmapLevels)
{
	CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
	struct taking taking;
	CUresult result;
	bool known;

	if (!pHandle || !pMipmappedArrayDesc || numMipmapLevels == 0)
		return real_cuMipmappedArrayCreate(pHandle, pMipmappedArrayDesc, numMipmapLevels);
	result = cards_ready(); /* before the driver is ready it reads nothing either */
	if (result != CUDA_SUCCESS)
		return result;
	if (pMipmappedArrayDesc->Flags & NO_MEMORY) {
		result = check_ready();
		return result == CUDA_SUCCESS ? real_cuMipmappedArrayCreate(pHandle, pMipmappedArrayDesc, numMipmapLevels) : result;
	}
	result = begin(&taking, pMipmappedArrayDesc, numMipmapLevels);
	if (result != CUDA_SUCCESS)
		return result;
	do
		result = real_cuMipmappedArrayCreate(pHandle, pMipmappedArrayDesc, numMipmapLevels);
	while (taking_again(&taking, &result));
	if (result != CUDA_SUCCESS)
		return result;
	known = !taking.plain && real_cuMipmappedArrayGetMemoryRequirements(&needs, *pHandle, taking.card->device) == CUDA_SUCCESS;
	keep(&taking, (uint64_t)(uintptr_t)*pHandle, known ? &needs : NULL);
	return result;
}

/* Before and after the driver destroys one. */
struct destruction {
	struct charge *charge;
	struct bond *tiles;
	bool plain;
};

static void destroy_begin(struct destruction *destruction, enum charge_kind kind, uint64_t key)
{
	*destruction = (struct destruction){ .plain = !guard_enter() };
	if (destruction->plain || key == 0 || cards_ready() != CUDA_SUCCESS)
		return;
	destruction->charge = charge_remove(kind, key);
	destruction->tiles = bonds_begin(key, -1, 0, UINT64_MAX);
	if (destruction->charge)
		card_begin(destruction->charge->hold.card);
}

static void destroy_end(struct destruction *destruction, CUresult result)
{
	if (destruction->plain)
		return;
	bonds_end(destruction->tiles, result == CUDA_SUCCESS);
	if (destruction->charge && result == CUDA_SUCCESS) {
		charge_end(destruction->charge);
	} else if (destruction->charge) {
		card_end(destruction->charge->hold.card);
		charge_insert(destruction->charge);
	}
	guard_leave();
}

CUresult hook_cuArrayDestroy(CUarray hArray)
{
	struct destruction destruction;
	CUresult result;

	destroy_begin(&destruction, CHARGE_ARRAY, (uint64_t)(uintptr_t)hArray);
	result = real_cuArrayDestroy(hArray);
	destroy_end(&destruction, result);
	return result;
}

CUresult hook_cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
	struct destruction destruction;
	CUresult result;

	destroy_begin(&destruction, CHARGE_MIPMAP, (uint64_t)(uintptr_t)hMipmappedArray);
	result = real_cuMipmappedArrayDestroy(hMipmappedArray);
	destroy_end(&destruction, result);
	return result;
}
