/* SPDX-License-Identifier: Apache-2.0
 *
 * Events. Each record makes a moment of its own, so that whoever waits for one record is
 * not concerned by the next.
 */
#include "stream.h"

#define EVENT_FLAGS (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

/* cuEventElapsedTime tells half microseconds apart. */
#define RESOLUTION 500u

CUresult event_check(CUevent event)
{
	return sim_is(event, SIM_EVENT) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

struct moment *event_moment(struct CUevent_st *event)
{
	pthread_mutex_lock(&event->lock);
	struct moment *moment = moment_get(event->moment);
	pthread_mutex_unlock(&event->lock);
	return moment;
}

void event_set_moment(struct CUevent_st *event, struct moment *moment)
{
	pthread_mutex_lock(&event->lock);
	struct moment *before = event->moment;
	event->moment = moment;
	event_capture_clear(&event->captured);
	pthread_mutex_unlock(&event->lock);
	moment_put(before);
}

/* ---- making and ending ------------------------------------------------------------------ */

CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
	SIM_CONTEXT_ENTER(context);
	SIM_INVALID_IF(!phEvent || Flags & ~(unsigned)EVENT_FLAGS);
	if (Flags & CU_EVENT_INTERPROCESS) {
		SIM_INVALID_IF(!(Flags & CU_EVENT_DISABLE_TIMING));
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	struct CUevent_st *event = sim_new(SIM_EVENT, sizeof(*event));
	if (!event)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_init(&event->lock, NULL);
	event->context = context;
	event->flags = Flags;
	struct engine_context *owner = engine_context(context);
	timeline_enter();
	event->next = owner->events;
	event->link = &owner->events;
	if (event->next)
		event->next->link = &event->next;
	owner->events = event;
	timeline_leave();
	*phEvent = event;
	return CUDA_SUCCESS;
}

/* Under the timeline's lock. Who waits for the event goes on waiting for its moment. */
static void event_end(struct CUevent_st *event)
{
	*event->link = event->next;
	if (event->next)
		event->next->link = event->link;
	moment_put(event->moment);
	event_capture_clear(&event->captured);
	pthread_mutex_destroy(&event->lock);
	sim_delete(event);
}

void events_close(struct engine_context *context)
{
	while (context->events)
		event_end(context->events);
}

static CUresult destroy(CUevent event)
{
	SIM_ENTER();
	SIM_TRY(event_check(event));
	timeline_enter();
	event_end(event);
	timeline_leave();
	return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent hEvent)
{
	return destroy(hEvent);
}

CUresult cuEventDestroy_v2(CUevent hEvent)
{
	return destroy(hEvent);
}

/* ---- recording and waiting --------------------------------------------------------------- */

static CUresult record(CUevent event, CUstream given, bool per_thread, unsigned flags)
{
	struct CUstream_st *stream;
	SIM_TRY(stream_enter(given, per_thread, &stream));
	SIM_TRY(event_check(event));
	SIM_INVALID_IF(flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL);
	if (event->context != stream->context)
		return CUDA_ERROR_INVALID_HANDLE;
	if (stream_captures(stream))
		return capture_record(stream, event, flags);
	SIM_INVALID_IF(flags & CU_EVENT_RECORD_EXTERNAL);
	struct moment *moment = moment_new();
	if (!moment)
		return CUDA_ERROR_OUT_OF_MEMORY;
	moment_get(moment); /* one for the event, one for the queue */
	/* Where it is recorded is known before anybody can wait for it. */
	CUresult result = queue_submit(stream->queue, (struct command){.kind = COMMAND_RECORD, .payload = moment});
	if (result == CUDA_SUCCESS)
		event_set_moment(event, moment);
	else
		moment_put(moment);
	return result;
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream)
{
	return record(hEvent, hStream, LEGACY, CU_EVENT_RECORD_DEFAULT);
}

CUresult cuEventRecord_ptsz(CUevent hEvent, CUstream hStream)
{
	return record(hEvent, hStream, PER_THREAD, CU_EVENT_RECORD_DEFAULT);
}

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags)
{
	return record(hEvent, hStream, LEGACY, flags);
}

