/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for graphs: addresses that are reserved for as long as a node lives, and the memory
 * behind them. When there is memory is for the engine half to say (graph_memory.c).
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "memory.h"

CUresult sim_graph_memory_reserve(struct CUctx_st *context, size_t bytes, CUdeviceptr *address)
{
	uint64_t frames = bytes / SIM_FRAME + (bytes % SIM_FRAME != 0);
	struct sim_range *range = calloc(1, sizeof(*range));
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	if (!range)
		return result;
	pthread_mutex_lock(&sim_memory_lock);
	range->base = sim_address_take(frames);
	if (range->base) {
		range->type = SIM_RANGE_GRAPH;
		range->size = bytes;
		range->span = frames * SIM_FRAME;
		range->device = context->device;
		range->context = context;
		result = sim_range_add(range);
		if (result != CUDA_SUCCESS)
			sim_address_give(range->base, frames);
	}
	if (result == CUDA_SUCCESS)
		*address = range->base;
	pthread_mutex_unlock(&sim_memory_lock);
	if (result != CUDA_SUCCESS)
		free(range);
	return result;
}

static struct sim_range *graph_range(CUdeviceptr address)
{
	struct sim_range *range = sim_range_at(address);

	return range && range->type == SIM_RANGE_GRAPH && range->base == address ? range : NULL;
}

static CUresult back(struct sim_range *range)
{
	struct sim_block *block;
	CUresult result;

	SIM_TRY(sim_block_make(range->device, SIMCARD_GRAPH, range->span, false, &block));
	result = sim_map(range->device, range->base, block->frames, block->count, PROT_READ | PROT_WRITE);
	if (result == CUDA_SUCCESS)
		range->block = block;
	else
		sim_block_free(block);
	return result;
}

CUresult sim_graph_memory_back(CUdeviceptr address)
{
	struct sim_range *range;
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&sim_memory_lock);
	range = graph_range(address);
	if (range)
		result = range->block ? CUDA_SUCCESS : back(range);
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

static void unback(struct sim_range *range)
{
	if (!range->block)
		return;
	sim_unmap(range->base, range->span / SIM_FRAME);
	sim_block_free(range->block);
	range->block = NULL;
}

void sim_graph_memory_unback(CUdeviceptr address)
{
	struct sim_range *range;

	pthread_mutex_lock(&sim_memory_lock);
	range = graph_range(address);
	if (range)
		unback(range);
	pthread_mutex_unlock(&sim_memory_lock);
}

void sim_graph_range_free(struct sim_range *range)
{
	unback(range);
	sim_address_give(range->base, range->span / SIM_FRAME);
	free(range);
}

void sim_graph_memory_unreserve(CUdeviceptr address)
{
	struct sim_range *range;

	pthread_mutex_lock(&sim_memory_lock);
	range = graph_range(address);
	if (range)
		sim_range_free(range);
	pthread_mutex_unlock(&sim_memory_lock);
}
