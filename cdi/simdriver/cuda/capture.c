/* SPDX-License-Identifier: Apache-2.0
 *
 * What becomes of work in streams that capture, and which calls captures forbid.
 */
#include <stdlib.h>
#include <string.h>

#include "capture_state.h"

struct capture *captures;
uint32_t capture_count;

static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/* ---- tips -------------------------------------------------------------------------------- */

CUresult tips_add(struct tips *tips, struct CUgraphNode_st *node)
{
	for (size_t i = 0; i < tips->count; i++)
		if (tips->node[i] == node)
			return CUDA_SUCCESS;
	if (tips->count == tips->room) {
		size_t room = tips->room ? 2 * tips->room : 4;
		struct CUgraphNode_st **grown = realloc(tips->node, room * sizeof(struct CUgraphNode_st *));
		if (!grown)
			return CUDA_ERROR_OUT_OF_MEMORY;
		tips->node = grown;
		tips->room = room;
	}
	tips->node[tips->count++] = node;
	return CUDA_SUCCESS;
}

CUresult tips_join(struct tips *tips, const struct tips *more)
{
	for (size_t i = 0; i < more->count; i++)
		SIM_TRY(tips_add(tips, more->node[i]));
	return CUDA_SUCCESS;
}

void tips_clear(struct tips *tips)
{
	free(tips->node);
	*tips = (struct tips){0};
}

/* ---- validity ------------------------------------------------------------------------------- */

struct capture *capture_find(uint64_t id)
{
	struct capture *capture = captures;
	while (capture && capture->id != id)
		capture = capture->next;
	return capture;
}

static bool any(void)
{
	return __atomic_load_n(&capture_count, __ATOMIC_ACQUIRE) > 0;
}

/* Makes the captures invalid that forbid a call to the calling thread; whether there are any. */
static bool invalidate_forbidding(void)
{
	bool found = false;
	if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return false;
	for (struct capture *capture = captures; capture; capture = capture->next) {
		bool own = pthread_equal(capture->thread, pthread_self());
		if (capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED ||
		    (!own && (thread_mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL || capture->mode != CU_STREAM_CAPTURE_MODE_GLOBAL)))
			continue;
		capture->invalid = true;
		found = true;
	}
	return found;
}

