/* SPDX-License-Identifier: Apache-2.0
 *
 * Executable graphs: a graph's nodes as one program, done one after the other. Branches
 * that could run beside each other do not: their kernels would share the card anyway.
 */
#include <stdlib.h>
#include <string.h>

#include "graph.h"

#define EXEC_FLAGS                                                                                                      \
	(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)

CUresult exec_check(CUgraphExec exec)
{
	return sim_is(exec, SIM_GRAPH_EXEC) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- building ---------------------------------------------------------------------------- */

struct build {
	struct CUgraphExec_st *exec;
	struct program *program;
	unsigned room;
	struct sim_device *device; /* that nodes need */
	struct graph_event *event;
	CUgraphInstantiateResult why;
	struct CUgraphNode_st *at;
};

static CUresult emit(struct build *build, struct command command)
{
	struct program *program = build->program;
	if (program->count == build->room) {
		unsigned room = build->room ? 2 * build->room : 16;
		struct program *grown = realloc(program, sizeof(*program) + room * sizeof(command));
		if (!grown) {
			command_drop(&command);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		build->program = program = grown;
		build->room = room;
	}
	if (command.kind == COMMAND_KERNEL)
		program->work += command.nanoseconds;
	program->slow |= command.slow;
	program->command[program->count++] = command;
	return CUDA_SUCCESS;
}

static CUresult emit_event(struct build *build, CUevent event, bool record)
{
	SIM_TRY(event_check(event));
	unsigned place = build->program->moments;
	struct graph_event *grown = realloc(build->event, (place + 1) * sizeof(*grown));
	if (!grown)
		return CUDA_ERROR_OUT_OF_MEMORY;
	build->event = grown;
	grown[place] = (struct graph_event){.event = event, .id = event->handle.id, .record = record};
	build->program->moments++;
	return emit(build, (struct command){.kind = record ? COMMAND_RECORD : COMMAND_WAIT, .nanoseconds = place});
}

static CUresult build_graph(struct build *build, const struct CUgraph_st *graph);

/* Nothing runs on the card that could set a condition: it is what it starts with. */
static CUresult build_conditional(struct build *build, const struct CUgraphNode_st *node)
{
	const CUDA_CONDITIONAL_NODE_PARAMS *params = &node->params.conditional;
	const struct CUgraph_st *graph = build->exec->graph;
	const struct conditional *conditional = graph->conditionals;
	while (conditional && conditional->handle != params->handle)
		conditional = conditional->next;
	for (graph = node->graph; !conditional && graph; graph = graph->parent ? graph->parent->graph : NULL)
		for (conditional = graph->conditionals; conditional && conditional->handle != params->handle;)
			conditional = conditional->next;
	SIM_INVALID_IF(!conditional);
	unsigned value = conditional->flags & CU_GRAPH_COND_ASSIGN_DEFAULT ? conditional->value : 0;
	unsigned body = params->type == CU_GRAPH_COND_TYPE_SWITCH ? value : value ? 0 : 1;
	if (params->type == CU_GRAPH_COND_TYPE_WHILE) {
		/* It would never end. */
		if (value)
			build->why = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
		return value ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
	}
	return body < node->bodies ? build_graph(build, node->body[body]) : CUDA_SUCCESS;
}

static CUresult build_node(struct build *build, struct CUgraphNode_st *node)
{
	struct command command;
	build->at = node;
	if (node->disabled)
		return CUDA_SUCCESS;
	if (node->context) {
		/* One stream is on one device. */
		if (build->device && build->device != node->context->device) {
			build->why = CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED;
			return CUDA_ERROR_NOT_SUPPORTED;
		}
		build->device = node->context->device;
	}
	switch (node->params.type) {
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return build_graph(build, node->body[0]);
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return build_conditional(build, node);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return emit_event(build, node->params.eventRecord.event, true);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return emit_event(build, node->params.eventWait.event, false);
	default:
		SIM_TRY(params_command(node, &command));
		return command.kind == COMMAND_EMPTY ? CUDA_SUCCESS : emit(build, command);
	}
}

static CUresult build_graph(struct build *build, const struct CUgraph_st *graph)
{
	struct CUgraphNode_st **sorted = malloc((graph->count + 1) * sizeof(struct CUgraphNode_st *));
	if (!sorted)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = graph_sort(graph, sorted, &build->at);
	if (result != CUDA_SUCCESS)
		build->why = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
	for (size_t i = 0; result == CUDA_SUCCESS && i < graph->count; i++)
		result = build_node(build, sorted[i]);
	free(sorted);
	return result;
}

CUresult exec_build(struct CUgraphExec_st *exec, CUgraphInstantiateResult *why, struct CUgraphNode_st **at)
{
	struct build build = {.exec = exec, .program = calloc(1, sizeof(struct program)), .why = CUDA_GRAPH_INSTANTIATE_ERROR};
	if (!build.program)
		return CUDA_ERROR_OUT_OF_MEMORY;
	build.program->references = 1;
	CUresult result = build_graph(&build, exec->graph);
	if (result != CUDA_SUCCESS) {
		program_put(build.program);
		free(build.event);
		*why = build.why;
		*at = build.at;
		return result;
	}
	program_put(exec->program);
	free(exec->event);
	exec->program = build.program;
	exec->event = build.event;
	exec->device = build.device;
	return CUDA_SUCCESS;
}

/* ---- making and ending ------------------------------------------------------------------------ */

static void exec_free(struct CUgraphExec_st *exec)
{
	program_put(exec->program);
	free(exec->event);
	if (exec->source && sim_is(exec->source, SIM_GRAPH) && exec->source->executable == exec)
		exec->source->executable = NULL;
	if (exec->graph) {
		memory_detach(exec->graph);
		graph_free(exec->graph);
	}
	sim_delete(exec);
}

static CUresult make(struct CUgraph_st *graph, unsigned long long flags, struct CUgraphExec_st **made, CUgraphInstantiateResult *why,
		     CUgraphNode *at)
{
	struct CUctx_st *context;
	SIM_TRY(sim_current(&context));
	SIM_TRY(graph_check(graph));
	bool memory = graph_has_memory(graph);
	/* Its addresses can be in use once only. */
	if (memory && graph->executable)
		return CUDA_ERROR_NOT_SUPPORTED;
	struct CUgraphExec_st *exec = sim_new(SIM_GRAPH_EXEC, sizeof(*exec));
	if (!exec)
		return CUDA_ERROR_OUT_OF_MEMORY;
	exec->context = context;
	exec->flags = flags;
	struct CUgraphNode_st *where = NULL;
	CUresult result = graph_copy(graph, true, &exec->graph);
	if (result == CUDA_SUCCESS) {
		memory_attach(exec->graph);
		result = exec_build(exec, why, &where);
	}
	if (result != CUDA_SUCCESS) {
		/* The node that the program knows. */
		for (size_t i = 0; where && i < graph->count; i++)
			if (graph->node[i]->handle.id == where->copied_from)
				*at = graph->node[i];
		exec_free(exec);
		return result;
	}
	if (memory) {
		exec->source = graph;
		graph->executable = exec;
	}
	*made = exec;
	return CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *handle, CUgraph graph, unsigned long long flags, CUstream upload, bool per_thread,
			    CUgraphInstantiateResult *why, CUgraphNode *at)
{
	CUgraphNode where = NULL;
	struct CUgraphExec_st *exec = NULL;
	SIM_ENTER();
	SIM_INVALID_IF(!handle || flags & ~(unsigned long long)(EXEC_FLAGS | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH));
	if (at)
		*at = NULL;
	*why = CUDA_GRAPH_INSTANTIATE_ERROR;
	/* Launches from the card. */
	if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
		return CUDA_ERROR_NOT_SUPPORTED;
	graph_enter();
	CUresult result = make(graph, flags, &exec, why, &where);
	graph_leave();
	if (at)
		*at = where;
	if (result == CUDA_SUCCESS && flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)
		result = per_thread ? cuGraphUpload_ptsz(exec, upload) : cuGraphUpload(exec, upload);
	if (result != CUDA_SUCCESS) {
		if (exec)
			cuGraphExecDestroy(exec);
		return result;
	}
	*why = CUDA_GRAPH_INSTANTIATE_SUCCESS;
	*handle = exec;
	return CUDA_SUCCESS;
}

static CUresult instantiate_with_log(CUgraphExec *exec, CUgraph graph, CUgraphNode *at, char *log, size_t size)
{
	CUgraphInstantiateResult why;
	if (log && size > 0)
		*log = '\0';
	return instantiate(exec, graph, 0, NULL, LEGACY, &why, at);
}

CUresult cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer, size_t bufferSize)
{
	return instantiate_with_log(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer, size_t bufferSize)
{
	return instantiate_with_log(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)
{
	CUgraphInstantiateResult why;
	/* There is no stream to upload in. */
	SIM_INVALID_IF(flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
	return instantiate(phGraphExec, hGraph, flags, NULL, LEGACY, &why, NULL);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS *p = instantiateParams;
	SIM_INVALID_IF(!p);
	return instantiate(phGraphExec, hGraph, p->flags, p->hUploadStream, LEGACY, &p->result_out, &p->hErrNode_out);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS *p = instantiateParams;
	SIM_INVALID_IF(!p);
	return instantiate(phGraphExec, hGraph, p->flags, p->hUploadStream, PER_THREAD, &p->result_out, &p->hErrNode_out);
}

/* What was launched goes on: it has the program for itself. */
static CUresult destroy(CUgraphExec exec)
{
	SIM_TRY(exec_check(exec));
	exec_free(exec);
	return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec)
{
	GRAPH_LOCKED(destroy(hGraphExec));
}

CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t *flags)
{
	SIM_ENTER();
	SIM_TRY(exec_check(hGraphExec));
	SIM_INVALID_IF(!flags);
	*flags = hGraphExec->flags;
	return CUDA_SUCCESS;
}