CUresult cuEventRecordWithFlags_ptsz(CUevent hEvent, CUstream hStream, unsigned int flags)
{
	return record(hEvent, hStream, PER_THREAD, flags);
}

static CUresult stream_wait(CUstream given, CUevent event, bool per_thread, unsigned flags)
{
	struct CUstream_st *stream;
	SIM_TRY(stream_enter(given, per_thread, &stream));
	SIM_TRY(event_check(event));
	SIM_INVALID_IF(flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL);
	if (stream_captures(stream) || capture_owns(event))
		return capture_wait(stream, event, flags);
	SIM_INVALID_IF(flags & CU_EVENT_WAIT_EXTERNAL);
	struct moment *moment = event_moment(event);
	/* Waiting for what was never recorded, or is over, is nothing. */
	if (!moment || moment_done(moment)) {
		moment_put(moment);
		return CUDA_SUCCESS;
	}
	return queue_submit(stream->queue, (struct command){.kind = COMMAND_WAIT, .payload = moment});
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
	return stream_wait(hStream, hEvent, LEGACY, Flags);
}

CUresult cuStreamWaitEvent_ptsz(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
	return stream_wait(hStream, hEvent, PER_THREAD, Flags);
}

/* ---- the host ------------------------------------------------------------------------------ */

/* Its moment, where the calling thread may look at it. *moment is NULL if nothing was recorded. */
static CUresult enter_to_wait(CUevent event, struct moment **moment)
{
	SIM_ENTER();
	SIM_TRY(event_check(event));
	if (in_callback)
		return CUDA_ERROR_NOT_PERMITTED;
	SIM_TRY(engine_may_block(event->context));
	if (capture_owns(event))
		return CUDA_ERROR_CAPTURED_EVENT;
	*moment = event_moment(event);
	return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent hEvent)
{
	struct moment *moment;
	SIM_TRY(enter_to_wait(hEvent, &moment));
	bool done = !moment || moment_done(moment);
	if (!done) {
		timeline_enter();
		timeline_look();
		timeline_leave();
		done = moment_done(moment);
	}
	moment_put(moment);
	return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent hEvent)
{
	struct moment *moment;
	SIM_TRY(enter_to_wait(hEvent, &moment));
	struct sim_device *device = hEvent->context->device;
	if (moment)
		moment_wait(moment);
	moment_put(moment);
	sim_memory_synchronized(device);
	return CUDA_SUCCESS;
}

static CUresult elapsed(float *milliseconds, CUevent start, CUevent end)
{
	SIM_ENTER();
	SIM_INVALID_IF(!milliseconds);
	SIM_TRY(event_check(start));
	SIM_TRY(event_check(end));
	if ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING || start->context->device != end->context->device)
		return CUDA_ERROR_INVALID_HANDLE;
	if (capture_owns(start) || capture_owns(end))
		return CUDA_ERROR_CAPTURED_EVENT;
	struct moment *from = event_moment(start), *to = event_moment(end);
	CUresult result = from && to ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
	if (result == CUDA_SUCCESS) {
		timeline_enter();
		timeline_look();
		timeline_leave();
		if (!moment_done(from) || !moment_done(to))
			result = CUDA_ERROR_NOT_READY;
	}
	if (result == CUDA_SUCCESS) {
		int64_t steps = (int64_t)(to->time / RESOLUTION) - (int64_t)(from->time / RESOLUTION);
		*milliseconds = (float)((double)steps * RESOLUTION / 1e6);
	}
	moment_put(from);
	moment_put(to);
	return result;
}

CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
	return elapsed(pMilliseconds, hStart, hEnd);
}

CUresult cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
	return elapsed(pMilliseconds, hStart, hEnd);
}

/* Events of another process would have to be on its line of time. */
CUresult cuIpcGetEventHandle(CUipcEventHandle *pHandle, CUevent event)
{
	SIM_ENTER();
	SIM_INVALID_IF(!pHandle);
	SIM_TRY(event_check(event));
	return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle)
{
	SIM_ENTER();
	(void)handle;
	SIM_INVALID_IF(!phEvent);
	return CUDA_ERROR_NOT_SUPPORTED;
}