CUresult engine_may_block(struct CUctx_st *context)
{
	(void)context; /* captures of one context forbid calls in all */
	if (SIM_LIKELY(!any()))
		return CUDA_SUCCESS;
	graph_enter();
	bool forbidden = invalidate_forbidding();
	graph_leave();
	return forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult capture_forbids(struct CUstream_st *stream)
{
	if (SIM_LIKELY(!stream_captures(stream)))
		return CUDA_SUCCESS;
	graph_enter();
	if (stream->capture)
		stream->capture->invalid = true;
	graph_leave();
	return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static CUresult implicit(struct CUctx_st *context, bool invalidate)
{
	CUresult result = CUDA_SUCCESS;
	if (SIM_LIKELY(!any()))
		return CUDA_SUCCESS;
	graph_enter();
	for (struct capture *capture = captures; capture; capture = capture->next)
		for (const struct CUstream_st *stream = capture->streams; stream; stream = stream->joined) {
			if (stream->context != context || stream->flags & CU_STREAM_NON_BLOCKING)
				continue;
			capture->invalid |= invalidate;
			result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
		}
	graph_leave();
	return result;
}

CUresult capture_implicit(struct CUctx_st *context)
{
	return implicit(context, true);
}

CUresult capture_implicit_query(struct CUctx_st *context)
{
	return implicit(context, false);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	SIM_ENTER();
	SIM_INVALID_IF(!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED);
	CUstreamCaptureMode before = thread_mode;
	thread_mode = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}

/* ---- work -------------------------------------------------------------------------------------- */

/* The capture of a stream, if it is still good for anything. */
static CUresult valid(const struct CUstream_st *stream)
{
	if (!stream->capture)
		return CUDA_ERROR_ILLEGAL_STATE; /* it ended in another thread just now */
	SIM_TRY(graph_check(stream->capture->graph)); /* the program may have destroyed it */
	return stream->capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

static CUresult add(struct CUstream_st *stream, CUgraphNodeParams *params, CUgraphNode *handle)
{
	struct CUgraphNode_st *node;
	SIM_TRY(valid(stream));
	SIM_TRY(node_add(stream->capture->graph, stream->tips.node, NULL, stream->tips.count, params, &node));
	stream->tips.count = 0;
	CUresult result = tips_add(&stream->tips, node);
	if (result == CUDA_SUCCESS && handle)
		*handle = node;
	return result;
}

CUresult capture_node(struct CUstream_st *stream, CUgraphNodeParams *params, CUgraphNode *node)
{
	graph_enter();
	CUresult result = add(stream, params, node);
	graph_leave();
	return result;
}

/* ---- events -------------------------------------------------------------------------------------- */

void event_capture_clear(struct event_capture *captured)
{
	if (captured->id == 0)
		return;
	tips_clear(&captured->tips);
	__atomic_store_n(&captured->id, 0, __ATOMIC_RELEASE);
}

bool capture_owns(CUevent event)
{
	return __atomic_load_n(&event->captured.id, __ATOMIC_ACQUIRE) != 0;
}

static CUresult record(struct CUstream_st *stream, CUevent event, unsigned flags)
{
	SIM_TRY(valid(stream));
	if (flags & CU_EVENT_RECORD_EXTERNAL) {
		CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .eventRecord = {.event = event}};
		return add(stream, &node, NULL);
	}
	struct tips tips = {0};
	CUresult result = tips_join(&tips, &stream->tips);
	if (result != CUDA_SUCCESS) {
		tips_clear(&tips);
		return result;
	}
	pthread_mutex_lock(&event->lock);
	struct moment *before = event->moment;
	event->moment = NULL;
	tips_clear(&event->captured.tips);
	event->captured.tips = tips;
	__atomic_store_n(&event->captured.id, stream->capture->id, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&event->lock);
	moment_put(before);
	return CUDA_SUCCESS;
}

CUresult capture_record(struct CUstream_st *stream, CUevent event, unsigned flags)
{
	graph_enter();
	CUresult result = record(stream, event, flags);
	graph_leave();
	return result;
}

/* The stream waits for an event of a capture: it belongs to that from now on. */
static CUresult join(struct CUstream_st *stream, struct capture *capture, const struct tips *tips)
{
	if (!stream->capture) {
		/* No capture can be in the legacy default stream. */
		if (stream == legacy_stream(stream->context))
			return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		stream->joined = capture->streams;
		capture->streams = stream;
		stream->tips.count = 0;
		__atomic_store_n(&stream->capture, capture, __ATOMIC_RELEASE);
	}
	return tips_join(&stream->tips, tips);
}

static CUresult wait_captured(struct CUstream_st *stream, uint64_t id, const struct tips *tips)
{
	struct capture *capture = capture_find(id);
	if (!capture)
		return CUDA_ERROR_CAPTURED_EVENT;
	if (stream->capture && stream->capture != capture) {
		stream->capture->invalid = capture->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	}
	if (capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	return join(stream, capture, tips);
}

static CUresult wait(struct CUstream_st *stream, CUevent event, unsigned flags)
{
	if (stream->capture)
		SIM_TRY(valid(stream));
	if (flags & CU_EVENT_WAIT_EXTERNAL) {
		SIM_INVALID_IF(!stream->capture);
		CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .eventWait = {.event = event}};
		return add(stream, &node, NULL);
	}
	struct tips tips = {0};
	pthread_mutex_lock(&event->lock);
	uint64_t id = event->captured.id;
	CUresult result = tips_join(&tips, &event->captured.tips);
	pthread_mutex_unlock(&event->lock);
	if (id && result == CUDA_SUCCESS)
		result = wait_captured(stream, id, &tips);
	tips_clear(&tips);
	if (id || result != CUDA_SUCCESS)
		return result;
	if (!stream->capture) /* it was recorded elsewhere just now */
		return CUDA_ERROR_CAPTURED_EVENT;
	struct moment *moment = event_moment(event);
	moment_put(moment);
	if (!moment)
		return CUDA_SUCCESS; /* never recorded */
	/* What is outside the capture cannot be in the graph. */
	stream->capture->invalid = true;
	return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
}

CUresult capture_wait(struct CUstream_st *stream, CUevent event, unsigned flags)
{
	graph_enter();
	CUresult result = wait(stream, event, flags);
	graph_leave();
	return result;
}

/* ---- memory ---------------------------------------------------------------------------------------- */

CUresult capture_memory_alloc(struct CUstream_st *stream, const CUmemPoolProps *properties, size_t bytes, CUdeviceptr *address)
{
	CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC, .alloc = {.poolProps = *properties, .bytesize = bytes}};
	SIM_TRY(capture_node(stream, &node, NULL));
	*address = node.alloc.dptr;
	return CUDA_SUCCESS;
}

CUresult capture_memory_free(struct CUstream_st *stream, CUdeviceptr address)
{
	CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = {.dptr = address}};
	return capture_node(stream, &node, NULL);
}
