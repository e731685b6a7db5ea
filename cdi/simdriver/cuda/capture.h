/* SPDX-License-Identifier: Apache-2.0
 *
 * Captures: streams whose work becomes nodes of a graph.
 */
#ifndef TRANCHE_SIM_CAPTURE_H
#define TRANCHE_SIM_CAPTURE_H

#include "engine.h"

/* What an event that was recorded in a capture stands for. */
struct event_capture {
	uint64_t id; /* of the capture, 0: none */
	struct CUgraphNode_st **tips;
	size_t tip_count;
};

/* Work given to a stream that captures. node may be NULL. */
CUresult capture_node(struct CUstream_st *stream, CUgraphNodeParams *params, CUgraphNode *node);
CUresult capture_record(struct CUstream_st *stream, CUevent event, unsigned flags);
/* Whether the event belongs to a capture: then waiting for it is a matter of captures. */
bool capture_owns(CUevent event);
/* cuStreamWaitEvent where the stream captures or the event was recorded in a capture. */
CUresult capture_wait(struct CUstream_st *stream, CUevent event, unsigned flags);
/* A call that a stream that captures does not allow: STREAM_CAPTURE_UNSUPPORTED, and the
 * capture is invalid. SUCCESS where the stream does not capture. */
CUresult capture_forbids(struct CUstream_st *stream);
/* Use of the legacy default stream. */
CUresult capture_implicit(struct CUctx_st *context);
/* The stream ends. */
void capture_abandon(struct CUstream_st *stream);
/* The event forgets that it was recorded in a capture. */
void event_capture_clear(struct event_capture *captured);

#endif
