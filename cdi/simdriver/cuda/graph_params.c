/* SPDX-License-Identifier: Apache-2.0
 *
 * What nodes do: checking it, keeping it, and turning it into commands.
 */
#include <stdlib.h>
#include <string.h>

#include "copy.h"
#include "graph.h"
#include "launch.h"
#include "stream_work.h"

/* ---- kernels ---------------------------------------------------------------------------- */

/* The values of parameters, wherever they were given: an array of pointers, then what they point to. */
static CUresult keep_parameters(CUDA_KERNEL_NODE_PARAMS_v3 *params, const struct sim_kernel *kernel, void **owned)
{
	size_t pointers = kernel->parameters * sizeof(void *);
	uint8_t *block = calloc(1, pointers + kernel->parameter_bytes + 1);
	if (!block)
		return CUDA_ERROR_OUT_OF_MEMORY;
	const uint8_t *packed = NULL;
	for (void **extra = params->extra; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2)
		if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			packed = extra[1];
	for (unsigned i = 0; i < kernel->parameters; i++) {
		const struct sim_parameter *parameter = &kernel->parameter[i];
		uint8_t *value = block + pointers + parameter->offset;
		memcpy(value, packed ? packed + parameter->offset : params->kernelParams[i], parameter->size);
		((void **)(void *)block)[i] = value;
	}
	params->kernelParams = kernel->parameters ? (void **)(void *)block : NULL;
	params->extra = NULL;
	*owned = block;
	return CUDA_SUCCESS;
}

static CUresult set_kernel(struct CUgraphNode_st *node, const CUDA_KERNEL_NODE_PARAMS_v3 *given, struct CUctx_st *context, void **owned)
{
	struct CUfunc_st *function;
	uint64_t nanoseconds;
	SIM_INVALID_IF(given->func && given->kern);
	if (given->ctx) {
		SIM_INVALID_IF(!sim_is(given->ctx, SIM_CONTEXT));
		context = given->ctx;
	}
	if (sim_is(given->func, SIM_FUNCTION))
		context = given->func->context;
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	SIM_TRY(launch_check(given, context, &function, &nanoseconds));
	CUDA_KERNEL_NODE_PARAMS_v3 kept = *given;
	kept.ctx = context;
	SIM_TRY(keep_parameters(&kept, function->kernel, owned));
	node->params.kernel = kept;
	node->context = context;
	return CUDA_SUCCESS;
}

/* ---- memory ------------------------------------------------------------------------------- */

