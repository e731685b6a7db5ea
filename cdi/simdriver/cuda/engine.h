/* SPDX-License-Identifier: Apache-2.0
 *
 * What the memory half of the simulated libcuda asks of the engine half:
 * streams and their order, waiting, captures.
 *
 * The engine has one lock of its own, which is never held while a function of the
 * memory half runs, so that half may hold its locks while it calls what
 * is marked "cheap" here. The rest waits.
 */
#ifndef TRANCHE_SIM_ENGINE_H
#define TRANCHE_SIM_ENGINE_H

#include "sim.h"

/* Sets context->engine. */
CUresult engine_context_open(struct CUctx_st *context);
/* Waits for the work that was submitted, then ends the context's streams and
 * events: their handles are no longer valid. Does nothing without an engine. */
void engine_context_close(struct CUctx_st *context);

/* cuCtxSynchronize, and the same for all contexts of the device in this process. Do
 * not ask engine_may_block. Calls sim_memory_synchronized only in the first. */
CUresult engine_context_wait(struct CUctx_st *context);
CUresult engine_device_wait(struct sim_device *device);

/* Whether a call that may wait for the device, or is unsafe during a capture for another
 * reason, is allowed to this thread: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED while a
 * capture is under way whose mode and the thread's forbid it; the capture is then
 * invalid. */
CUresult engine_may_block(struct CUctx_st *context);

/* The stream that a program means. NULL is the legacy default stream of the current
 * context, or with per_thread the calling thread's. Cheap. */
CUresult engine_stream(CUstream given, bool per_thread, struct CUctx_st *current, struct CUstream_st **stream);
struct CUctx_st *engine_stream_context(struct CUstream_st *stream);
bool engine_stream_capturing(struct CUstream_st *stream);

/* A mark is a point in the order of a stream: after everything that was
 * submitted to it so far. It is a number, nobody has to give it back, and it stays good
 * when the stream ends. Cheap; engine_mark_done looks at the time. */
uint64_t engine_mark(struct CUstream_st *stream);
bool engine_mark_done(uint64_t mark);
/* What is submitted to the stream from now on comes after the mark. Cheap. */
CUresult engine_stream_wait_mark(struct CUstream_st *stream, uint64_t mark);

/* cuMemAllocAsync and cuMemFreeAsync in a stream that captures: nodes of its
 * graph. */
CUresult capture_memory_alloc(struct CUstream_st *stream, const CUmemPoolProps *properties, size_t bytes, CUdeviceptr *address);
CUresult capture_memory_free(struct CUstream_st *stream, CUdeviceptr address);

/* cuMemFree and, with a stream, cuMemFreeAsync of what an allocation node of a graph has allocated
 * and no graph has freed. INVALID_VALUE: the address is none, or its memory is free already. The memory stays
 * with the device's graphs, until cuDeviceGraphMemTrim. Not with the memory half's locks held. */
CUresult engine_graph_memory_free(CUdeviceptr address, struct CUstream_st *stream);

#endif
