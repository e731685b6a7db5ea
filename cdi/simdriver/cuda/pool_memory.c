/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of pools: growing, handing out, taking back, shrinking.
 */
#include <stdlib.h>

#include "linear.h"
#include "pool.h"

static uint64_t next_id = (uint64_t)2 << 40; /* apart from those of ranges and slabs */

static CUdeviceptr address_of(const struct pool_piece *piece)
{
	return piece->segment->range.base + piece->offset;
}

static struct pool_piece **bucket_of(struct CUmemPoolHandle_st *pool, CUdeviceptr address)
{
	return &pool->bucket[address / SIM_POOL_UNIT % SIM_POOL_BUCKETS];
}

void sim_pool_hash(struct pool_piece *piece)
{
	struct pool_piece **bucket = bucket_of(piece->segment->pool, address_of(piece));

	piece->hash_next = *bucket;
	*bucket = piece;
	piece->id = ++next_id;
}

static void unhash(struct pool_piece *piece)
{
	struct pool_piece **at = bucket_of(piece->segment->pool, address_of(piece));

	while (*at != piece)
		at = &(*at)->hash_next;
	*at = piece->hash_next;
}

static struct pool_piece *piece_at(const struct sim_range *range, CUdeviceptr address)
{
	struct pool_segment *segment = range->owner;
	struct pool_piece *piece = *bucket_of(segment->pool, address);

	while (piece && address_of(piece) != address)
		piece = piece->hash_next;
	return piece;
}

struct pool_piece *sim_pool_piece(const struct sim_range *range, CUdeviceptr address)
{
	struct pool_segment *segment = range->owner;

	for (struct pool_piece *piece = segment->first; piece; piece = piece->next) {
		if (piece->used && address - address_of(piece) < piece->requested)
			return piece;
	}
	return NULL;
}

bool sim_pool_find(const struct sim_range *range, CUdeviceptr address, struct sim_found *found)
{
	/* Most ask about the beginning. */
	const struct pool_piece *piece = piece_at(range, address);

	if (!piece)
		piece = sim_pool_piece(range, address);
	if (!piece)
		return false;
	found->base = address_of(piece);
	found->size = piece->requested;
	found->id = piece->id;
	return true;
}

CUmemoryPool sim_pool_of(const struct sim_range *range)
{
	return range->type == SIM_RANGE_POOL ? ((struct pool_segment *)range->owner)->pool : NULL;
}

uint64_t sim_pool_handle_types(const struct sim_range *range)
{
	return range->type == SIM_RANGE_POOL ? sim_pool_of(range)->properties.handleTypes : CU_MEM_HANDLE_TYPE_NONE;
}

/* ---- free pieces ---------------------------------------------------------------- */

static bool reached(struct pool_piece *piece)
{
	if (piece->stream && engine_mark_done(piece->mark))
		piece->stream = NULL;
	return !piece->stream;
}

/* Two free neighbours become one where the order of streams allows it: the later of
 * two points of one stream is behind both. */
