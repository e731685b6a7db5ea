/* SPDX-License-Identifier: Apache-2.0 */
#include "pool.h"

#include <stdlib.h>

#include "around.h"
#include "charge.h"
#include "reservoir.h"
#include "trim.h"
#include "zz_generated_hooks.h"

/* Functions with _ptsz mean the thread's own stream by 0. */
static bool capturing(CUstream stream, bool per_thread)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult result = per_thread ? real_cuStreamIsCapturing_ptsz(stream, &status) : real_cuStreamIsCapturing(stream, &status);

	return result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* The card of a stream, which need not be the current one. */
static CUresult card_of_stream(CUstream stream, struct card **card)
{
	struct owner owner;
	CUcontext context;
	CUresult result = context_current(card, &owner);

	if (result != CUDA_SUCCESS || card_count() == 1 || !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
		return result;
	result = real_cuStreamGetCtx(stream, &context);
	if (result != CUDA_SUCCESS)
		return result;
	if (context != owner.context)
		*card = context_card(context);
	return *card ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

/* One allocation from a pool on its way. */
struct request {
	CUdeviceptr *address;
	size_t bytes;
	CUmemoryPool pool; /* NULL: the device's current one */
	CUstream stream;
	bool per_thread;
	bool captured; /* the stream was, a moment before the call */
};

static CUresult call(const struct request *request)
{
	if (request->pool)
		return request->per_thread ? real_cuMemAllocFromPoolAsync_ptsz(request->address, request->bytes, request->pool, request->stream)
					   : real_cuMemAllocFromPoolAsync(request->address, request->bytes, request->pool, request->stream);
	return request->per_thread ? real_cuMemAllocAsync_ptsz(request->address, request->bytes, request->stream)
				   : real_cuMemAllocAsync(request->address, request->bytes, request->stream);
}

/* Whether what came of it is a node, whose memory its graph is charged with. That the
 * stream was captured before the call does not say so: the capture may have ended. */
static bool became_node(const struct request *request)
{
	void *pool = NULL;

	return request->captured && (real_cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, *request->address) != CUDA_SUCCESS ||
				     pool != request->pool);
}

/* The pool grew by more than was asked for, and there is no room for that: back. */
static CUresult undo(const struct request *request, struct reservoir *reservoir)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	real_cuThreadExchangeStreamCaptureMode(&mode);
	if (capturing(request->stream, request->per_thread)) {
		/* Freed in the stream's order, it would be freed whenever a graph is launched. */
		real_cuMemFree_v2(*request->address);
	} else if (request->per_thread) {
		real_cuMemFreeAsync_ptsz(*request->address, request->stream);
		real_cuStreamSynchronize_ptsz(request->stream);
	} else {
		real_cuMemFreeAsync(*request->address, request->stream);
		real_cuStreamSynchronize(request->stream);
	}
	real_cuThreadExchangeStreamCaptureMode(&mode);
	trim_card(reservoir->card);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Remembers the allocation, for a pool that is destroyed before it. */
static void remember(struct reservoir *reservoir, CUdeviceptr address)
{
	struct owner nobody = { .context = NULL };
	struct charge *charge = charge_new(CHARGE_POOLED, &nobody);

	if (!charge)
		return;
	charge->key = address;
	charge->reservoir = reservoir;
	reservoir_get(reservoir);
	charge_insert(charge);
}

/* Takes room for the growth, calls, and charges the pool with what it has now. Room is
 * taken in a capture too, which may end before the driver is asked. */
static CUresult allocate_once(const struct request *request, struct reservoir *reservoir, bool *node)
{
	struct card *card = reservoir->card;
	struct hold hold;
	bool beyond;
	CUresult result;

	card_begin(card);
	result = hold_take(&hold, card, LEDGER_COMMITTED, frames_of(request->bytes));
	if (result != CUDA_SUCCESS) {
		card_end(card);
		return result;
	}
	result = call(request);
	beyond = reservoir_settle(reservoir, &hold);
	*node = result == CUDA_SUCCESS && became_node(request);
	if (beyond && result == CUDA_SUCCESS && !*node && card_stays_above(card))
		return undo(request, reservoir);
	return result;
}

static CUresult allocate_in(const struct request *request, struct card *card)
{
	struct reservoir *reservoir;
	bool node = false;
	CUresult result = reservoir_to_grow(request->pool, card, &reservoir);

	if (result != CUDA_SUCCESS)
		return result;
	if (reservoir->card) {
		result = allocate_once(request, reservoir, &node);
		if (result == CUDA_ERROR_OUT_OF_MEMORY && trim_card(reservoir->card))
			result = allocate_once(request, reservoir, &node);
		if (result == CUDA_SUCCESS && !node)
			remember(reservoir, *request->address);
	} else {
		result = call(request);
	}
	reservoir_put(reservoir);
	return result;
}

/* From the device's current pool. The driver is told which one that was: it could be
 * another when the driver is called, which would grow without being charged. */
static CUresult allocate_in_current(struct request *request, struct card *card)
{
	CUmemoryPool pool;
	CUresult result = real_cuDeviceGetMemPool(&pool, card->device);

	while (result == CUDA_SUCCESS) {
		request->pool = pool;
		result = allocate_in(request, card);
		/* It may have been destroyed meanwhile, and then another one is current. */
		if (result != CUDA_ERROR_INVALID_VALUE || real_cuDeviceGetMemPool(&pool, card->device) != CUDA_SUCCESS ||
		    pool == request->pool)
			break;
		result = CUDA_SUCCESS;
	}
	return result;
}

static CUresult allocate(struct request *request)
{
	struct card *card;
	CUresult result = card_of_stream(request->stream, &card);

	if (result != CUDA_SUCCESS)
		return result;
	/* The driver's to refuse. */
	if (!request->address || request->bytes == 0)
		return call(request);
	request->captured = capturing(request->stream, request->per_thread);
	return request->pool ? allocate_in(request, card) : allocate_in_current(request, card);
}

static CUresult guarded(struct request *request)
{
	CUresult result;

	if (!guard_enter())
		return call(request);
	result = allocate(request);
	guard_leave();
	return result;
}

CUresult hook_cuMemAllocAsync(enum cuda_hook hook, CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	struct request request = {
		.address = dptr,
		.bytes = bytesize,
		.stream = hStream,
		.per_thread = hook == HOOK_cuMemAllocAsync_ptsz,
	};

	return guarded(&request);
}

CUresult hook_cuMemAllocFromPoolAsync(enum cuda_hook hook, CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
	struct request request = {
		.address = dptr,
		.bytes = bytesize,
		.pool = pool,
		.stream = hStream,
		.per_thread = hook == HOOK_cuMemAllocFromPoolAsync_ptsz,
	};

	/* Not NULL for the current one, as in the request. */
	if (!pool)
		return cards_ready() == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_INITIALIZED;
	return guarded(&request);
}

void pool_freed(uint64_t address)
{
	struct charge *charge = charge_remove(CHARGE_POOLED, address);
	struct reservoir *reservoir;

	if (!charge)
		return;
	reservoir = charge->reservoir;
	free(charge);
	reservoir_freed(reservoir);
	reservoir_put(reservoir);
}

CUresult hook_cuMemFreeAsync(enum cuda_hook hook, CUdeviceptr dptr, CUstream hStream)
{
	bool ours = guard_enter();
	struct charge *linear = ours && cards_ready() == CUDA_SUCCESS ? charge_remove(CHARGE_LINEAR, dptr) : NULL;
	CUresult result;

	if (linear)
		card_begin(linear->hold.card);
	result = hook == HOOK_cuMemFreeAsync_ptsz ? real_cuMemFreeAsync_ptsz(dptr, hStream) : real_cuMemFreeAsync(dptr, hStream);
	if (linear && result == CUDA_SUCCESS) {
		/* Linear memory that is freed in a stream's order: it may be there for a while. */
		linear->exported = true;
		charge_end(linear);
	} else if (linear) {
		card_end(linear->hold.card);
		charge_insert(linear);
	} else if (ours && result == CUDA_SUCCESS) {
		pool_freed(dptr);
	}
	if (ours)
		guard_leave();
	return result;
}

/* Where a new pool's memory is. NULL: on the host, for good. Managed memory may come to a
 * card, like that of which nobody knows. */
static struct card *card_of_properties(const CUmemPoolProps *properties)
{
	struct card *card = NULL;
	struct owner owner;

	if (properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
		card = card_of(properties->location.id);
	else if (properties->allocType == CU_MEM_ALLOCATION_TYPE_PINNED)
		return NULL;
	if (!card && context_current(&card, &owner) != CUDA_SUCCESS)
		card = NULL;
	return card ? card : card_at(0);
}

CUresult hook_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
	struct card *card = NULL;
	CUresult result = cards_ready();

	if (result != CUDA_SUCCESS)
		return result;
	if (!pool || !poolProps)
		return real_cuMemPoolCreate(pool, poolProps);
	card = card_of_properties(poolProps);
	if (card)
		result = card_connect(card);
	if (result == CUDA_SUCCESS)
		result = real_cuMemPoolCreate(pool, poolProps);
	if (result == CUDA_SUCCESS && !reservoir_register(*pool, card)) {
		real_cuMemPoolDestroy(*pool);
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	return result;
}

CUresult hook_cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle, CUmemAllocationHandleType handleType,
						 unsigned long long flags)
{
	CUresult result = cards_ready();

	if (result != CUDA_SUCCESS)
		return result;
	cards_entangle();
	result = real_cuMemPoolImportFromShareableHandle(pool_out, handle, handleType, flags);
	/* The process that made it is charged. */
	if (result == CUDA_SUCCESS && !reservoir_register(*pool_out, NULL)) {
		real_cuMemPoolDestroy(*pool_out);
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	return result;
}

CUresult hook_cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool, CUmemAllocationHandleType handleType,
					       unsigned long long flags)
{
	struct reservoir *reservoir = pool && cards_ready() == CUDA_SUCCESS ? reservoir_of_pool(pool) : NULL;

	/* Before, and for good: what a descriptor of a pool keeps, and for how long, is nowhere said. */
	if (reservoir && reservoir->card) {
		__atomic_store_n(&reservoir->exported, true, __ATOMIC_RELAXED);
		card_entangle(reservoir->card);
	}
	if (reservoir)
		reservoir_put(reservoir);
	return real_cuMemPoolExportToShareableHandle(handle_out, pool, handleType, flags);
}

CUresult hook_cuMemPoolDestroy(CUmemoryPool pool)
{
	struct reservoir *reservoir = pool && cards_ready() == CUDA_SUCCESS ? reservoir_of_pool(pool) : NULL;
	CUresult result;

	if (!reservoir)
		return real_cuMemPoolDestroy(pool);
	if (reservoir->card)
		card_begin(reservoir->card);
	result = real_cuMemPoolDestroy(pool);
	if (result == CUDA_SUCCESS)
		reservoir_destroyed(reservoir);
	else if (reservoir->card)
		card_end(reservoir->card);
	reservoir_put(reservoir);
	return result;
}

CUresult hook_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD && pool && value && cards_ready() == CUDA_SUCCESS &&
	    reservoir_set_threshold(pool, *(const cuuint64_t *)value))
		return CUDA_SUCCESS;
	return real_cuMemPoolSetAttribute(pool, attr, value);
}

