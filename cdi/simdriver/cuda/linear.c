/* SPDX-License-Identifier: Apache-2.0
 *
 * cuMemAlloc and its kin.
 */
#include <stdlib.h>
#include <string.h>

#include "linear.h"

/* What rows of cuMemAllocPitch are a multiple of. */
#define PITCH_UNIT 512u

static CUresult alloc_large(struct CUctx_st *context, bool managed, uint64_t bytes, unsigned flags, CUdeviceptr *address)
{
	struct sim_range *range = calloc(1, sizeof(*range));
	CUresult result;

	if (!range)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = sim_block_make(context->device, managed ? SIMCARD_MANAGED : SIMCARD_LINEAR, bytes, true, &range->block);
	if (result != CUDA_SUCCESS) {
		free(range);
		return result;
	}
	range->type = SIM_RANGE_LINEAR;
	range->base = range->block->address;
	range->size = bytes;
	range->span = range->block->count * SIM_FRAME;
	range->device = context->device;
	range->context = context;
	range->managed = managed;
	range->flags = flags;
	result = sim_range_add(range);
	if (result != CUDA_SUCCESS) {
		sim_block_free(range->block);
		free(range);
		return result;
	}
	*address = range->base;
	return CUDA_SUCCESS;
}

static CUresult alloc(struct CUctx_st *context, bool managed, uint64_t bytes, unsigned flags, CUdeviceptr *address)
{
	CUresult result;

	SIM_TRY(engine_may_block(context));
	pthread_mutex_lock(&sim_memory_lock);
	if (bytes <= SIM_SMALL_MAX)
		result = sim_slab_alloc(context, managed, bytes, address);
	else
		result = alloc_large(context, managed, bytes, flags, address);
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	SIM_CONTEXT_ENTER(context);
	SIM_INVALID_IF(!dptr || bytesize == 0);
	return alloc(context, false, bytesize, 0, dptr);
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	SIM_CONTEXT_ENTER(context);
	SIM_INVALID_IF(!dptr || bytesize == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST));
	return alloc(context, true, bytesize, flags, dptr);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height, unsigned int ElementSizeBytes)
{
	uint64_t pitch;

	SIM_CONTEXT_ENTER(context);
	SIM_INVALID_IF(!dptr || !pPitch || WidthInBytes == 0 || Height == 0);
	SIM_INVALID_IF(ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16);
	SIM_INVALID_IF(WidthInBytes > SIM_MAX_PITCH);
	pitch = sim_round_up(WidthInBytes, PITCH_UNIT);
	if (Height > UINT64_MAX / pitch)
		return CUDA_ERROR_OUT_OF_MEMORY;
	SIM_TRY(alloc(context, false, pitch * Height, 0, dptr));
	*pPitch = pitch;
	return CUDA_SUCCESS;
}

/* The address of something that cuMemFree frees, under the lock. */
static CUresult free_locked(CUdeviceptr address)
{
	struct sim_range *range = sim_range_at(address);

	if (!range)
		return CUDA_ERROR_INVALID_VALUE;
	switch (range->type) {
	case SIM_RANGE_SLAB:
		return sim_slab_free(range, address);
	case SIM_RANGE_LINEAR:
	case SIM_RANGE_EXTERNAL:
		if (address != range->base)
			return CUDA_ERROR_INVALID_VALUE;
		sim_range_free(range);
		return CUDA_SUCCESS;
	case SIM_RANGE_POOL:
		return sim_pool_free(range, address);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult cuMemFree_v2(CUdeviceptr dptr)
{
	struct sim_device *device;
	struct sim_range *range;
	bool graph;
	CUresult result;

	SIM_CONTEXT_ENTER(context);
	if (dptr == 0)
		return CUDA_SUCCESS;
	SIM_TRY(engine_may_block(context));
	pthread_mutex_lock(&sim_memory_lock);
	range = sim_range_at(dptr);
	device = range && range->device ? range->device : context->device;
	graph = range && range->type == SIM_RANGE_GRAPH;
	pthread_mutex_unlock(&sim_memory_lock);
	if (!range)
		return CUDA_ERROR_INVALID_VALUE;
	/* Work that was submitted before may still use the memory. */
	SIM_TRY(engine_device_wait(device));
	if (graph)
		return engine_graph_memory_free(dptr, NULL);
	pthread_mutex_lock(&sim_memory_lock);
	result = free_locked(dptr);
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

void sim_range_free(struct sim_range *range)
{
	sim_range_remove(range);
	switch (range->type) {
	case SIM_RANGE_SLAB:
		sim_slab_delete(range);
		return;
	case SIM_RANGE_GRAPH:
		sim_graph_range_free(range);
		return;
	case SIM_RANGE_EXTERNAL:
		sim_external_free(range);
		return;
	default:
		sim_block_free(range->block);
		free(range);
	}
}

void sim_context_free_ranges(struct CUctx_st *context)
{
	struct sim_link *list = &context->memory->ranges;

	while (list->next != list) {
		struct sim_range *range = SIM_OF(list->next, struct sim_range, in_context);

		if (range->type == SIM_RANGE_HOST)
			sim_host_free(range);
		else
			sim_range_free(range);
	}
}

static CUresult get_info(uint64_t *left, uint64_t *total)
{
	struct sim_device *device;
	struct simcard *page;
	uint64_t used;

	SIM_CONTEXT_ENTER(context);
	device = context->device;
	page = device->card.page;
	pthread_mutex_lock(&device->frames);
	card_reap(&device->card);
	card_sweep(&device->card);
	pthread_mutex_unlock(&device->frames);
	used = __atomic_load_n(&page->used, __ATOMIC_RELAXED) + page->memory_driver;
	*left = used < page->memory_total ? page->memory_total - used : 0;
	*total = page->memory_total;
	return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
	uint64_t left, all;

	SIM_TRY(get_info(&left, &all));
	if (free)
		*free = left;
	if (total)
		*total = all;
	return CUDA_SUCCESS;
}

/* The first interface has 32 bits for it. */
CUresult cuMemGetInfo(unsigned int *free, unsigned int *total)
{
	uint64_t left, all;

	SIM_TRY(get_info(&left, &all));
	if (free)
		*free = left > UINT32_MAX ? UINT32_MAX : (unsigned)left;
	if (total)
		*total = all > UINT32_MAX ? UINT32_MAX : (unsigned)all;
	return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
	struct sim_found found;
	CUresult result;

	SIM_ENTER();
	pthread_mutex_lock(&sim_memory_lock);
	result = sim_find(dptr, &found);
	pthread_mutex_unlock(&sim_memory_lock);
	if (result != CUDA_SUCCESS)
		return CUDA_ERROR_NOT_FOUND;
	if (pbase)
		*pbase = found.base;
	if (psize)
		*psize = found.size;
	return CUDA_SUCCESS;
}
