/* SPDX-License-Identifier: Apache-2.0
 *
 * Pools of stream-ordered memory, between their files.
 *
 * A pool has segments: runs of addresses with whole frames behind them. A segment
 * is a row of pieces, each in use or free. A free piece remembers the stream
 * that it was freed in and the point of that stream; before that point is reached only work of
 * that stream may have it again. A frame goes back to the card when its segment is
 * free as a whole and all of its points are reached.
 */
#ifndef TRANCHE_SIM_POOL_H
#define TRANCHE_SIM_POOL_H

#include "memory.h"

/* What a pool takes from the card at a time. */
#define SIM_POOL_CHUNK SIM_FRAME
/* What sizes are rounded up to. */
#define SIM_POOL_UNIT 512u
#define SIM_POOL_BUCKETS 1024u

struct pool_piece {
	struct pool_segment *segment;
	uint64_t offset;
	uint64_t size;
	uint64_t requested;
	uint64_t id;
	bool used;
	uint64_t stream; /* id of the one freed in; 0: free for everybody */
	uint64_t mark;
	struct pool_piece *next, *previous; /* in the segment, by offset */
	struct pool_piece *hash_next;       /* pieces in use */
};

struct pool_segment {
	struct sim_range range;
	struct CUmemPoolHandle_st *pool;
	struct sim_link link;
	struct pool_piece *first;
	struct card_reference imported; /* id 0: the pool's own memory */
};

struct CUmemPoolHandle_st {
	struct sim_handle handle;
	struct sim_device *device;
	CUmemPoolProps properties;
	bool is_default;
	bool imported;
	bool destroyed; /* by the program; ends when nothing of it is in use */
	int reuse[4];   /* by attribute number */
	uint64_t threshold;
	uint64_t reserved, reserved_high;
	uint64_t used, used_high;
	CUmemAccess_flags access[CARD_MAX];
	struct card_reference object; /* of a pool that was exported or imported */
	struct sim_link segments;
	struct sim_link link; /* among all pools */
	struct pool_piece **bucket; /* SIM_POOL_BUCKETS */
};

extern struct sim_link sim_pools;

/* INVALID_VALUE: not a pool, or a destroyed one. */
CUresult sim_pool_check(CUmemoryPool pool);
CUresult sim_pool_make(struct sim_device *device, const CUmemPoolProps *properties, struct CUmemPoolHandle_st **result);
CUresult sim_pool_default(struct sim_device *device, struct CUmemPoolHandle_st **pool);
CUresult sim_pool_current(struct sim_device *device, struct CUmemPoolHandle_st **pool);

/* Gives back what is free and reached, as long as at least keep bytes stay reserved. */
void sim_pool_trim(struct CUmemPoolHandle_st *pool, uint64_t keep);
/* Ends a destroyed pool that nothing is left of. */
void sim_pool_end_if_idle(struct CUmemPoolHandle_st *pool);

CUresult sim_pool_alloc(struct CUmemPoolHandle_st *pool, uint64_t bytes, struct CUstream_st *stream, CUdeviceptr *address);
/* stream NULL: the memory is free for everybody at once. INVALID_VALUE: nothing in use
 * begins there. */
CUresult sim_pool_free_at(struct sim_range *range, CUdeviceptr address, struct CUstream_st *stream);

/* The piece in use that an address is in, or NULL. */
struct pool_piece *sim_pool_piece(const struct sim_range *range, CUdeviceptr address);
/* Pieces in use can be found by their address. */
void sim_pool_hash(struct pool_piece *piece);
void sim_pool_unhash(struct pool_piece *piece);

/* Whether a free piece is free for everybody. */
bool sim_pool_reached(struct pool_piece *piece);
/* Joins a piece with the next one: both free, and where the order of streams allows it. The later of two points of
 * one stream is behind both. */
bool sim_pool_join(struct pool_piece *piece);

/* A new segment for bytes, of frames that lie idle in the pool and of the card's. */
CUresult sim_pool_grow(struct CUmemPoolHandle_st *pool, uint64_t bytes, struct pool_segment **segment);
void sim_pool_delete_segment(struct pool_segment *segment);

#endif
