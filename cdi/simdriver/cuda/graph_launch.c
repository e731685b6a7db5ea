/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching executable graphs. A launch is one command of its stream.
 */
#include <stdlib.h>

#include "graph.h"

static struct graph_run *run_new(const struct CUgraphExec_st *exec)
{
	struct program *program = exec->program;
	struct graph_run *run = calloc(1, sizeof(*run) + program->moments * sizeof(struct moment *));
	if (!run)
		return NULL;
	__atomic_fetch_add(&program->references, 1, __ATOMIC_RELAXED);
	run->program = program;
	return run;
}

static bool event_alive(const struct graph_event *event)
{
	return event_check(event->event) == CUDA_SUCCESS && event->event->handle.id == event->id;
}

/* Moments for events that the graph records, and of those that it waits for. */
static CUresult take_moments(const struct CUgraphExec_st *exec, struct graph_run *run)
{
	for (unsigned i = 0; i < run->program->moments; i++) {
		const struct graph_event *event = &exec->event[i];
		SIM_INVALID_IF(!event_alive(event));
		if (!event->record) {
			run->moment[i] = event_moment(event->event);
			continue;
		}
		run->moment[i] = moment_new();
		if (!run->moment[i])
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

struct launch {
	struct command command;
	uint64_t after; /* mark of the executable's last launch, or 0 */
	unsigned events;
	struct graph_event *event;
	struct moment **moment;
};

/* Everything that a launch needs, under the lock. */
static CUresult prepare(struct CUgraphExec_st *exec, struct CUstream_st *stream, struct launch *launch)
{
	SIM_TRY(exec_check(exec));
	if (exec->device && exec->device != stream->context->device)
		return CUDA_ERROR_NOT_SUPPORTED;
	SIM_TRY(memory_prepare(exec->graph, true, exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
	struct graph_run *run = run_new(exec);
	if (!run) {
		memory_launched(exec->graph, 0);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	launch->command = (struct command){
		.kind = COMMAND_GRAPH, .slow = run->program->slow, .nanoseconds = run->program->work, .payload = run};
	launch->after = exec->mark;
	unsigned events = run->program->moments;
	launch->event = malloc((events + 1) * sizeof(*launch->event));
	launch->moment = calloc(events + 1, sizeof(struct moment *));
	CUresult result = launch->event && launch->moment ? take_moments(exec, run) : CUDA_ERROR_OUT_OF_MEMORY;
	if (result != CUDA_SUCCESS) {
		command_drop(&launch->command);
		free(launch->event);
		free(launch->moment);
		memory_launched(exec->graph, 0);
		return result;
	}
	for (unsigned i = 0; i < events; i++) {
		launch->event[i] = exec->event[i];
		launch->moment[i] = exec->event[i].record ? moment_get(run->moment[i]) : NULL;
	}
	launch->events = events;
	return CUDA_SUCCESS;
}

/* The launch was submitted: what its end stands for. */
static void launched(struct CUgraphExec_st *exec, struct CUstream_st *stream, struct launch *launch, CUresult result)
{
	for (unsigned i = 0; i < launch->events; i++) {
		if (launch->moment[i] && result == CUDA_SUCCESS && event_alive(&launch->event[i]))
			event_set_moment(launch->event[i].event, launch->moment[i]);
		else
			moment_put(launch->moment[i]);
	}
	free(launch->event);
	free(launch->moment);
	/* Whoever destroys it while it is launched gets what the driver gives. */
	if (exec_check(exec) != CUDA_SUCCESS)
		return;
	if (result == CUDA_SUCCESS)
		exec->mark = engine_mark(stream);
	memory_launched(exec->graph, result == CUDA_SUCCESS ? exec->mark : 0);
}

CUresult exec_launch(CUgraphExec exec, struct CUstream_st *stream)
{
	struct launch launch;
	graph_enter();
	CUresult result = prepare(exec, stream, &launch);
	graph_leave();
	if (result != CUDA_SUCCESS)
		return result;
	/* Launches of one executable graph follow each other, in whatever streams. The
	 * streams may have to be waited for: not with the lock. */
	if (launch.after)
		result = engine_stream_wait_mark(stream, launch.after);
	if (result == CUDA_SUCCESS)
		result = queue_submit(stream->queue, launch.command);
	else
		command_drop(&launch.command);
	graph_enter();
	launched(exec, stream, &launch, result);
	graph_leave();
	return result;
}

/* In a stream that captures, the graph becomes a child of the one that is made. */
static CUresult capture_launch(CUgraphExec exec, struct CUstream_st *stream)
{
	graph_enter();
	CUresult result = exec_check(exec);
	CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
	if (result == CUDA_SUCCESS)
		node.graph.graph = exec->graph;
	graph_leave();
	return result == CUDA_SUCCESS ? capture_node(stream, &node, NULL) : result;
}

static CUresult launch_in(CUgraphExec exec, CUstream given, bool per_thread)
{
	struct CUstream_st *stream;
	SIM_TRY(stream_enter(given, per_thread, &stream));
	return stream_captures(stream) ? capture_launch(exec, stream) : exec_launch(exec, stream);
}

CUresult cuGraphLaunch(CUgraphExec hGraph, CUstream hStream)
{
	return launch_in(hGraph, hStream, LEGACY);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream)
{
	return launch_in(hGraphExec, hStream, PER_THREAD);
}

/* Memory is all that has to be brought to the card before a launch. */
static CUresult upload_in(CUgraphExec exec, CUstream given, bool per_thread)
{
	struct CUstream_st *stream;
	SIM_TRY(stream_enter(given, per_thread, &stream));
	SIM_TRY(capture_forbids(stream));
	graph_enter();
	CUresult result = exec_check(exec);
	if (result == CUDA_SUCCESS)
		result = memory_prepare(exec->graph, false, false);
	graph_leave();
	return result;
}

CUresult cuGraphUpload(CUgraphExec hGraph, CUstream hStream)
{
	return upload_in(hGraph, hStream, LEGACY);
}

CUresult cuGraphUpload_ptsz(CUgraphExec hGraphExec, CUstream hStream)
{
	return upload_in(hGraphExec, hStream, PER_THREAD);
}
