/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of the host in streams.
 */
#include "stream_work.h"

#include <stdlib.h>

/* ---- functions of the host ------------------------------------------------------------------ */

struct host_job {
	struct job job;
	CUhostFn function;
	CUstreamCallback callback; /* instead */
	CUstream stream;
	void *argument;
};

static void run_host(struct job *job)
{
	const struct host_job *host = (const struct host_job *)job;
	if (host->callback)
		host->callback(host->stream, CUDA_SUCCESS, host->argument);
	else
		host->function(host->argument);
}

static void drop(struct job *job)
{
	free(job);
}

CUresult host_make(CUhostFn function, void *argument, struct job **job)
{
	struct host_job *host = calloc(1, sizeof(*host));
	if (!host)
		return CUDA_ERROR_OUT_OF_MEMORY;
	host->job = (struct job){.hand = HAND_HOST, .run = run_host, .drop = drop};
	host->function = function;
	host->argument = argument;
	*job = &host->job;
	return CUDA_SUCCESS;
}

static CUresult submit_job(struct CUstream_st *stream, struct job *job)
{
	return queue_submit(stream->queue, (struct command){.kind = COMMAND_JOB, .slow = true, .payload = job});
}

static CUresult launch_host(CUstream given, bool per_thread, CUhostFn function, void *argument)
{
	struct CUstream_st *stream;
	struct job *job;
	SIM_TRY(stream_enter(given, per_thread, &stream));
	SIM_INVALID_IF(!function);
	if (stream_captures(stream)) {
		CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_HOST, .host = {.fn = function, .userData = argument}};
		return capture_node(stream, &node, NULL);
	}
	SIM_TRY(host_make(function, argument, &job));
	return submit_job(stream, job);
}

static CUresult add_callback(CUstream given, bool per_thread, CUstreamCallback callback, void *argument, unsigned flags)
{
	struct CUstream_st *stream;
	struct job *job;
	SIM_TRY(stream_enter(given, per_thread, &stream));
	SIM_INVALID_IF(!callback || flags != 0);
	SIM_TRY(capture_forbids(stream));
	SIM_TRY(host_make(NULL, argument, &job));
	struct host_job *host = (struct host_job *)job;
	host->callback = callback;
	host->stream = given;
	return submit_job(stream, job);
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
	return launch_host(hStream, LEGACY, fn, userData);
}

CUresult cuLaunchHostFunc_ptsz(CUstream hStream, CUhostFn fn, void *userData)
{
	return launch_host(hStream, PER_THREAD, fn, userData);
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags)
{
	return add_callback(hStream, LEGACY, callback, userData, flags);
}

CUresult cuStreamAddCallback_ptsz(CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags)
{
	return add_callback(hStream, PER_THREAD, callback, userData, flags);
}
