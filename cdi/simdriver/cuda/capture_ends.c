/* SPDX-License-Identifier: Apache-2.0
 *
 * Beginning and ending captures, and asking about them.
 */
#include <stdlib.h>

#include "capture_state.h"

/* ---- beginning ------------------------------------------------------------------------------ */

static CUresult start(struct CUstream_st *stream, struct CUgraph_st *graph, CUstreamCaptureMode mode)
{
	static uint64_t last; /* under the lock */
	struct capture *capture = calloc(1, sizeof(*capture));
	if (!capture)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*capture = (struct capture){
		.next = captures, .id = ++last, .mode = mode, .thread = pthread_self(), .graph = graph, .borrowed = graph != NULL,
		.origin = stream, .streams = stream,
	};
	CUresult result = graph ? CUDA_SUCCESS : graph_new(&capture->graph);
	if (result != CUDA_SUCCESS) {
		free(capture);
		return result;
	}
	captures = capture;
	__atomic_fetch_add(&capture_count, 1, __ATOMIC_SEQ_CST);
	stream->joined = NULL;
	__atomic_store_n(&stream->capture, capture, __ATOMIC_RELEASE);
	return CUDA_SUCCESS;
}

static CUresult begin_locked(struct CUstream_st *stream, const struct beginning *how)
{
	if (stream->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (how->graph)
		SIM_TRY(graph_check(how->graph));
	SIM_INVALID_IF(how->count > 0 && !how->before);
	for (size_t i = 0; i < how->count; i++) {
		SIM_TRY(node_check(how->before[i]));
		SIM_INVALID_IF(how->before[i]->graph != how->graph);
	}
	stream->tips.count = 0;
	for (size_t i = 0; i < how->count; i++)
		SIM_TRY(tips_add(&stream->tips, how->before[i]));
	return start(stream, how->graph, how->mode);
}

CUresult capture_begin(CUstream given, bool per_thread, struct beginning how)
{
	struct CUstream_st *stream;
	SIM_CONTEXT_ENTER(context);
	SIM_TRY(engine_stream(given, per_thread, context, &stream));
	SIM_INVALID_IF((unsigned)how.mode > CU_STREAM_CAPTURE_MODE_RELAXED);
	if (stream == legacy_stream(stream->context))
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	graph_enter();
	CUresult result = begin_locked(stream, &how);
	graph_leave();
	return result;
}

/* ---- ending -------------------------------------------------------------------------------------- */

/* Takes all streams out of a capture, and ends it. */
static void finish(struct capture *capture)
{
	while (capture->streams) {
		struct CUstream_st *stream = capture->streams;
		capture->streams = stream->joined;
		stream->joined = NULL;
		tips_clear(&stream->tips);
		__atomic_store_n(&stream->capture, NULL, __ATOMIC_RELEASE);
	}
	struct capture **link = &captures;
	while (*link != capture)
		link = &(*link)->next;
	*link = capture->next;
	__atomic_fetch_sub(&capture_count, 1, __ATOMIC_SEQ_CST);
	free(capture);
}

/* Whether what the other streams did leads to where the origin is. */
static bool all_joined(const struct capture *capture)
{
	const struct tips *end = &capture->origin->tips;
	for (const struct CUstream_st *stream = capture->streams; stream; stream = stream->joined) {
		if (stream == capture->origin)
			continue;
		for (size_t i = 0; i < stream->tips.count; i++) {
			const struct CUgraphNode_st *tip = stream->tips.node[i];
			bool joined = tip->after.count > 0;
			for (size_t k = 0; !joined && k < end->count; k++)
				joined = end->node[k] == tip;
			if (!joined)
				return false;
		}
	}
	return true;
}

static CUresult end_locked(struct CUstream_st *stream, CUgraph *graph)
{
	struct capture *capture = stream->capture;
	*graph = NULL;
	if (!capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (capture->origin != stream) {
		capture->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	}
	if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(capture->thread, pthread_self()))
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	CUresult result = capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED :
			  all_joined(capture) ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	if (result == CUDA_SUCCESS)
		*graph = capture->graph;
	else if (!capture->borrowed)
		graph_free(capture->graph);
	finish(capture);
	return result;
}

CUresult capture_end(CUstream given, bool per_thread, CUgraph *graph)
{
	struct CUstream_st *stream;
	SIM_CONTEXT_ENTER(context);
	SIM_TRY(engine_stream(given, per_thread, context, &stream));
	SIM_INVALID_IF(!graph);
	graph_enter();
	CUresult result = end_locked(stream, graph);
	graph_leave();
	return result;
}

/* A capture of which a stream is gone cannot end well. */
void capture_abandon(struct CUstream_st *stream)
{
	if (!stream_captures(stream))
		return;
	graph_enter();
	struct capture *capture = stream->capture;
	if (capture && capture->origin == stream) {
		if (!capture->borrowed)
			graph_free(capture->graph);
		finish(capture);
	} else if (capture) {
		capture->invalid = true;
		struct CUstream_st **link = &capture->streams;
		while (*link != stream)
			link = &(*link)->joined;
		*link = stream->joined;
		tips_clear(&stream->tips);
		__atomic_store_n(&stream->capture, NULL, __ATOMIC_RELEASE);
	}
	graph_leave();
}

/* ---- asking and changing --------------------------------------------------------------------------- */

static void tell(const struct CUstream_st *stream, const struct info *info)
{
	const struct capture *capture = stream->capture;
	bool active = capture && !capture->invalid;
	*info->status = active ? CU_STREAM_CAPTURE_STATUS_ACTIVE :
			capture ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_NONE;
	if (!active)
		return;
	if (info->id)
		*info->id = capture->id;
	if (info->graph)
		*info->graph = capture->graph;
	/* Valid until the stream's next call. */
	if (info->before)
		*info->before = stream->tips.node;
	if (info->data)
		*info->data = NULL; /* all are ordinary */
	if (info->count)
		*info->count = stream->tips.count;
}

CUresult capture_info(CUstream given, bool per_thread, struct info info)
{
	struct CUstream_st *stream;
	SIM_CONTEXT_ENTER(context);
	SIM_TRY(engine_stream(given, per_thread, context, &stream));
	SIM_INVALID_IF(!info.status);
	if (stream == legacy_stream(stream->context))
		SIM_TRY(capture_implicit_query(stream->context));
	graph_enter();
	tell(stream, &info);
	graph_leave();
	return CUDA_SUCCESS;
}

static CUresult update_locked(struct CUstream_st *stream, const CUgraphNode *before, size_t count, unsigned flags)
{
	if (!stream->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (stream->capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	SIM_INVALID_IF((count > 0 && !before) || flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES);
	for (size_t i = 0; i < count; i++) {
		SIM_TRY(node_check(before[i]));
		SIM_INVALID_IF(before[i]->graph != stream->capture->graph);
	}
	struct tips tips = {0};
	CUresult result = flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES ? tips_join(&tips, &stream->tips) : CUDA_SUCCESS;
	for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
		result = tips_add(&tips, before[i]);
	if (result == CUDA_SUCCESS) {
		tips_clear(&stream->tips);
		stream->tips = tips;
	} else {
		tips_clear(&tips);
	}
	return result;
}

CUresult capture_update(CUstream given, bool per_thread, const CUgraphNode *before, size_t count, unsigned flags)
{
	struct CUstream_st *stream;
	SIM_CONTEXT_ENTER(context);
	SIM_TRY(engine_stream(given, per_thread, context, &stream));
	graph_enter();
	CUresult result = update_locked(stream, before, count, flags);
	graph_leave();
	return result;
}