CUresult hook_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD && pool && value && cards_ready() == CUDA_SUCCESS &&
	    reservoir_get_threshold(pool, value))
		return CUDA_SUCCESS;
	return real_cuMemPoolGetAttribute(pool, attr, value);
}

CUresult around_begin_pool(struct around *around, CUmemoryPool pool)
{
	struct reservoir *reservoir;

	*around = (struct around){ .idle = true };
	if (!pool || cards_ready() != CUDA_SUCCESS)
		return CUDA_SUCCESS;
	reservoir = reservoir_of_pool(pool);
	if (!reservoir)
		return CUDA_SUCCESS;
	if (!reservoir->card) {
		reservoir_put(reservoir);
		return CUDA_SUCCESS;
	}
	card_begin(reservoir->card);
	around->handle = reservoir;
	around->idle = false;
	return CUDA_SUCCESS;
}

bool around_end_pool(struct around *around, CUresult *result)
{
	(void)result;
	if (around->idle)
		return false;
	reservoir_settle(around->handle, NULL);
	reservoir_put(around->handle);
	return false;
}

CUresult around_begin_sync(struct around *around)
{
	around->idle = true;
	return CUDA_SUCCESS;
}

bool around_end_sync(struct around *around, CUresult *result)
{
	(void)around;
	if (*result == CUDA_SUCCESS)
		trim_synchronized();
	return false;
}
