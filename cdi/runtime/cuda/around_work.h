/* SPDX-License-Identifier: Apache-2.0
 *
 * Around what gives a card work (around.h includes this): launches, and bulk copies and fills. In the
 * common case, a lease that is free, a few loads are all that is done.
 */
#ifndef TRANCHE_AROUND_WORK_H
#define TRANCHE_AROUND_WORK_H

#include "around.h"

/* Which stream NULL is. */
enum around_stream {
	LEGACY,
	PER_THREAD,
};

/* Copies of one kind are taken to have one speed. */
enum copy_kind {
	COPY_ANY,
	COPY_TO_CARD,
	COPY_TO_HOST,
	COPY_ON_CARD,
	COPY_PEER,
	COPY_FILL,
	COPY_KINDS,
};

/* Copies of fewer bytes are not work. */
#define BULK (1ull << 20)

/* Captures, in which nothing is gated. */
CUresult around_begin_capture(struct around *around, CUstream stream, enum around_stream none);
bool around_end_capture(struct around *around, CUresult *result);
CUresult around_begin_capture_end(struct around *around, CUstream stream, enum around_stream none);
bool around_end_capture_end(struct around *around, CUresult *result);

/* Launches. */
CUresult around_begin_work(struct around *around, const struct work *work);
bool around_end_work(struct around *around, CUresult *result);
CUresult around_begin_launch_many(struct around *around, const CUDA_LAUNCH_PARAMS *list, unsigned int count);
bool around_end_launch_many(struct around *around, CUresult *result);
CUresult around_begin_graph_launch(struct around *around, CUgraphExec exec, CUstream stream, enum around_stream none);
bool around_end_graph_launch(struct around *around, CUresult *result);

/* Why a launch may not be made now, or CUDA_SUCCESS. */
CUresult launch_refusal(void);

/* Not 0: a launch has to look closer. */
extern uint32_t around_launch_word __attribute__((visibility("hidden")));

static inline void lease_leave(struct around *around)
{
	if (around->tally)
		lease_end(around);
	else
		__atomic_store_n(around->inside, NULL, __ATOMIC_RELEASE);
}

static inline CUresult around_begin_launch(struct around *around, CUfunction function, unsigned int x, unsigned int y, unsigned int z,
					   CUstream stream, enum around_stream none)
{
	around->idle = true;
	around->inside = NULL;
	if (__builtin_expect(__atomic_load_n(&around_launch_word, __ATOMIC_RELAXED) == 0 && lease_is_free(), 1))
		return CUDA_SUCCESS;
	return around_begin_work(around, &(struct work){ function, lease_shape((uint64_t)x * y * z), 1, lease_stream(stream, none) });
}

static inline bool around_end_launch(struct around *around, CUresult *result)
{
	if (__builtin_expect(!around->idle, 0))
		return around_end_work(around, result);
	if (__builtin_expect(around->inside != NULL, 0))
		lease_leave(around);
	return false;
}

/* Without a configuration the driver refuses. */
static inline CUresult around_begin_launch_ex(struct around *around, CUfunction function, const CUlaunchConfig *config,
					      enum around_stream none)
{
	static const CUlaunchConfig nothing;

	if (!config)
		config = &nothing;
	return around_begin_launch(around, function, config->gridDimX, config->gridDimY, config->gridDimZ, config->hStream, none);
}

static inline bool around_end_launch_ex(struct around *around, CUresult *result)
{
	return around_end_launch(around, result);
}

/* What was launched before has ended. */
static inline CUresult around_begin_sync_stream(struct around *around, CUstream stream, enum around_stream none)
{
	around->handle = lease_stream(stream, none);
	if (!lease_is_free())
		lease_synchronizes(around->handle);
	return around_begin_sync(around);
}

static inline bool around_end_sync_stream(struct around *around, CUresult *result)
{
	if (*result == CUDA_SUCCESS && !lease_is_free())
		lease_synchronized(NULL, around->handle);
	return around_end_sync(around, result);
}

/* NULL: the current one. */
static inline CUresult around_begin_sync_context(struct around *around, CUcontext context)
{
	around->handle = context;
	return around_begin_sync(around);
}

static inline bool around_end_sync_context(struct around *around, CUresult *result)
{
	if (*result == CUDA_SUCCESS && !lease_is_free())
		lease_synchronized(around->handle, NULL);
	return around_end_sync(around, result);
}

/* Copies. What is read of their parameters, the driver reads too. */
CUresult around_begin_bulk(struct around *around, enum copy_kind kind, uint64_t bytes, CUstream stream);

static inline CUresult around_begin_copy(struct around *around, uint64_t bytes, enum copy_kind kind, CUstream stream,
					 enum around_stream none)
{
	around->inside = NULL;
	if (__builtin_expect(bytes < BULK || lease_is_free(), 1))
		return CUDA_SUCCESS;
	return around_begin_bulk(around, kind, bytes, lease_stream(stream, none));
}

static inline bool around_end_copy(struct around *around, CUresult *result)
{
	(void)result;
	if (__builtin_expect(around->inside != NULL, 0))
		lease_leave(around);
	return false;
}

static inline CUresult around_begin_fill(struct around *around, uint64_t width, uint64_t height, unsigned int size, CUstream stream,
					 enum around_stream none)
{
	return around_begin_copy(around, width * height * size, COPY_FILL, stream, none);
}

static inline bool around_end_fill(struct around *around, CUresult *result)
{
	return around_end_copy(around, result);
}

/* Copies that are described by a structure. */
#define AROUND_BOX(kind, type, bytes)                                                                                        \
	static inline CUresult around_begin_##kind(struct around *around, const type *copy, CUstream stream, enum around_stream none) \
	{                                                                                                                    \
		return around_begin_copy(around, copy ? (bytes) : 0, COPY_ANY, stream, none);                                \
	}                                                                                                                    \
	static inline bool around_end_##kind(struct around *around, CUresult *result)                                        \
	{                                                                                                                    \
		return around_end_copy(around, result);                                                                      \
	}

AROUND_BOX(copy_rows, CUDA_MEMCPY2D, (uint64_t)copy->WidthInBytes * copy->Height)
AROUND_BOX(copy_rows_old, CUDA_MEMCPY2D_v1, (uint64_t)copy->WidthInBytes * copy->Height)
AROUND_BOX(copy_box, CUDA_MEMCPY3D, (uint64_t)copy->WidthInBytes * copy->Height * copy->Depth)
AROUND_BOX(copy_box_old, CUDA_MEMCPY3D_v1, (uint64_t)copy->WidthInBytes * copy->Height * copy->Depth)
AROUND_BOX(copy_peer_box, CUDA_MEMCPY3D_PEER, (uint64_t)copy->WidthInBytes * copy->Height * copy->Depth)

/* Several copies in one call. */
CUresult around_begin_copy_many(struct around *around, const size_t *sizes, size_t count, CUstream stream, enum around_stream none);
CUresult around_begin_copy_boxes(struct around *around, const CUDA_MEMCPY3D_BATCH_OP *list, size_t count, CUstream stream,
				 enum around_stream none);

static inline bool around_end_copy_many(struct around *around, CUresult *result)
{
	return around_end_copy(around, result);
}

static inline bool around_end_copy_boxes(struct around *around, CUresult *result)
{
	return around_end_copy(around, result);
}

#endif
