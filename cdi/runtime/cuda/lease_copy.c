/* SPDX-License-Identifier: Apache-2.0
 *
 * Bulk copies and fills are work, as launches are. What they take is learned for each
 * kind, by their size.
 */
#include "around.h"

/* Their addresses stand for the kinds. */
static const char kinds[COPY_KINDS];

static bool words_are_free(void)
{
	uint32_t states = TRANCHE_LEASE_FREE;

	for (size_t i = 0; i < session_count(); i++)
		states &= session_lease(session_share(i));
	return (states & TRANCHE_LEASE_FREE) != 0;
}

/* A share that takes no more launches, for another reason than compute, may have its memory
 * copied: what it computed is its own. */
CUresult around_begin_bulk(struct around *around, enum copy_kind kind, uint64_t bytes, CUstream stream)
{
	uint64_t units = bytes >> LEASE_UNIT_SHIFT;

	if (words_are_free())
		return CUDA_SUCCESS;
	return lease_begin(around, &(struct work){
					   .what = &kinds[kind],
					   .units = units < UINT32_MAX ? (uint32_t)units : UINT32_MAX,
					   .stream = stream,
				   });
}

static uint64_t plus(uint64_t a, uint64_t b)
{
	uint64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

CUresult around_begin_copy_many(struct around *around, const size_t *sizes, size_t count, CUstream stream, enum around_stream none)
{
	uint64_t bytes = 0;

	around->inside = NULL;
	if (lease_is_free() || !sizes)
		return CUDA_SUCCESS;
	for (size_t i = 0; i < count; i++)
		bytes = plus(bytes, sizes[i]);
	return around_begin_copy(around, bytes, COPY_ANY, stream, none);
}

CUresult around_begin_copy_boxes(struct around *around, const CUDA_MEMCPY3D_BATCH_OP *list, size_t count, CUstream stream,
				 enum around_stream none)
{
	uint64_t bytes = 0;

	around->inside = NULL;
	if (lease_is_free() || !list)
		return CUDA_SUCCESS;
	/* Extents are in elements, of which only arrays know the size. */
	for (size_t i = 0; i < count; i++)
		bytes = plus(bytes, (uint64_t)list[i].extent.width * list[i].extent.height * list[i].extent.depth);
	return around_begin_copy(around, bytes, COPY_ANY, stream, none);
}
