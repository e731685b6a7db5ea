/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "pool.h"
#include "taking.h"
#include "zz_generated_hooks.h"

/* Rows of cuMemAllocPitch are a multiple of this on all known cards, or of their
 * texture alignment. */
#define PITCH_UNIT 512

static uint64_t product(uint64_t a, uint64_t b)
{
	uint64_t result;

	return __builtin_mul_overflow(a, b, &result) ? UINT64_MAX : result;
}

static void keep(struct taking *taking, uint64_t address, uint64_t size)
{
	if (taking->plain)
		return;
	linear_charge(taking->charge, address, size);
	charge_insert(taking->charge);
	taking_end(taking);
}

CUresult hook_cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytesize)
{
	struct taking taking;
	CUresult result;

	if (!dptr || bytesize == 0)
		return real_cuMemAlloc(dptr, bytesize);
	result = taking_begin(&taking, CHARGE_LINEAR, frames_of(bytesize));
	if (result != CUDA_SUCCESS)
		return result;
	do
		result = real_cuMemAlloc(dptr, bytesize);
	while (taking_again(&taking, &result));
	if (result == CUDA_SUCCESS)
		keep(&taking, *dptr, bytesize);
	return result;
}

CUresult hook_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	struct taking taking;
	CUresult result;

	if (!dptr || bytesize == 0)
		return real_cuMemAlloc_v2(dptr, bytesize);
	result = taking_begin(&taking, CHARGE_LINEAR, frames_of(bytesize));
	if (result != CUDA_SUCCESS)
		return result;
	do
		result = real_cuMemAlloc_v2(dptr, bytesize);
	while (taking_again(&taking, &result));
	if (result == CUDA_SUCCESS)
		keep(&taking, *dptr, bytesize);
	return result;
}

CUresult hook_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	struct taking taking;
	CUresult result;

	if (!dptr || bytesize == 0)
		return real_cuMemAllocManaged(dptr, bytesize, flags);
	result = taking_begin(&taking, CHARGE_LINEAR, frames_of(bytesize));
	if (result != CUDA_SUCCESS)
		return result;
	do
		result = real_cuMemAllocManaged(dptr, bytesize, flags);
	while (taking_again(&taking, &result));
	if (result == CUDA_SUCCESS)
		keep(&taking, *dptr, bytesize);
	return result;
}

/* The most that rows of this width can take: the driver says only afterwards. */
static uint64_t pitched(uint64_t width, uint64_t height)
{
	uint64_t unit = PITCH_UNIT;
	CUdevice device;
	int alignment;

	if (real_cuCtxGetDevice(&device) == CUDA_SUCCESS &&
	    real_cuDeviceGetAttribute(&alignment, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, device) == CUDA_SUCCESS && alignment > PITCH_UNIT)
		unit = (uint64_t)alignment;
	return frames_of(product(width > UINT64_MAX - unit ? UINT64_MAX : (width + unit - 1) / unit * unit, height));
}

