/* SPDX-License-Identifier: Apache-2.0
 *
 * Small allocations: those of one context and kind share frames. A frame is given
 * back when nothing is left in it, as the real driver does.
 */
#include <stdlib.h>
#include <string.h>

#include "memory.h"

#define UNITS (SIMCARD_FRAME / SIM_SLAB_UNIT)
#define WORDS (UNITS / 64)

/* One frame. */
struct slab {
	struct sim_range range;
	struct sim_link link; /* among the context's, those with room for the last request first */
	unsigned used;        /* units */
	unsigned hint;        /* no unit below it is free */
	uint64_t taken[WORDS];
	/* By the first unit: units and bytes of the allocation. */
	uint16_t units[UNITS];
	uint32_t bytes[UNITS];
	uint64_t id[UNITS];
};

static uint64_t next_id = (uint64_t)1 << 40; /* apart from those of ranges */

static bool is_taken(const struct slab *slab, unsigned unit)
{
	return slab->taken[unit / 64] >> (unit % 64) & 1;
}

static void mark(struct slab *slab, unsigned first, unsigned count, bool taken)
{
	while (count > 0) {
		unsigned bit = first % 64;
		unsigned here = 64 - bit < count ? 64 - bit : count;
		uint64_t mask = (here == 64 ? UINT64_MAX : ((uint64_t)1 << here) - 1) << bit;

		if (taken)
			slab->taken[first / 64] |= mask;
		else
			slab->taken[first / 64] &= ~mask;
		first += here;
		count -= here;
	}
}

/* The next unit from start on that is (not) taken, or UNITS. */
static unsigned next_unit(const struct slab *slab, unsigned start, bool taken)
{
	while (start < UNITS) {
		uint64_t word = slab->taken[start / 64];

		word = (taken ? word : ~word) >> (start % 64);
		if (word)
			return start + (unsigned)__builtin_ctzll(word);
		start = (start / 64 + 1) * 64;
	}
	return UNITS;
}

/* The first of count free units, or UNITS. */
static unsigned find_room(struct slab *slab, unsigned count)
{
	unsigned start = next_unit(slab, slab->hint, false);

	slab->hint = start;
	while (start + count <= UNITS) {
		unsigned end = next_unit(slab, start, true);

		if (end - start >= count)
			return start;
		start = next_unit(slab, end, false);
	}
	return UNITS;
}

static struct slab *slab_of(const struct sim_range *range)
{
	return range->owner;
}

static CUresult new_slab(struct CUctx_st *context, bool managed, struct slab **result)
{
	struct slab *slab = calloc(1, sizeof(*slab));
	CUresult outcome;

	if (!slab)
		return CUDA_ERROR_OUT_OF_MEMORY;
	outcome = sim_block_make(context->device, managed ? SIMCARD_MANAGED : SIMCARD_LINEAR, SIM_FRAME, true, &slab->range.block);
	if (outcome != CUDA_SUCCESS) {
		free(slab);
		return outcome;
	}
	slab->range.type = SIM_RANGE_SLAB;
	slab->range.base = slab->range.block->address;
	slab->range.size = slab->range.span = SIM_FRAME;
	slab->range.device = context->device;
	slab->range.context = context;
	slab->range.managed = managed;
	slab->range.owner = slab;
	outcome = sim_range_add(&slab->range);
	if (outcome != CUDA_SUCCESS) {
		sim_block_free(slab->range.block);
		free(slab);
		return outcome;
	}
	sim_list_add(&context->memory->slabs[managed], &slab->link);
	*result = slab;
	return CUDA_SUCCESS;
}

CUresult sim_slab_alloc(struct CUctx_st *context, bool managed, uint64_t bytes, CUdeviceptr *address)
{
	struct sim_link *list = &context->memory->slabs[managed];
	unsigned count = (unsigned)((bytes + SIM_SLAB_UNIT - 1) / SIM_SLAB_UNIT);
	struct slab *slab = NULL;
	unsigned first = UNITS;

	for (struct sim_link *link = list->next; link != list; link = link->next) {
		slab = SIM_OF(link, struct slab, link);
		first = slab->used + count <= UNITS ? find_room(slab, count) : UNITS;
		if (first < UNITS)
			break;
	}
	if (first == UNITS) {
		SIM_TRY(new_slab(context, managed, &slab));
		first = 0;
	} else if (list->next != &slab->link) {
		sim_list_remove(&slab->link);
		sim_list_add(list, &slab->link);
	}
	mark(slab, first, count, true);
	slab->used += count;
	slab->units[first] = (uint16_t)count;
	slab->bytes[first] = (uint32_t)bytes;
	slab->id[first] = ++next_id;
	*address = slab->range.base + (uint64_t)first * SIM_SLAB_UNIT;
	return CUDA_SUCCESS;
}

CUresult sim_slab_free(struct sim_range *range, CUdeviceptr address)
{
	struct slab *slab = slab_of(range);
	uint64_t offset = address - range->base;
	unsigned first = (unsigned)(offset / SIM_SLAB_UNIT);

	if (offset % SIM_SLAB_UNIT != 0 || slab->units[first] == 0)
		return CUDA_ERROR_INVALID_VALUE;
	mark(slab, first, slab->units[first], false);
	slab->used -= slab->units[first];
	slab->units[first] = 0;
	if (first < slab->hint)
		slab->hint = first;
	if (slab->used == 0)
		sim_range_free(range);
	return CUDA_SUCCESS;
}

bool sim_slab_find(const struct sim_range *range, CUdeviceptr address, struct sim_found *found)
{
	const struct slab *slab = slab_of(range);
	unsigned unit = (unsigned)((address - range->base) / SIM_SLAB_UNIT);

	/* The allocation that a unit is in begins at the next one below it that says so. */
	if (!is_taken(slab, unit))
		return false;
	while (slab->units[unit] == 0)
		unit--;
	found->base = range->base + (uint64_t)unit * SIM_SLAB_UNIT;
	found->size = slab->bytes[unit];
	found->id = slab->id[unit];
	return address - found->base < found->size;
}

void sim_slab_delete(struct sim_range *range)
{
	struct slab *slab = slab_of(range);

	sim_list_remove(&slab->link);
	sim_block_free(range->block);
	free(slab);
}
