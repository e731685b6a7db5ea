/* SPDX-License-Identifier: Apache-2.0
 *
 * Events, one pool for each context. Whoever records one is in the pool's gate, whoever asks for
 * one in that of all: recording waits where a stream's queue is full, and then nobody is to
 * wait who has to do with other contexts. Whoever ends a context is in both alone, before the
 * driver is told.
 */
#include <stdlib.h>
#include <string.h>

#include "around.h"
#include "lease_inside.h"
#include "zz_generated_hooks.h"

static struct gate askers;
static struct pool *pools;
static struct lock lock; /* of the list, and of what is spare */

uint32_t lease_captures;

CUstreamCaptureMode capture_relax(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	return real_cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS ? mode : CU_STREAM_CAPTURE_MODE_GLOBAL;
}

void capture_restore(CUstreamCaptureMode mode)
{
	real_cuThreadExchangeStreamCaptureMode(&mode);
}

bool capture_is_on(CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	if (__atomic_load_n(&lease_captures, __ATOMIC_ACQUIRE) == 0)
		return false;
	return real_cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Captures begin and end in many ways, and some ends fail: the stream itself says whether it is
 * being captured. */
CUresult around_begin_capture(struct around *around, CUstream stream, enum around_stream none)
{
	(void)around, (void)stream, (void)none;
	/* Before the capture is on: who launches on another thread misses nothing. */
	__atomic_add_fetch(&lease_captures, 1, __ATOMIC_ACQ_REL);
	return CUDA_SUCCESS;
}

bool around_end_capture(struct around *around, CUresult *result)
{
	(void)around;
	if (*result != CUDA_SUCCESS)
		__atomic_sub_fetch(&lease_captures, 1, __ATOMIC_ACQ_REL);
	return false;
}

CUresult around_begin_capture_end(struct around *around, CUstream stream, enum around_stream none)
{
	stream = lease_stream(stream, none);
	*around = (struct around){ .idle = !capture_is_on(stream), .handle = stream };
	return CUDA_SUCCESS;
}

bool around_end_capture_end(struct around *around, CUresult *result)
{
	uint32_t captures = __atomic_load_n(&lease_captures, __ATOMIC_ACQUIRE);

	(void)result;
	if (around->idle || capture_is_on(around->handle))
		return false;
	while (captures != 0 &&
	       !__atomic_compare_exchange_n(&lease_captures, &captures, captures - 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		;
	return false;
}

/* ---- pools ------------------------------------------------------------------------ */

struct pool *pool_of(const struct owner *owner)
{
	struct pool *pool, *empty = NULL;

	lock_take(&lock);
	for (pool = pools; pool && (pool->owner.context != owner->context || pool->owner.generation != owner->generation); pool = pool->next)
		if (!pool->owner.context)
			empty = pool;
	if (!pool) {
		pool = empty ? empty : calloc(1, sizeof(*pool));
		if (pool && !empty) {
			pool->next = pools;
			pools = pool;
		}
		if (pool)
			pool->owner = *owner;
	}
	lock_give(&lock);
	return pool;
}

bool pool_enter(struct pool *pool, const struct owner *owner)
{
	gate_enter(&pool->users);
	if (pool->owner.context == owner->context && pool->owner.generation == owner->generation)
		return true;
	gate_leave(&pool->users);
	return false;
}

void pool_leave(struct pool *pool)
{
	gate_leave(&pool->users);
}

void events_enter(void)
{
	gate_enter(&askers);
}

void events_leave(void)
{
	gate_leave(&askers);
}

CUevent pool_take(struct pool *pool)
{
	CUevent event = NULL;

	lock_take(&lock);
	if (pool->count != 0)
		event = pool->spare[--pool->count];
	lock_give(&lock);
	if (!event && real_cuEventCreate(&event, CU_EVENT_BLOCKING_SYNC) != CUDA_SUCCESS)
		return NULL;
	return event;
}

void pool_give(struct pool *pool, CUevent event)
{
	if (!event)
		return;
	lock_take(&lock);
	if (pool->count < sizeof(pool->spare) / sizeof(pool->spare[0])) {
		pool->spare[pool->count++] = event;
		event = NULL;
	}
	lock_give(&lock);
	if (event)
		real_cuEventDestroy_v2(event);
}

static struct pool *next_of(CUcontext context, struct pool *pool)
{
	lock_take(&lock);
	for (pool = pool ? pool->next : pools; pool && pool->owner.context != context; pool = pool->next)
		;
	lock_give(&lock);
	return pool;
}

void lease_begin_ending(struct card *card)
{
	static struct tally none;
	struct thread *thread = session_state() == SESSION_OPEN && card->shares != 0 ? thread_mine() : NULL;
	struct meter *meter = thread ? meter_of(card) : NULL;

	if (!meter)
		return;
	/* It is on no stream that may be seen to be held up. */
	__atomic_store_n(&thread->last, &none, __ATOMIC_RELAXED);
	be_inside(thread, meter);
	/* Who has taken a census just before, and sees nothing in flight after this, looks again. */
	__atomic_add_fetch(&meter->endings, 1, __ATOMIC_SEQ_CST);
}

void lease_end_ending(void)
{
	if (thread_self)
		__atomic_store_n(&thread_self->inside, NULL, __ATOMIC_RELEASE);
}

/* The driver destroys the events with their context. */
void lease_forget(CUcontext context)
{
	for (struct pool *pool = NULL; (pool = next_of(context, pool));) {
		gate_enter_alone(&pool->users);
		gate_enter_alone(&askers);
		lock_take(&lock);
		pool->owner = (struct owner){ .context = NULL };
		pool->base = NULL;
		pool->count = 0;
		lock_give(&lock);
		for (size_t i = 0; i < card_count(); i++)
			if (card_at(i)->shares != 0)
				flight_forget(meter_of(card_at(i)));
		gate_leave_alone(&askers);
		gate_leave_alone(&pool->users);
	}
}