static bool join(struct pool_piece *piece)
{
	struct pool_piece *next = piece->next;

	if (piece->used || !next || next->used)
		return false;
	if (piece->stream != next->stream && !(reached(piece) && reached(next)))
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
	while (join(segment->first))
		continue;
	return segment->first->next || segment->first->used || !reached(segment->first) ? NULL : segment->first;
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
			unhash(piece);
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

/* A new segment for bytes, of frames that lie idle in the pool and of the card's. */
static CUresult grow(struct CUmemPoolHandle_st *pool, uint64_t bytes, struct pool_segment **segment)
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

/* ---- pieces in use ------------------------------------------------------------------ */

enum fit {
	FIT_NOW,  /* reached, or freed in the stream that asks */
	FIT_WAIT, /* the stream would have to wait for another one */
	FIT_NOT,
};

static enum fit fits(const struct CUmemPoolHandle_st *pool, struct pool_piece *piece, uint64_t size, const struct CUstream_st *stream)
{
	if (piece->used || piece->size < size)
		return FIT_NOT;
	if (piece->stream == stream)
		return FIT_NOW;
	if (reached(piece))
		return FIT_NOW;
	return pool->reuse[CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES] ? FIT_WAIT : FIT_NOT;
}

/* The smallest piece that fits best. */
static struct pool_piece *search(struct CUmemPoolHandle_st *pool, uint64_t size, const struct CUstream_st *stream)
{
	struct pool_piece *best = NULL;
	enum fit how = FIT_NOT;

	for (struct sim_link *link = pool->segments.next; link != &pool->segments; link = link->next) {
		struct pool_segment *segment = SIM_OF(link, struct pool_segment, link);

		for (struct pool_piece *piece = segment->first; piece; piece = piece->next) {
			enum fit fit;

			while (join(piece))
				continue;
			fit = fits(pool, piece, size, stream);
			if (fit < how || (fit == how && fit != FIT_NOT && piece->size < best->size)) {
				best = piece;
				how = fit;
			}
		}
	}
	return best;
}

/* Cuts a free piece; false: no memory for that. */
static bool split(struct pool_piece *piece, uint64_t size)
{
	struct pool_piece *rest;

	if (piece->size == size)
		return true;
	rest = malloc(sizeof(*rest));
	if (!rest)
		return false;
	*rest = *piece;
	rest->offset += size;
	rest->size -= size;
	rest->previous = piece;
	if (rest->next)
		rest->next->previous = rest;
	piece->next = rest;
	piece->size = size;
	return true;
}

CUresult sim_pool_alloc(struct CUmemPoolHandle_st *pool, uint64_t bytes, struct CUstream_st *stream, CUdeviceptr *address)
{
	uint64_t size = sim_round_up(bytes, SIM_POOL_UNIT);
	struct pool_segment *segment;
	struct pool_piece *piece;

	if (size < bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	piece = search(pool, size, stream);
	if (!piece) {
		SIM_TRY(grow(pool, size, &segment));
		piece = segment->first;
	}
	if (!split(piece, size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (piece->stream && piece->stream != stream)
		SIM_TRY(engine_stream_wait_mark(stream, piece->mark));
	piece->used = true;
	piece->stream = NULL;
	piece->requested = bytes;
	sim_pool_hash(piece);
	pool->used += size;
	if (pool->used > pool->used_high)
		pool->used_high = pool->used;
	*address = address_of(piece);
	return CUDA_SUCCESS;
}

/* An imported piece is gone when it is freed, and its segment with the last one. */
static void drop_imported(struct pool_piece *piece)
{
	struct pool_segment *segment = piece->segment;

	segment->pool->used -= piece->size;
	unhash(piece);
	if (piece->previous)
		piece->previous->next = piece->next;
	else
		segment->first = piece->next;
	if (piece->next)
		piece->next->previous = piece->previous;
	free(piece);
	if (!segment->first)
		sim_pool_delete_segment(segment);
}

CUresult sim_pool_free_at(struct sim_range *range, CUdeviceptr address, struct CUstream_st *stream)
{
	struct pool_segment *segment = range->owner;
	struct CUmemPoolHandle_st *pool = segment->pool;
	struct pool_piece *piece = piece_at(range, address);

	if (!piece)
		return CUDA_ERROR_INVALID_VALUE;
	if (segment->imported.id) {
		drop_imported(piece);
		sim_pool_end_if_idle(pool);
		return CUDA_SUCCESS;
	}
	unhash(piece);
	piece->used = false;
	piece->stream = stream;
	piece->mark = stream ? engine_mark(stream) : 0;
	pool->used -= piece->size;
	join(piece);
	if (piece->previous)
		join(piece->previous);
	sim_pool_end_if_idle(pool);
	return CUDA_SUCCESS;
}

CUresult sim_pool_free(struct sim_range *range, CUdeviceptr address)
{
	return sim_pool_free_at(range, address, NULL);
}

void sim_pools_reset(struct sim_device *device)
{
	pthread_mutex_lock(&sim_memory_lock);
	for (struct sim_link *link = sim_pools.next; link != &sim_pools;) {
		struct CUmemPoolHandle_st *pool = SIM_OF(link, struct CUmemPoolHandle_st, link);

		link = link->next;
		if (pool->device != device)
			continue;
		while (pool->segments.next != &pool->segments)
			sim_pool_delete_segment(SIM_OF(pool->segments.next, struct pool_segment, link));
		sim_pool_end_if_idle(pool);
	}
	pthread_mutex_unlock(&sim_memory_lock);
}

void sim_memory_synchronized(struct sim_device *device)
{
	pthread_mutex_lock(&sim_memory_lock);
	for (struct sim_link *link = sim_pools.next; link != &sim_pools;) {
		struct CUmemPoolHandle_st *pool = SIM_OF(link, struct CUmemPoolHandle_st, link);

		link = link->next;
		if (pool->device != device)
			continue;
		if (pool->reserved > pool->threshold)
			sim_pool_trim(pool, pool->threshold);
		sim_pool_end_if_idle(pool);
	}
	pthread_mutex_unlock(&sim_memory_lock);
}
