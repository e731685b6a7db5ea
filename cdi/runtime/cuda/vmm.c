/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "allocation.h"
#include "taking.h"
#include "zz_generated_hooks.h"

static CUresult create(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop, unsigned long long flags,
		       struct card *card)
{
	struct allocation *allocation = calloc(1, sizeof(*allocation));
	struct taking taking;
	CUresult result;

	if (!allocation)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = taking_begin_on(&taking, card, &allocation->hold, frames_of(size));
	if (result == CUDA_SUCCESS)
		do
			result = real_cuMemCreate(handle, size, prop, flags);
		while (taking_again(&taking, &result));
	if (result != CUDA_SUCCESS || taking.plain) {
		free(allocation);
		return result;
	}
	allocation->card = card;
	allocation->references = 1;
	handle_add(*handle, allocation);
	taking_end(&taking);
	return result;
}

CUresult hook_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop, unsigned long long flags)
{
	CUresult result = cards_ready();
	struct card *card;

	if (result != CUDA_SUCCESS)
		return result;
	if (!handle || !prop || size == 0 || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return real_cuMemCreate(handle, size, prop, flags);
	card = card_of(prop->location.id);
	if (!card)
		return real_cuMemCreate(handle, size, prop, flags);
	result = card_connect(card);
	return result == CUDA_SUCCESS ? create(handle, size, prop, flags, card) : result;
}

/* Of all cards: which one imported memory is on is known only afterwards. */
static void implicit_of_cards(uint64_t implicit[CARD_MAX])
{
	for (size_t i = 0; i < card_count(); i++)
		implicit[i] = card_undoubted(card_at(i));
}

CUresult hook_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle, CUmemAllocationHandleType shHandleType)
{
	CUresult result = cards_ready();
	CUmemGenericAllocationHandle imported;
	struct allocation *allocation;
	uint64_t implicit[CARD_MAX];
	CUmemAllocationProp prop;
	struct card *card = NULL;

	if (result != CUDA_SUCCESS)
		return result;
	if (!handle)
		return real_cuMemImportFromShareableHandle(handle, osHandle, shHandleType);
	allocation = calloc(1, sizeof(*allocation));
	if (!allocation)
		return CUDA_ERROR_OUT_OF_MEMORY;
	implicit_of_cards(implicit);
	cards_entangle();
	result = real_cuMemImportFromShareableHandle(&imported, osHandle, shHandleType);
	if (result != CUDA_SUCCESS) {
		free(allocation);
		return result;
	}
	allocation->references = 1;
	if (real_cuMemGetAllocationPropertiesFromHandle(&prop, imported) == CUDA_SUCCESS &&
	    prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE)
		card = card_of(prop.location.id);
	allocation->card = card;
	if (!handle_add(imported, allocation)) {
		free(allocation);
	} else if (card) {
		/* Its maker may have ended, and a descriptor have kept the memory. */
		result = import_admit(card, implicit[card - card_at(0)]);
		if (result != CUDA_SUCCESS) {
			hook_cuMemRelease(imported);
			return result;
		}
	}
	*handle = imported;
	return CUDA_SUCCESS;
}

CUresult hook_cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
					   CUmemAllocationHandleType handleType, unsigned long long flags)
{
	struct allocation *allocation = allocation_of_handle(handle);
	CUresult result;

	if (allocation)
		allocation_export(allocation);
	result = real_cuMemExportToShareableHandle(shareableHandle, handle, handleType, flags);
	if (allocation) {
		if (result != CUDA_SUCCESS)
			allocation_unexport(allocation);
		allocation_put(allocation);
	}
	return result;
}

CUresult hook_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	struct allocation *allocation = allocation_at((CUdeviceptr)(uintptr_t)addr);
	CUresult result = real_cuMemRetainAllocationHandle(handle, addr);

	if (!allocation)
		return result;
	if (result != CUDA_SUCCESS || !handle_add(*handle, allocation))
		allocation_put(allocation);
	return result;
}

CUresult hook_cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct releases releases = { .measure = NULL };
	struct allocation *allocation = handle_remove(handle);
	struct bond *bonds = NULL;
	CUresult result;

	if (!allocation)
		return real_cuMemRelease(handle);
	allocation_begin(allocation);
	if (allocation->multicast && __atomic_load_n(&allocation->references, __ATOMIC_ACQUIRE) == 1)
		bonds = bonds_begin(handle, -1, 0, UINT64_MAX);
	result = real_cuMemRelease(handle);
	bonds_end(bonds, result == CUDA_SUCCESS);
	if (result != CUDA_SUCCESS)
		handle_add(handle, allocation);
	allocation_end(allocation, result == CUDA_SUCCESS, &releases);
	releases_end(&releases);
	return result;
}

CUresult hook_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct allocation *allocation = allocation_of_handle(handle);
	struct named *mapping = allocation ? calloc(1, sizeof(*mapping)) : NULL;
	CUresult result;

	if (allocation && !mapping) {
		allocation_put(allocation);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	result = real_cuMemMap(ptr, size, offset, handle, flags);
	if (!mapping)
		return result;
	if (result != CUDA_SUCCESS) {
		free(mapping);
		allocation_put(allocation);
		return result;
	}
	*mapping = (struct named){ .name = ptr, .size = size, .allocation = allocation };
	mapping_add(mapping);
	return result;
}

CUresult hook_cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	struct releases releases = { .measure = NULL };
	struct named *removed = cards_ready() == CUDA_SUCCESS ? mappings_remove(ptr, size) : NULL;
	CUresult result;

	for (struct named *named = removed; named; named = named->next)
		allocation_begin(named->allocation);
	result = real_cuMemUnmap(ptr, size);
	while (removed) {
		struct named *next = removed->next;

		allocation_end(removed->allocation, result == CUDA_SUCCESS, &releases);
		if (result == CUDA_SUCCESS) {
			free(removed);
		} else {
			mapping_add(removed);
		}
		removed = next;
	}
	releases_end(&releases);
	return result;
}

CUresult hook_cuMulticastCreate(CUmemGenericAllocationHandle *mcHandle, const CUmulticastObjectProp *prop)
{
	CUresult result = cards_ready();
	struct allocation *allocation;

	if (result == CUDA_SUCCESS)
		result = real_cuMulticastCreate(mcHandle, prop);
	if (result != CUDA_SUCCESS)
		return result;
	/* The object itself holds no memory; what is bound to it is kept alive by it. */
	allocation = calloc(1, sizeof(*allocation));
	if (allocation) {
		allocation->references = 1;
		allocation->multicast = true;
		handle_add(*mcHandle, allocation);
	}
	return result;
}
