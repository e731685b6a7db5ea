/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that another interface, or another process of the container, made and is charged
 * for. To see it costs nothing; a share that takes no more work sees none.
 */
#include "allocation.h"
#include "context.h"
#include "zz_generated_hooks.h"

static CUresult permitted(void)
{
	struct owner owner;
	struct card *card;
	CUresult result = context_current(&card, &owner);

	return result == CUDA_SUCCESS ? card_refusal(card) : result;
}

/* What was held only by us may be free now. */
static CUresult given_up(CUresult result)
{
	struct owner owner;
	struct card *card;

	if (result == CUDA_SUCCESS && context_current(&card, &owner) == CUDA_SUCCESS)
		hold_measure(NULL, card, false);
	return result;
}

CUresult hook_cuImportExternalMemory(CUexternalMemory *extMem_out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *memHandleDesc)
{
	struct owner owner;
	struct card *card;
	uint64_t implicit;
	CUresult result = context_current(&card, &owner);

	if (result == CUDA_SUCCESS)
		result = card_refusal(card);
	if (result != CUDA_SUCCESS)
		return result;
	implicit = card_undoubted(card);
	cards_entangle();
	result = real_cuImportExternalMemory(extMem_out, memHandleDesc);
	if (result != CUDA_SUCCESS)
		return result;
	result = import_admit(card, implicit);
	if (result != CUDA_SUCCESS)
		hook_cuDestroyExternalMemory(*extMem_out);
	return result;
}

/* A DMA buffer of memory of any kind, which outlives the process like other descriptors. */
CUresult hook_cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size, CUmemRangeHandleType handleType,
					    unsigned long long flags)
{
	cards_entangle();
	return real_cuMemGetHandleForAddressRange(handle, dptr, size, handleType, flags);
}

CUresult hook_cuExternalMemoryGetMappedBuffer(CUdeviceptr *devPtr, CUexternalMemory extMem,
					      const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *bufferDesc)
{
	CUresult result = permitted();

	return result == CUDA_SUCCESS ? real_cuExternalMemoryGetMappedBuffer(devPtr, extMem, bufferDesc) : result;
}

CUresult hook_cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray *mipmap, CUexternalMemory extMem,
						      const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *mipmapDesc)
{
	CUresult result = permitted();

	return result == CUDA_SUCCESS ? real_cuExternalMemoryGetMappedMipmappedArray(mipmap, extMem, mipmapDesc) : result;
}

CUresult hook_cuDestroyExternalMemory(CUexternalMemory extMem)
{
	return given_up(real_cuDestroyExternalMemory(extMem));
}

CUresult hook_cuGraphicsMapResources(enum cuda_hook hook, unsigned int count, CUgraphicsResource *resources, CUstream hStream)
{
	CUresult result = permitted();

	if (result != CUDA_SUCCESS)
		return result;
	return hook == HOOK_cuGraphicsMapResources_ptsz ? real_cuGraphicsMapResources_ptsz(count, resources, hStream)
							: real_cuGraphicsMapResources(count, resources, hStream);
}

CUresult hook_cuGraphicsUnmapResources(enum cuda_hook hook, unsigned int count, CUgraphicsResource *resources, CUstream hStream)
{
	return given_up(hook == HOOK_cuGraphicsUnmapResources_ptsz ? real_cuGraphicsUnmapResources_ptsz(count, resources, hStream)
								   : real_cuGraphicsUnmapResources(count, resources, hStream));
}
