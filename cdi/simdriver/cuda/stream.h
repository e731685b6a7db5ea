/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams and events as the functions of the API use them.
 */
#ifndef TRANCHE_SIM_STREAM_H
#define TRANCHE_SIM_STREAM_H

#include "timeline.h"

#define PRIORITY_LEAST 0
#define PRIORITY_GREATEST (-5)

struct CUevent_st {
	struct sim_handle handle;
	struct CUctx_st *context;
	unsigned flags;
	pthread_mutex_t lock;
	struct moment *moment;   /* of the last record, or NULL; under the lock */
	struct event_capture captured; /* the last record was in a capture; under the lock */
	struct CUevent_st *next; /* of the context */
	struct CUevent_st **link;
};

/* Default streams of the three kinds of functions: cuX, cuX_ptsz. */
enum { LEGACY = 0, PER_THREAD = 1 };

/* What a function that gives work to a stream begins with: the current context and the
 * stream meant. STREAM_CAPTURE_IMPLICIT for the legacy default stream while a stream captures that
 * synchronises with it. */
CUresult stream_enter(CUstream given, bool per_thread, struct CUstream_st **stream);

/* Whether a stream captures; if not, work goes to its queue. */
static inline bool stream_captures(const struct CUstream_st *stream)
{
	return __atomic_load_n(&stream->capture, __ATOMIC_ACQUIRE) != NULL;
}

static inline struct engine_context *engine_context(const struct CUctx_st *context)
{
	return context->engine;
}

/* The context ends: what graphs have allocated in it goes. */
void graph_memory_close(struct CUctx_st *context);

struct CUstream_st *legacy_stream(const struct CUctx_st *context);

/* The moment of the last record; NULL: there was none. To be put back. */
struct moment *event_moment(struct CUevent_st *event);
/* Replaces it; takes the reference over. */
void event_set_moment(struct CUevent_st *event, struct moment *moment);
/* INVALID_HANDLE */
CUresult event_check(CUevent event);
/* Ends all events of a context. Under the timeline's lock. */
void events_close(struct engine_context *context);

#endif
