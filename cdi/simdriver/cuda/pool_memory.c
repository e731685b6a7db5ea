/* SPDX-License-Identifier: Apache-2.0
 *
 * Pieces of pools: handing them out, and taking them back.
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

void sim_pool_unhash(struct pool_piece *piece)
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

/* ---- pieces in use ------------------------------------------------------------------ */

/* Another stream may come to be at the address of one that has ended. */
static uint64_t id_of(const struct CUstream_st *stream)
{
	return ((const struct sim_handle *)stream)->id;
}

enum fit {
	FIT_NOW,  /* reached, or freed in the stream that asks */
	FIT_WAIT, /* the stream would have to wait for another one */
	FIT_NOT,
};

static enum fit fits(const struct CUmemPoolHandle_st *pool, struct pool_piece *piece, uint64_t size, uint64_t stream)
{
	if (piece->used || piece->size < size)
		return FIT_NOT;
	if (piece->stream == stream)
		return FIT_NOW;
	if (sim_pool_reached(piece))
		return FIT_NOW;
	return pool->reuse[CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES] ? FIT_WAIT : FIT_NOT;
}

/* The smallest piece that fits best. */
static struct pool_piece *search(struct CUmemPoolHandle_st *pool, uint64_t size, uint64_t stream)
{
	struct pool_piece *best = NULL;
	enum fit how = FIT_NOT;

	for (struct sim_link *link = pool->segments.next; link != &pool->segments; link = link->next) {
		struct pool_segment *segment = SIM_OF(link, struct pool_segment, link);

		for (struct pool_piece *piece = segment->first; piece; piece = piece->next) {
			enum fit fit;

			while (sim_pool_join(piece))
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
	piece = search(pool, size, id_of(stream));
	if (!piece) {
		SIM_TRY(sim_pool_grow(pool, size, &segment));
		piece = segment->first;
	}
	if (!split(piece, size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (piece->stream && piece->stream != id_of(stream))
		SIM_TRY(engine_stream_wait_mark(stream, piece->mark));
	piece->used = true;
	piece->stream = 0;
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
	sim_pool_unhash(piece);
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
	sim_pool_unhash(piece);
	piece->used = false;
	piece->stream = stream ? id_of(stream) : 0;
	piece->mark = stream ? engine_mark(stream) : 0;
	pool->used -= piece->size;
	sim_pool_join(piece);
	if (piece->previous)
		sim_pool_join(piece->previous);
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
