/* SPDX-License-Identifier: Apache-2.0 */
#include "pool.h"

#include <stdlib.h>

#include "around.h"
#include "charge.h"
#include "reservoir.h"
#include "trim.h"
#include "zz_generated_hooks.h"

/* Functions with _ptsz mean the thread's own stream by 0. */
static CUresult capturing(CUstream stream, bool per_thread, bool *answer)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult result = per_thread ? real_cuStreamIsCapturing_ptsz(stream, &status) : real_cuStreamIsCapturing(stream, &status);

	*answer = result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
	return result;
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
};

static CUresult call(const struct request *request)
{
	if (request->pool)
		return request->per_thread ? real_cuMemAllocFromPoolAsync_ptsz(request->address, request->bytes, request->pool, request->stream)
					   : real_cuMemAllocFromPoolAsync(request->address, request->bytes, request->pool, request->stream);
	return request->per_thread ? real_cuMemAllocAsync_ptsz(request->address, request->bytes, request->stream)
				   : real_cuMemAllocAsync(request->address, request->bytes, request->stream);
}

/* The pool grew by more than was asked for, and there is no room for that: back. */
static CUresult undo(const struct request *request, struct reservoir *reservoir)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	real_cuThreadExchangeStreamCaptureMode(&mode);
	if (request->per_thread) {
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

/* Takes room for the growth, calls, and charges the pool with what it has now. */
static CUresult allocate_once(const struct request *request, struct reservoir *reservoir)
{
	struct card *card = reservoir->card;
	struct hold hold;
	CUresult result;

	card_begin(card);
	result = hold_take(&hold, card, LEDGER_COMMITTED, frames_of(request->bytes));
	if (result != CUDA_SUCCESS) {
		card_end(card);
		return result;
	}
	result = call(request);
	if (reservoir_settle(reservoir, &hold) && result == CUDA_SUCCESS && card_stays_above(card))
		return undo(request, reservoir);
	return result;
}

static CUresult allocate_in(const struct request *request, CUmemoryPool pool, struct card *card)
{
	struct reservoir *reservoir = reservoir_of_pool(pool, card);
	CUresult result;

	if (!reservoir)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (reservoir->card) {
		result = allocate_once(request, reservoir);
		if (result == CUDA_ERROR_OUT_OF_MEMORY && trim_card(reservoir->card))
			result = allocate_once(request, reservoir);
		if (result == CUDA_SUCCESS)
			remember(reservoir, *request->address);
	} else {
		result = call(request);
	}
	reservoir_put(reservoir);
	return result;
}

static CUresult allocate(const struct request *request)
{
	CUmemoryPool pool = request->pool;
	struct card *card;
	bool captured;
	CUresult result = card_of_stream(request->stream, &card);

	if (result == CUDA_SUCCESS)
		result = capturing(request->stream, request->per_thread, &captured);
	/* What is captured becomes a node, whose memory its graph is charged with. */
	if (result != CUDA_SUCCESS || captured || !request->address || request->bytes == 0)
		return cards_ready() == CUDA_SUCCESS ? call(request) : CUDA_ERROR_NOT_INITIALIZED;
	if (!pool) {
		result = real_cuDeviceGetMemPool(&pool, card->device);
		if (result != CUDA_SUCCESS)
			return result;
	}
	return allocate_in(request, pool, card);
}

static CUresult guarded(const struct request *request)
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

	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
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

CUresult hook_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
	struct card *card = NULL;
	CUresult result = cards_ready();

	if (result != CUDA_SUCCESS)
		return result;
	if (poolProps && poolProps->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
		card = card_of(poolProps->location.id);
		result = card ? card_connect(card) : CUDA_SUCCESS;
	}
	if (result == CUDA_SUCCESS)
		result = real_cuMemPoolCreate(pool, poolProps);
	if (result == CUDA_SUCCESS)
		reservoir_register(*pool, card);
	return result;
}

CUresult hook_cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle, CUmemAllocationHandleType handleType,
						 unsigned long long flags)
{
	CUresult result = cards_ready();

	if (result == CUDA_SUCCESS)
		result = real_cuMemPoolImportFromShareableHandle(pool_out, handle, handleType, flags);
	/* The process that made it is charged. */
	if (result == CUDA_SUCCESS)
		reservoir_register(*pool_out, NULL);
	return result;
}

CUresult hook_cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool, CUmemAllocationHandleType handleType,
					       unsigned long long flags)
{
	CUresult result = real_cuMemPoolExportToShareableHandle(handle_out, pool, handleType, flags);
	struct reservoir *reservoir;

	if (result != CUDA_SUCCESS || cards_ready() != CUDA_SUCCESS)
		return result;
	reservoir = reservoir_of_pool(pool, NULL);
	if (reservoir) {
		__atomic_store_n(&reservoir->exported, true, __ATOMIC_RELAXED);
		reservoir_put(reservoir);
	}
	return result;
}

CUresult hook_cuMemPoolDestroy(CUmemoryPool pool)
{
	struct reservoir *reservoir = pool && cards_ready() == CUDA_SUCCESS ? reservoir_of_pool(pool, NULL) : NULL;
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
	reservoir = reservoir_of_pool(pool, NULL);
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
