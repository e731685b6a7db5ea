/* SPDX-License-Identifier: Apache-2.0
 *
 * Captures: streams whose work becomes nodes of a graph.
 */
#ifndef TRANCHE_SIM_CAPTURE_H
#define TRANCHE_SIM_CAPTURE_H

#include "engine.h"

/* What the next node of a stream that captures depends on. */
struct tips {
	struct CUgraphNode_st **node;
	size_t count, room;
};

/* What an event that was recorded in a capture stands for. */
struct event_capture {
	uint64_t id; /* of the capture, 0: none. Atomic */
	struct tips tips;
};

/* One capture, in one stream or several. Under graph_lock. */
struct capture {
	struct capture *next;
	uint64_t id;
	CUstreamCaptureMode mode;
	pthread_t thread; /* that began it */
	struct CUgraph_st *graph;
	bool borrowed; /* the graph is the program's */
	bool invalid;
	struct CUstream_st *origin;
	struct CUstream_st *streams; /* linked by joined */
};

/* Work given to a stream that captures. node may be NULL. */
CUresult capture_node(struct CUstream_st *stream, CUgraphNodeParams *params, CUgraphNode *node);
CUresult capture_record(struct CUstream_st *stream, CUevent event, unsigned flags);
/* Whether the event was last recorded in a capture: then waiting for it is a matter of captures. */
bool capture_owns(CUevent event);
/* cuStreamWaitEvent where the stream captures or the event was recorded in a capture. */
CUresult capture_wait(struct CUstream_st *stream, CUevent event, unsigned flags);
/* A call that a stream that captures does not allow: STREAM_CAPTURE_UNSUPPORTED, and the
 * capture is invalid. SUCCESS where the stream does not capture. */
CUresult capture_forbids(struct CUstream_st *stream);
/* Use of the legacy default stream: STREAM_CAPTURE_IMPLICIT while a stream captures that
 * synchronises with it, and that capture is invalid. */
CUresult capture_implicit(struct CUctx_st *context);
/* The same without a consequence, for questions. */
CUresult capture_implicit_query(struct CUctx_st *context);
/* The stream ends. */
void capture_abandon(struct CUstream_st *stream);
/* The event forgets that it was recorded in a capture. */
void event_capture_clear(struct event_capture *captured);

#endif
