/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams: making and finding them, and how contexts have them.
 */
#include "stream.h"

#include <stdlib.h>

/* ---- making and ending -------------------------------------------------------- */

/* Under the timeline's lock. */
static struct CUstream_st *stream_new(struct engine_context *owner, unsigned flags, int priority)
{
	struct CUstream_st *stream = sim_new(SIM_STREAM, sizeof(*stream));
	if (!stream)
		return NULL;
	stream->queue = queue_open(owner, !(flags & CU_STREAM_NON_BLOCKING), priority);
	if (!stream->queue) {
		sim_delete(stream);
		return NULL;
	}
	stream->context = owner->context;
	stream->flags = flags;
	stream->next = owner->streams;
	owner->streams = stream;
	return stream;
}

/* Under the timeline's lock. */
static void stream_end(struct CUstream_st *stream)
{
	struct CUstream_st **link = &engine_context(stream->context)->streams;
	while (*link != stream)
		link = &(*link)->next;
	*link = stream->next;
	queue_close(stream->queue);
	sim_delete(stream);
}

CUresult engine_context_open(struct CUctx_st *context)
{
	struct engine_context *owner = calloc(1, sizeof(*owner));
	if (!owner)
		return CUDA_ERROR_OUT_OF_MEMORY;
	timeline_enter();
	owner->context = context;
	owner->engine = engine_of(context->device);
	if (owner->engine)
		owner->legacy = stream_new(owner, CU_STREAM_DEFAULT, 0);
	if (owner->legacy) {
		owner->legacy->special = true;
		owner->next = owner->engine->contexts;
		owner->engine->contexts = owner;
		context->engine = owner;
	}
	timeline_leave();
	if (context->engine)
		return CUDA_SUCCESS;
	free(owner);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

void engine_context_close(struct CUctx_st *context)
{
	struct engine_context *owner = engine_context(context);
	if (!owner)
		return;
	for (struct CUstream_st *stream = owner->streams; stream; stream = stream->next)
		capture_abandon(stream);
	timeline_enter();
	owner->closing = true;
	timeline_leave();
	engine_context_wait(context);
	graph_memory_close(context);
	timeline_enter();
	/* The legacy stream last: the others' order refers to it. */
	for (struct CUstream_st *stream = owner->streams, *next; stream; stream = next) {
		next = stream->next;
		if (stream != owner->legacy)
			stream_end(stream);
	}
	stream_end(owner->legacy);
	events_close(owner);
	struct engine_context **link = &owner->engine->contexts;
	while (*link != owner)
		link = &(*link)->next;
	*link = owner->next;
	context->engine = NULL;
	timeline_leave();
	free(owner);
}

/* ---- waiting for all streams ------------------------------------------------------ */

/* The first queue of the context with commands before the given order; its next position. */
static struct queue *unfinished(const struct engine_context *owner, uint64_t order, uint64_t *position)
{
	for (struct queue *queue = owner->engine->queues; queue; queue = queue->next) {
		uint64_t head = queue_head(queue);
		if (queue->context != owner || head == queue_tail(queue) || queue_command(queue, head)->order >= order)
			continue;
		uint64_t tail = queue_tail(queue);
		while (head < tail && queue_command(queue, head)->order < order)
			head++;
		*position = head;
		return queue;
	}
	return NULL;
}

static void wait_for_queues(struct engine_context *owner)
{
	uint64_t order = __atomic_load_n(&owner->order, __ATOMIC_ACQUIRE);
	for (;;) {
		uint64_t position;
		timeline_enter();
		timeline_look();
		struct queue *queue = unfinished(owner, order, &position);
		timeline_leave();
		if (!queue)
			return;
		queue_wait(queue, position);
	}
}

CUresult engine_context_wait(struct CUctx_st *context)
{
	struct engine_context *owner = engine_context(context);
	if (in_callback)
		return CUDA_ERROR_NOT_PERMITTED;
	if (owner)
		wait_for_queues(owner);
	sim_memory_synchronized(context->device);
	return CUDA_SUCCESS;
}

CUresult engine_device_wait(struct sim_device *device)
{
	struct engine *engine = device->engine;
	if (!engine)
		return CUDA_SUCCESS;
	if (in_callback)
		return CUDA_ERROR_NOT_PERMITTED;
	/* Contexts that end meanwhile finish their work themselves. */
	for (unsigned i = 0;; i++) {
		timeline_enter();
		struct engine_context *owner = engine->contexts;
		for (unsigned skip = i; owner && skip; skip--)
			owner = owner->next;
		timeline_leave();
		if (!owner)
			return CUDA_SUCCESS;
		wait_for_queues(owner);
	}
}

CUresult cuCtxSynchronize(void)
{
	SIM_CONTEXT_ENTER(context);
	SIM_TRY(engine_may_block(context));
	return engine_context_wait(context);
}

CUresult cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
	SIM_CONTEXT_ENTER(context);
	(void)context;
	if (leastPriority)
		*leastPriority = PRIORITY_LEAST;
	if (greatestPriority)
		*greatestPriority = PRIORITY_GREATEST;
	return CUDA_SUCCESS;
}