static CUresult context_of(CUcontext given, struct CUctx_st *current, struct CUctx_st **context)
{
	*context = given ? given : current;
	return sim_is(*context, SIM_CONTEXT) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult set_copy(struct CUgraphNode_st *node, const CUDA_MEMCPY_NODE_PARAMS *given, struct CUctx_st *current)
{
	struct CUctx_st *context;
	struct copy *copy;
	SIM_INVALID_IF(given->flags != 0);
	SIM_TRY(context_of(given->copyCtx, current, &context));
	SIM_TRY(copy_make(&given->copyParams, context->device, &copy));
	if (copy)
		copy->job.drop(&copy->job);
	node->params.memcpy = *given;
	node->params.memcpy.copyCtx = context;
	node->context = context;
	return CUDA_SUCCESS;
}

static CUresult set_fill(struct CUgraphNode_st *node, const CUDA_MEMSET_NODE_PARAMS_v2 *given, struct CUctx_st *current)
{
	struct CUctx_st *context;
	struct fill *fill;
	SIM_TRY(context_of(given->ctx, current, &context));
	SIM_TRY(fill_make(given, context->device, &fill));
	free(fill);
	node->params.memset = *given;
	node->params.memset.ctx = context;
	node->context = context;
	return CUDA_SUCCESS;
}

static CUresult set_values(struct CUgraphNode_st *node, const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *given, struct CUctx_st *current,
			   void **owned)
{
	struct CUctx_st *context;
	struct values *values;
	SIM_TRY(context_of(given->ctx, current, &context));
	SIM_TRY(values_make(given->paramArray, given->count, given->flags, &values));
	node->params.memOp = *given;
	node->params.memOp.ctx = context;
	node->params.memOp.paramArray = values->operation;
	node->context = context;
	*owned = values;
	return CUDA_SUCCESS;
}

static CUresult set_alloc(struct CUgraphNode_st *node, const CUDA_MEM_ALLOC_NODE_PARAMS_v2 *given, void **owned)
{
	/* Access of other devices is not modelled, but may be asked again. */
	size_t bytes = given->accessDescCount * sizeof(*given->accessDescs);
	SIM_INVALID_IF(given->accessDescCount > CARD_MAX || (bytes > 0 && !given->accessDescs));
	*owned = malloc(bytes + 1);
	if (!*owned)
		return CUDA_ERROR_OUT_OF_MEMORY;
	node->params.alloc = *given;
	if (bytes > 0)
		node->params.alloc.accessDescs = memcpy(*owned, given->accessDescs, bytes);
	return CUDA_SUCCESS;
}

/* ---- all of them ------------------------------------------------------------------------------ */

CUresult params_set(struct CUgraphNode_st *node, const CUgraphNodeParams *params, struct CUctx_st *context)
{
	void *owned = NULL, *before = node->owned;
	CUresult result = CUDA_SUCCESS;
	switch (params->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		result = set_kernel(node, &params->kernel, context, &owned);
		break;
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		result = set_copy(node, &params->memcpy, context);
		break;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		result = set_fill(node, &params->memset, context);
		break;
	case CU_GRAPH_NODE_TYPE_HOST:
		result = params->host.fn ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
		node->params.host = result == CUDA_SUCCESS ? params->host : node->params.host;
		break;
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		result = event_check(params->eventRecord.event);
		node->params.eventRecord = result == CUDA_SUCCESS ? params->eventRecord : node->params.eventRecord;
		break;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		result = set_values(node, &params->memOp, context, &owned);
		break;
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		result = set_alloc(node, &params->alloc, &owned);
		break;
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		result = memory_known(params->free.dptr) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
		node->params.free = params->free;
		break;
	case CU_GRAPH_NODE_TYPE_GRAPH:
		node->params.graph.graph = node->body[0];
		break;
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		node->params.conditional = params->conditional;
		node->params.conditional.phGraph_out = node->body;
		break;
	case CU_GRAPH_NODE_TYPE_EMPTY:
		break;
	default:
		result = CUDA_ERROR_NOT_SUPPORTED;
		break;
	}
	if (result != CUDA_SUCCESS)
		return result;
	node->params.type = params->type;
	node->owned = owned;
	/* set_values allocates what begins before what it points to. */
	free(before);
	return CUDA_SUCCESS;
}

static void command_of_job(struct command *command, struct job *job)
{
	if (job)
		*command = (struct command){.kind = COMMAND_JOB, .slow = true, .payload = job};
}

CUresult params_command(const struct CUgraphNode_st *node, struct command *command)
{
	struct CUfunc_st *function;
	struct values *values;
	struct copy *copy;
	struct fill *fill;
	struct job *job;

	*command = (struct command){.kind = COMMAND_EMPTY};
	switch (node->params.type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		command->kind = COMMAND_KERNEL;
		return launch_check(&node->params.kernel, node->context, &function, &command->nanoseconds);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		SIM_TRY(copy_make(&node->params.memcpy.copyParams, node->context->device, &copy));
		command_of_job(command, copy ? &copy->job : NULL);
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		SIM_TRY(fill_make(&node->params.memset, node->context->device, &fill));
		command_of_job(command, fill ? &fill->job : NULL);
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_HOST:
		SIM_TRY(host_make(node->params.host.fn, node->params.host.userData, &job));
		command_of_job(command, job);
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		SIM_TRY(values_make(node->params.memOp.paramArray, node->params.memOp.count, node->params.memOp.flags, &values));
		*command = (struct command){.kind = COMMAND_VALUES, .slow = true, .payload = values};
		return CUDA_SUCCESS;
	default: /* takes no time, and does nothing in the stream */
		return CUDA_SUCCESS;
	}
}