CUresult hook_cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pPitch, unsigned int WidthInBytes, unsigned int Height,
			      unsigned int ElementSizeBytes)
{
	struct taking taking;
	CUresult result;

	if (!dptr || !pPitch || WidthInBytes == 0 || Height == 0)
		return real_cuMemAllocPitch(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
	result = taking_begin(&taking, CHARGE_LINEAR, pitched(WidthInBytes, Height));
	if (result != CUDA_SUCCESS)
		return result;
	do
		result = real_cuMemAllocPitch(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
	while (taking_again(&taking, &result));
	if (result == CUDA_SUCCESS)
		keep(&taking, *dptr, product(*pPitch, Height));
	return result;
}

CUresult hook_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height, unsigned int ElementSizeBytes)
{
	struct taking taking;
	CUresult result;

	if (!dptr || !pPitch || WidthInBytes == 0 || Height == 0)
		return real_cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
	result = taking_begin(&taking, CHARGE_LINEAR, pitched(WidthInBytes, Height));
	if (result != CUDA_SUCCESS)
		return result;
	do
		result = real_cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
	while (taking_again(&taking, &result));
	if (result == CUDA_SUCCESS)
		keep(&taking, *dptr, product(*pPitch, Height));
	return result;
}

/* What is begun before the driver is asked to free, and ended afterwards. */
struct freeing {
	struct charge *charge;
	bool plain;
};

static void free_begin(struct freeing *freeing, uint64_t address)
{
	freeing->charge = NULL;
	freeing->plain = !guard_enter();
	if (freeing->plain)
		return;
	if (address != 0 && cards_ready() == CUDA_SUCCESS)
		freeing->charge = charge_remove(CHARGE_LINEAR, address);
	if (freeing->charge)
		card_begin(freeing->charge->hold.card);
}

/* Whether the driver has no such allocation: another thread has freed it. Any other answer
 * than a clear no leaves the memory charged. */
static bool gone(uint64_t address, CUresult result)
{
	CUdeviceptr base;
	CUresult found;

	if (result != CUDA_ERROR_INVALID_VALUE)
		return false;
	found = real_cuMemGetAddressRange_v2(&base, NULL, address);
	return found == CUDA_ERROR_NOT_FOUND || found == CUDA_ERROR_INVALID_VALUE || (found == CUDA_SUCCESS && base != address);
}

static void free_end(struct freeing *freeing, uint64_t address, CUresult result)
{
	if (freeing->plain)
		return;
	if (freeing->charge && result == CUDA_SUCCESS) {
		charge_end(freeing->charge);
	} else if (freeing->charge && gone(address, result)) {
		/* Who freed it found no charge: it is ended here, and measured to be sure. */
		freeing->charge->measured = true;
		charge_end(freeing->charge);
	} else if (freeing->charge) {
		card_end(freeing->charge->hold.card);
		charge_insert(freeing->charge);
	} else if (result == CUDA_SUCCESS && address != 0) {
		pool_freed(address); /* or nothing that we know: the driver's affair */
	}
	guard_leave();
}

CUresult hook_cuMemFree(CUdeviceptr_v1 dptr)
{
	struct freeing freeing;
	CUresult result;

	free_begin(&freeing, dptr);
	result = real_cuMemFree(dptr);
	free_end(&freeing, dptr, result);
	return result;
}

CUresult hook_cuMemFree_v2(CUdeviceptr dptr)
{
	struct freeing freeing;
	CUresult result;

	free_begin(&freeing, dptr);
	result = real_cuMemFree_v2(dptr);
	free_end(&freeing, dptr, result);
	return result;
}

CUresult hook_cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
	CUresult result = real_cuIpcGetMemHandle(pHandle, dptr);
	CUdeviceptr base = dptr;

	if (result == CUDA_SUCCESS && cards_ready() == CUDA_SUCCESS) {
		real_cuMemGetAddressRange_v2(&base, NULL, dptr);
		charge_export(base);
	}
	return result;
}

/* The memory is another process's, in the same container, and charged there: unlike a
 * descriptor, such a handle opens nothing after its maker ended. */
CUresult hook_cuIpcOpenMemHandle(enum cuda_hook hook, CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	struct owner owner;
	struct card *card;
	CUresult result = context_current(&card, &owner);

	if (result == CUDA_SUCCESS)
		result = card_refusal(card);
	if (result != CUDA_SUCCESS)
		return result;
	return hook == HOOK_cuIpcOpenMemHandle ? real_cuIpcOpenMemHandle(pdptr, handle, Flags)
					       : real_cuIpcOpenMemHandle_v2(pdptr, handle, Flags);
}

CUresult hook_cuIpcCloseMemHandle(CUdeviceptr dptr)
{
	CUresult result = real_cuIpcCloseMemHandle(dptr);
	struct owner owner;
	struct card *card;

	/* Its maker may have left it to us in the meantime. */
	if (result == CUDA_SUCCESS && context_current(&card, &owner) == CUDA_SUCCESS)
		hold_measure(NULL, card, false);
	return result;
}
