/* SPDX-License-Identifier: Apache-2.0
 *
 * Segments of pools: growing and shrinking, and which of their pieces can be joined.
 */
#include <stdlib.h>

#include "pool.h"

bool sim_pool_reached(struct pool_piece *piece)
{
	if (piece->stream && engine_mark_done(piece->mark))
		piece->stream = 0;
	return !piece->stream;
}

bool sim_pool_join(struct pool_piece *piece)
{
	struct pool_piece *next = piece->next;

	if (piece->used || !next || next->used)
		return false;
	if (piece->stream != next->stream && !(sim_pool_reached(piece) && sim_pool_reached(next)))
		return false;
	if (piece->stream && next->mark > piece->mark)
		piece->mark = next->mark;
	piece->size += next->size;
	piece->next = next->next;
	if (next->next)
		next->next->previous = piece;
	free(next);
	return true;
}

/* The segment's only piece, if all of it is free and reached. */
static struct pool_piece *whole(struct pool_segment *segment)
{
	while (sim_pool_join(segment->first))
		continue;
	return segment->first->next || segment->first->used || !sim_pool_reached(segment->first) ? NULL : segment->first;
}

void sim_pool_delete_segment(struct pool_segment *segment)
{
	sim_range_remove(&segment->range);
	sim_list_remove(&segment->link);
	if (!segment->imported.id)
		segment->pool->reserved -= segment->range.span;
	sim_block_free(segment->range.block);
	while (segment->first) {
		struct pool_piece *piece = segment->first;

		segment->first = piece->next;
		if (piece->used) {
			segment->pool->used -= piece->size;
			sim_pool_unhash(piece);
		}
		free(piece);
	}
	free(segment);
}

/* Takes frames off the end of a segment that is free as a whole. They go to taken, or,
 * if that is NULL, back to the card. */
static void shrink(struct pool_segment *segment, uint64_t frames, uint32_t *taken)
{
	struct sim_block *block = segment->range.block;
	struct CUmemPoolHandle_st *pool = segment->pool;
	struct sim_device *device = block->device;
	uint64_t left = block->count - frames;

	sim_range_remove(&segment->range);
	sim_address_give(block->address + left * SIM_FRAME, frames);
	if (taken) {
		for (uint64_t i = 0; i < frames; i++)
			taken[i] = block->frames[left + i];
	} else {
		pthread_mutex_lock(&device->frames);
		card_release(&device->card, block->frames + left, frames);
		pthread_mutex_unlock(&device->frames);
	}
	pool->reserved -= frames * SIM_FRAME;
	block->count = left;
	segment->range.size = segment->range.span = left * SIM_FRAME;
	segment->first->size = left * SIM_FRAME;
	if (left == 0) {
		block->address = 0;
		sim_pool_delete_segment(segment);
		return;
	}
	/* The table has leaves for all of these addresses already. */
	(void)sim_range_add(&segment->range);
}

void sim_pool_trim(struct CUmemPoolHandle_st *pool, uint64_t keep)
{
	for (struct sim_link *link = pool->segments.next; link != &pool->segments && pool->reserved > keep;) {
		struct pool_segment *segment = SIM_OF(link, struct pool_segment, link);
		uint64_t frames = (pool->reserved - keep) / SIM_FRAME;

		link = link->next;
		if (frames == 0 || !whole(segment))
			continue;
		/* Shared frames have their place in an object. */
		if (segment->range.block->object.id) {
			if (frames >= segment->range.block->count)
				sim_pool_delete_segment(segment);
			continue;
		}
		shrink(segment, frames < segment->range.block->count ? frames : segment->range.block->count, NULL);
	}
}

/* Collects up to count frames from free segments. */
static uint64_t collect(struct CUmemPoolHandle_st *pool, uint32_t *frames, uint64_t count)
{
	uint64_t got = 0;

	for (struct sim_link *link = pool->segments.next; link != &pool->segments && got < count;) {
		struct pool_segment *segment = SIM_OF(link, struct pool_segment, link);
		uint64_t has = segment->range.block->count;
		uint64_t take = has < count - got ? has : count - got;

		link = link->next;
		if (segment->range.block->object.id || !whole(segment))
			continue;
		shrink(segment, take, frames + got);
		got += take;
	}
	return got;
}

static CUresult add_segment(struct CUmemPoolHandle_st *pool, struct sim_block *block, struct pool_segment **result)
{
	struct pool_segment *segment = calloc(1, sizeof(*segment));
	struct pool_piece *piece = calloc(1, sizeof(*piece));

	if (!segment || !piece) {
		free(segment);
		free(piece);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	segment->pool = pool;
	segment->first = piece;
	piece->segment = segment;
	piece->size = block->count * SIM_FRAME;
	segment->range = (struct sim_range){
		.type = SIM_RANGE_POOL,
		.base = block->address,
		.size = piece->size,
		.span = piece->size,
		.device = pool->device,
		.block = block,
		.owner = segment,
	};
	if (sim_range_add(&segment->range) != CUDA_SUCCESS) {
		free(segment);
		free(piece);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	sim_list_add(&pool->segments, &segment->link);
	pool->reserved += piece->size;
	if (pool->reserved > pool->reserved_high)
		pool->reserved_high = pool->reserved;
	*result = segment;
	return CUDA_SUCCESS;
}

CUresult sim_pool_grow(struct CUmemPoolHandle_st *pool, uint64_t bytes, struct pool_segment **segment)
{
	uint64_t count = sim_round_up(bytes, SIM_POOL_CHUNK) / SIM_FRAME;
	struct sim_block *block;
	uint32_t *frames;
	uint64_t idle;
	CUresult result;

	if (count > card_frames(pool->device->card.page))
		return CUDA_ERROR_OUT_OF_MEMORY;
	frames = malloc(count * sizeof(*frames));
	if (!frames)
		return CUDA_ERROR_OUT_OF_MEMORY;
	idle = collect(pool, frames, count);
	if (pool->properties.maxSize && pool->reserved + count * SIM_FRAME > pool->properties.maxSize) {
		result = CUDA_ERROR_OUT_OF_MEMORY;
		if (idle) {
			pthread_mutex_lock(&pool->device->frames);
			card_release(&pool->device->card, frames, idle);
			pthread_mutex_unlock(&pool->device->frames);
		}
	} else {
		result = sim_block_make_of(pool->device, SIMCARD_POOL, frames, idle, count, true, &block);
	}
	free(frames);
	SIM_TRY(result);
	result = add_segment(pool, block, segment);
	if (result != CUDA_SUCCESS)
		sim_block_free(block);
	return result;
}
