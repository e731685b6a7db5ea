/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of captures share. Under graph_lock.
 */
#ifndef TRANCHE_SIM_CAPTURE_STATE_H
#define TRANCHE_SIM_CAPTURE_STATE_H

#include "graph.h"

extern struct capture *captures;
extern uint32_t capture_count; /* atomic */

struct capture *capture_find(uint64_t id);

CUresult tips_add(struct tips *tips, struct CUgraphNode_st *node);
CUresult tips_join(struct tips *tips, const struct tips *more);
void tips_clear(struct tips *tips);

/* ---- capture_ends.c: without the lock ----------------------------------------------- */

/* How a capture begins. */
struct beginning {
	CUgraph graph; /* or NULL */
	const CUgraphNode *before;
	size_t count;
	CUstreamCaptureMode mode;
};

/* Where what is asked about a capture goes; all but status may be NULL. */
struct info {
	CUstreamCaptureStatus *status;
	cuuint64_t *id;
	CUgraph *graph;
	const CUgraphNode **before;
	const CUgraphEdgeData **data;
	size_t *count;
};

CUresult capture_begin(CUstream given, bool per_thread, struct beginning how);
CUresult capture_end(CUstream given, bool per_thread, CUgraph *graph);
CUresult capture_info(CUstream given, bool per_thread, struct info info);
CUresult capture_update(CUstream given, bool per_thread, const CUgraphNode *before, size_t count, unsigned flags);

#endif
