/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions that read and change what the nodes of a graph do.
 */
#include <string.h>

#include "graph.h"

static CUresult typed(CUgraphNode node, CUgraphNodeType type)
{
	SIM_TRY(node_check(node));
	return node->params.type == type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Copies the beginning of what the node does: older functions know less of it. */
static CUresult get(CUgraphNode node, CUgraphNodeType type, void *params, size_t bytes)
{
	SIM_TRY(typed(node, type));
	SIM_INVALID_IF(!params);
	memcpy(params, node->params.reserved1, bytes);
	return CUDA_SUCCESS;
}

static CUresult get_type(CUgraphNode node, CUgraphNodeType *type)
{
	SIM_TRY(node_check(node));
	SIM_INVALID_IF(!type);
	*type = node->params.type;
	return CUDA_SUCCESS;
}

static CUresult get_copy(CUgraphNode node, CUDA_MEMCPY3D *params)
{
	SIM_TRY(typed(node, CU_GRAPH_NODE_TYPE_MEMCPY));
	SIM_INVALID_IF(!params);
	*params = node->params.memcpy.copyParams;
	return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type)
{
	GRAPH_LOCKED(get_type(hNode, type));
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D *nodeParams)
{
	GRAPH_LOCKED(get_copy(hNode, nodeParams));
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	GRAPH_LOCKED(get(hNode, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams, sizeof(*nodeParams)));
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	GRAPH_LOCKED(get(hNode, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams, sizeof(*nodeParams)));
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
	GRAPH_LOCKED(get(hNode, CU_GRAPH_NODE_TYPE_MEMSET, nodeParams, sizeof(*nodeParams)));
}

CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS *nodeParams)
{
	GRAPH_LOCKED(get(hNode, CU_GRAPH_NODE_TYPE_HOST, nodeParams, sizeof(*nodeParams)));
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS *params_out)
{
	GRAPH_LOCKED(get(hNode, CU_GRAPH_NODE_TYPE_MEM_ALLOC, params_out, sizeof(*params_out)));
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr *dptr_out)
{
	GRAPH_LOCKED(get(hNode, CU_GRAPH_NODE_TYPE_MEM_FREE, dptr_out, sizeof(*dptr_out)));
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode, CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams_out)
{
	GRAPH_LOCKED(get(hNode, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, nodeParams_out, sizeof(*nodeParams_out)));
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph)
{
	GRAPH_LOCKED(get(hNode, CU_GRAPH_NODE_TYPE_GRAPH, phGraph, sizeof(*phGraph)));
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent *event_out)
{
	GRAPH_LOCKED(get(hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event_out, sizeof(*event_out)));
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent *event_out)
{
	GRAPH_LOCKED(get(hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event_out, sizeof(*event_out)));
}

/* ---- changing ------------------------------------------------------------------------------- */

static CUresult set_locked(CUgraphNode node, const CUgraphNodeParams *params)
{
	struct CUctx_st *context = NULL;
	SIM_TRY(typed(node, params->type));
	switch (params->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
	case CU_GRAPH_NODE_TYPE_MEMCPY:
	case CU_GRAPH_NODE_TYPE_MEMSET:
	case CU_GRAPH_NODE_TYPE_HOST:
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		break;
	default: /* graphs, and memory: others rely on them */
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	sim_current(&context);
	return params_set(node, params, node->context ? node->context : context);
}

static CUresult set(CUgraphNode node, const CUgraphNodeParams *params)
{
	GRAPH_LOCKED(set_locked(node, params));
}

/* The parameters of functions that are made for one kind of node; a program's structures may be those of an
 * older release, which are shorter. */
static CUgraphNodeParams wrap(CUgraphNodeType type, const void *params, size_t bytes)
{
	CUgraphNodeParams wrapped = {.type = type};
	memcpy(wrapped.reserved1, params, bytes);
	return wrapped;
}

static CUresult set_part(CUgraphNode node, CUgraphNodeType type, const void *params, size_t bytes)
{
	SIM_INVALID_IF(!params);
	CUgraphNodeParams wrapped = wrap(type, params, bytes);
	return set(node, &wrapped);
}

CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
	SIM_INVALID_IF(!nodeParams);
	return set(hNode, nodeParams);
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams)
{
	SIM_INVALID_IF(!nodeParams);
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY, .memcpy = {.copyParams = *nodeParams}};
	return set(hNode, &params);
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	return set_part(hNode, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams, sizeof(*nodeParams));
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	return set_part(hNode, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams, sizeof(*nodeParams));
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
	return set_part(hNode, CU_GRAPH_NODE_TYPE_MEMSET, nodeParams, sizeof(*nodeParams));
}

CUresult cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	return set_part(hNode, CU_GRAPH_NODE_TYPE_HOST, nodeParams, sizeof(*nodeParams));
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode hNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
	return set_part(hNode, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, nodeParams, sizeof(*nodeParams));
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode hNode, CUevent event)
{
	return set_part(hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &event, sizeof(event));
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event)
{
	return set_part(hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &event, sizeof(event));
}

/* ---- attributes of kernel nodes ----------------------------------------------------------------- */

static CUresult get_attribute(CUgraphNode node, CUkernelNodeAttrID id, CUkernelNodeAttrValue *value)
{
	SIM_TRY(typed(node, CU_GRAPH_NODE_TYPE_KERNEL));
	SIM_INVALID_IF(!value);
	switch (id) {
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		value->priority = node->priority;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		value->cooperative = node->cooperative;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		value->accessPolicyWindow = node->window;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

static CUresult set_attribute(CUgraphNode node, CUkernelNodeAttrID id, const CUkernelNodeAttrValue *value)
{
	SIM_TRY(typed(node, CU_GRAPH_NODE_TYPE_KERNEL));
	SIM_INVALID_IF(!value);
	switch (id) {
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		SIM_INVALID_IF(value->priority > PRIORITY_LEAST || value->priority < PRIORITY_GREATEST);
		node->priority = value->priority;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		node->cooperative = value->cooperative;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		node->window = value->accessPolicyWindow;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

static CUresult copy_attributes(CUgraphNode to, CUgraphNode from)
{
	SIM_TRY(typed(to, CU_GRAPH_NODE_TYPE_KERNEL));
	SIM_TRY(typed(from, CU_GRAPH_NODE_TYPE_KERNEL));
	to->priority = from->priority;
	to->cooperative = from->cooperative;
	to->window = from->window;
	return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr, CUkernelNodeAttrValue *value_out)
{
	GRAPH_LOCKED(get_attribute(hNode, attr, value_out));
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr, const CUkernelNodeAttrValue *value)
{
	GRAPH_LOCKED(set_attribute(hNode, attr, value));
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src)
{
	GRAPH_LOCKED(copy_attributes(dst, src));
}
