/* SPDX-License-Identifier: Apache-2.0
 *
 * What is at an address: a table of two levels with an entry for every 2 MiB of the address
 * space that a card's memory may be at, and a sorted list for the host's.
 */
#include <stdlib.h>
#include <string.h>

#include "memory.h"

#define LEAF_BITS 13
#define ROOT_BITS 13
#define FRAME_BITS 21

static struct sim_range **root[1u << ROOT_BITS];

static struct {
	struct sim_range **range;
	size_t count;
	size_t room;
} host;

static uint64_t next_id;

static struct sim_range **entry(CUdeviceptr address, bool make)
{
	uint64_t frame = address >> FRAME_BITS;
	struct sim_range ***leaf;

	if (frame >> (ROOT_BITS + LEAF_BITS))
		return NULL;
	leaf = &root[frame >> LEAF_BITS];
	if (!*leaf && make)
		*leaf = calloc(1u << LEAF_BITS, sizeof(**leaf));
	return *leaf ? *leaf + (frame & ((1u << LEAF_BITS) - 1)) : NULL;
}

/* The first address of the frame that a range begins in. */
static CUdeviceptr start_of(const struct sim_range *range)
{
	return range->base / SIM_FRAME * SIM_FRAME;
}

CUresult sim_range_add(struct sim_range *range)
{
	CUdeviceptr start = start_of(range);

	for (CUdeviceptr at = start; at < start + range->span; at += SIM_FRAME) {
		if (!entry(at, true))
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (CUdeviceptr at = start; at < start + range->span; at += SIM_FRAME)
		*entry(at, true) = range;
	range->id = ++next_id;
	if (range->context)
		sim_list_add(&range->context->memory->ranges, &range->in_context);
	return CUDA_SUCCESS;
}

void sim_range_remove(struct sim_range *range)
{
	CUdeviceptr start = start_of(range);

	for (CUdeviceptr at = start; at < start + range->span; at += SIM_FRAME)
		*entry(at, false) = NULL;
	sim_list_remove(&range->in_context);
}

struct sim_range *sim_range_at(CUdeviceptr address)
{
	struct sim_range **found = entry(address, false);

	return found ? *found : NULL;
}

/* The number of host ranges that begin at or before the address. */
static size_t host_before(CUdeviceptr address)
{
	size_t low = 0, high = host.count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (host.range[middle]->base <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

CUresult sim_host_add(struct sim_range *range)
{
	size_t place = host_before(range->base);

	if (host.count == host.room) {
		struct sim_range **bigger = realloc(host.range, (host.room + 64) * sizeof(struct sim_range *));

		if (!bigger)
			return CUDA_ERROR_OUT_OF_MEMORY;
		host.range = bigger;
		host.room += 64;
	}
	memmove(&host.range[place + 1], &host.range[place], (host.count - place) * sizeof(struct sim_range *));
	host.range[place] = range;
	host.count++;
	range->id = ++next_id;
	if (range->context)
		sim_list_add(&range->context->memory->ranges, &range->in_context);
	return CUDA_SUCCESS;
}

void sim_host_remove(struct sim_range *range)
{
	size_t place = host_before(range->base) - 1;

	host.count--;
	memmove(&host.range[place], &host.range[place + 1], (host.count - place) * sizeof(struct sim_range *));
	sim_list_remove(&range->in_context);
}

struct sim_range *sim_host_at(CUdeviceptr address)
{
	size_t place = host_before(address);

	if (place == 0)
		return NULL;
	return address - host.range[place - 1]->base < host.range[place - 1]->span ? host.range[place - 1] : NULL;
}

struct sim_range *sim_host_overlap(CUdeviceptr address, uint64_t bytes)
{
	struct sim_range *range = sim_host_at(address);
	size_t next = host_before(address);

	if (range)
		return range;
	return next < host.count && host.range[next]->base < address + bytes ? host.range[next] : NULL;
}

CUresult sim_find(CUdeviceptr address, struct sim_found *found)
{
	struct sim_range *range = sim_range_at(address);
	bool there;

	if (!range)
		range = sim_host_at(address);
	if (!range)
		return CUDA_ERROR_INVALID_VALUE;
	*found = (struct sim_found){.range = range, .base = range->base, .size = range->size, .id = range->id};
	found->device = range->type == SIM_RANGE_HOST ? NULL : range->device;
	switch (range->type) {
	case SIM_RANGE_SLAB:
		there = sim_slab_find(range, address, found);
		break;
	case SIM_RANGE_POOL:
		there = sim_pool_find(range, address, found);
		break;
	case SIM_RANGE_MODULE:
		there = sim_module_find(range, address, found);
		break;
	case SIM_RANGE_RESERVED:
		there = sim_vmm_find(range, address, found);
		break;
	default:
		there = address - range->base < range->size;
	}
	return there ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