/* ---- per-thread default streams ----------------------------------------------------- */

struct thread_stream {
	struct thread_stream *next;
	struct CUstream_st *stream;
	uint64_t id; /* of the stream's handle */
	uint64_t context_id;
};

static _Thread_local struct thread_stream *thread_streams;
static pthread_key_t thread_key;
static pthread_once_t thread_key_once = PTHREAD_ONCE_INIT;

/* A context that is reset has other streams than before. */
static bool usable(const struct thread_stream *entry)
{
	return sim_is(entry->stream, SIM_STREAM) && entry->stream->handle.id == entry->id;
}

static void thread_ends(void *argument)
{
	struct thread_stream *entry = argument;
	if (sim_enter() != CUDA_SUCCESS)
		return;
	timeline_enter();
	while (entry) {
		struct thread_stream *next = entry->next;
		if (usable(entry))
			stream_end(entry->stream);
		free(entry);
		entry = next;
	}
	timeline_leave();
}

static void make_thread_key(void)
{
	pthread_key_create(&thread_key, thread_ends);
}

static CUresult new_thread_stream(struct CUctx_st *context, struct thread_stream *entry)
{
	timeline_enter();
	struct CUstream_st *stream = stream_new(engine_context(context), CU_STREAM_DEFAULT, 0);
	timeline_leave();
	if (!stream)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stream->special = true;
	entry->stream = stream;
	entry->id = stream->handle.id;
	entry->context_id = context->handle.id;
	return CUDA_SUCCESS;
}

static CUresult per_thread_stream(struct CUctx_st *context, struct CUstream_st **stream)
{
	struct thread_stream *entry = thread_streams;
	while (entry && entry->context_id != context->handle.id)
		entry = entry->next;
	if (!entry) {
		entry = calloc(1, sizeof(*entry));
		if (!entry)
			return CUDA_ERROR_OUT_OF_MEMORY;
		entry->next = thread_streams;
		thread_streams = entry;
		pthread_once(&thread_key_once, make_thread_key);
		pthread_setspecific(thread_key, entry);
	}
	if (!SIM_LIKELY(usable(entry)))
		SIM_TRY(new_thread_stream(context, entry));
	*stream = entry->stream;
	return CUDA_SUCCESS;
}

/* ---- finding ----------------------------------------------------------------------- */

struct CUstream_st *legacy_stream(const struct CUctx_st *context)
{
	return engine_context(context)->legacy;
}

CUresult engine_stream(CUstream given, bool per_thread, struct CUctx_st *current, struct CUstream_st **stream)
{
	if (given == CU_STREAM_PER_THREAD || (!given && per_thread))
		return per_thread_stream(current, stream);
	if (!given || given == CU_STREAM_LEGACY) {
		*stream = legacy_stream(current);
		return CUDA_SUCCESS;
	}
	if (!sim_is(given, SIM_STREAM))
		return CUDA_ERROR_INVALID_HANDLE;
	*stream = given;
	return CUDA_SUCCESS;
}

struct CUctx_st *engine_stream_context(struct CUstream_st *stream)
{
	return stream->context;
}

bool engine_stream_capturing(struct CUstream_st *stream)
{
	return stream_captures(stream);
}

CUresult stream_enter(CUstream given, bool per_thread, struct CUstream_st **stream)
{
	SIM_CONTEXT_ENTER(context);
	SIM_TRY(engine_stream(given, per_thread, context, stream));
	if (*stream == legacy_stream((*stream)->context))
		return capture_implicit((*stream)->context);
	return CUDA_SUCCESS;
}

/* ---- cuStreamCreate and its opposite -------------------------------------------------- */

static CUresult create(CUstream *handle, unsigned flags, int priority)
{
	SIM_CONTEXT_ENTER(context);
	SIM_INVALID_IF(!handle || flags & ~(unsigned)CU_STREAM_NON_BLOCKING);
	if (priority < PRIORITY_GREATEST)
		priority = PRIORITY_GREATEST;
	if (priority > PRIORITY_LEAST)
		priority = PRIORITY_LEAST;
	timeline_enter();
	struct CUstream_st *stream = stream_new(engine_context(context), flags, priority);
	timeline_leave();
	if (!stream)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*handle = stream;
	return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
	return create(phStream, Flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
	return create(phStream, flags, priority);
}

/* What was submitted is still done. */
static CUresult destroy(CUstream stream)
{
	SIM_ENTER();
	if (!sim_is(stream, SIM_STREAM) || stream->special)
		return CUDA_ERROR_INVALID_HANDLE;
	capture_abandon(stream);
	timeline_enter();
	stream_end(stream);
	timeline_leave();
	return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream hStream)
{
	return destroy(hStream);
}

CUresult cuStreamDestroy_v2(CUstream hStream)
{
	return destroy(hStream);
}
