/* SPDX-License-Identifier: Apache-2.0
 *
 * Changing executable graphs: single nodes, or all of them after another graph of the
 * same shape.
 */
#include <stdlib.h>
#include <string.h>

#include "graph.h"

/* ---- single nodes ------------------------------------------------------------------------------- */

/* The executable graph's copy of a node. */
static CUresult find(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type, struct CUgraphNode_st **copy)
{
	SIM_TRY(exec_check(exec));
	SIM_TRY(node_check(node));
	*copy = graph_find_copy(exec->graph, node);
	SIM_INVALID_IF(!*copy || (*copy)->params.type != type);
	return CUDA_SUCCESS;
}

static CUresult rebuild(CUgraphExec exec)
{
	CUgraphInstantiateResult why;
	struct CUgraphNode_st *at;
	return exec_build(exec, &why, &at);
}

static CUresult set_locked(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams *params)
{
	struct CUgraphNode_st *copy;
	struct CUctx_st *context = NULL;
	SIM_TRY(find(exec, node, params->type, &copy));
	switch (params->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
	case CU_GRAPH_NODE_TYPE_MEMCPY:
	case CU_GRAPH_NODE_TYPE_MEMSET:
	case CU_GRAPH_NODE_TYPE_HOST:
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		break;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	sim_current(&context);
	SIM_TRY(params_set(copy, params, copy->context ? copy->context : context));
	return rebuild(exec);
}

static CUresult set(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams *params)
{
	GRAPH_LOCKED(set_locked(exec, node, params));
}

static CUresult set_part(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type, const void *params, size_t bytes)
{
	CUgraphNodeParams wrapped = {.type = type};
	SIM_INVALID_IF(!params);
	memcpy(wrapped.reserved1, params, bytes);
	return set(exec, node, &wrapped);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	return set_part(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams, sizeof(*nodeParams));
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	return set_part(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams, sizeof(*nodeParams));
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	return set_part(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_HOST, nodeParams, sizeof(*nodeParams));
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
	return set_part(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, nodeParams, sizeof(*nodeParams));
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event)
{
	return set_part(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &event, sizeof(event));
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event)
{
	return set_part(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &event, sizeof(event));
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
	SIM_INVALID_IF(!copyParams);
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY, .memcpy = {.copyCtx = ctx, .copyParams = *copyParams}};
	return set(hGraphExec, hNode, &params);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *memsetParams,
					CUcontext ctx)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
	SIM_INVALID_IF(!memsetParams);
	memcpy(&params.memset, memsetParams, sizeof(*memsetParams));
	params.memset.ctx = ctx;
	return set(hGraphExec, hNode, &params);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
	SIM_INVALID_IF(!nodeParams);
	return set(hGraphExec, hNode, nodeParams);
}

/* ---- switching nodes off ---------------------------------------------------------------------------- */

static CUresult find_switchable(CUgraphExec exec, CUgraphNode node, struct CUgraphNode_st **copy)
{
	SIM_TRY(node_check(node));
	CUgraphNodeType type = node->params.type;
	SIM_INVALID_IF(type != CU_GRAPH_NODE_TYPE_KERNEL && type != CU_GRAPH_NODE_TYPE_MEMSET && type != CU_GRAPH_NODE_TYPE_MEMCPY);
	return find(exec, node, type, copy);
}

static CUresult set_enabled(CUgraphExec exec, CUgraphNode node, unsigned enabled)
{
	struct CUgraphNode_st *copy;
	SIM_TRY(find_switchable(exec, node, &copy));
	copy->disabled = !enabled;
	return rebuild(exec);
}

static CUresult get_enabled(CUgraphExec exec, CUgraphNode node, unsigned *enabled)
{
	struct CUgraphNode_st *copy;
	SIM_TRY(find_switchable(exec, node, &copy));
	SIM_INVALID_IF(!enabled);
	*enabled = !copy->disabled;
	return CUDA_SUCCESS;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled)
{
	GRAPH_LOCKED(set_enabled(hGraphExec, hNode, isEnabled));
}

CUresult cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int *isEnabled)
{
	GRAPH_LOCKED(get_enabled(hGraphExec, hNode, isEnabled));
}

/* ---- all nodes ------------------------------------------------------------------------------------------ */

/* Nodes correspond by the order in which they were made. */
static CUgraphExecUpdateResult compare(const struct CUgraph_st *now, const struct CUgraph_st *then, CUgraphExecUpdateResultInfo *info);

static size_t place_of(const struct CUgraphNode_st *node)
{
	size_t place = 0;
	while (node->graph->node[place] != node)
		place++;
	return place;
}

static bool same_edges(const struct CUgraphNode_st *now, const struct CUgraphNode_st *then, CUgraphExecUpdateResultInfo *info)
{
	if (now->before.count != then->before.count)
		return false;
	for (size_t i = 0; i < now->before.count; i++) {
		const struct CUgraphNode_st *before = now->graph->node[place_of(then->before.edge[i].node)];
		size_t k = 0;
		while (k < now->before.count && now->before.edge[k].node != before)
			k++;
		if (k == now->before.count) {
			info->errorFromNode = then->before.edge[i].node;
			return false;
		}
	}
	return true;
}

static CUgraphExecUpdateResult compare_node(const struct CUgraphNode_st *now, const struct CUgraphNode_st *then,
					    CUgraphExecUpdateResultInfo *info)
{
	if (now->params.type != then->params.type)
		return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
	if (!same_edges(now, then, info))
		return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	/* Memory and conditions are as they were instantiated. */
	if (now->memory || now->params.type == CU_GRAPH_NODE_TYPE_MEM_FREE || now->params.type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
		return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
	if (now->context != then->context)
		return now->params.type == CU_GRAPH_NODE_TYPE_KERNEL ? CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE :
								      CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
	for (unsigned i = 0; i < now->bodies; i++) {
		CUgraphExecUpdateResult result = compare(now->body[i], then->body[i], info);
		if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
			return result;
	}
	return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

static CUgraphExecUpdateResult compare(const struct CUgraph_st *now, const struct CUgraph_st *then, CUgraphExecUpdateResultInfo *info)
{
	if (now->count != then->count)
		return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	for (size_t i = 0; i < now->count; i++) {
		CUgraphExecUpdateResult result = compare_node(now->node[i], then->node[i], info);
		if (result == CU_GRAPH_EXEC_UPDATE_SUCCESS)
			continue;
		if (!info->errorNode)
			info->errorNode = then->node[i];
		return result;
	}
	return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

static CUresult take_over(const struct CUgraph_st *now, const struct CUgraph_st *then)
{
	for (size_t i = 0; i < now->count; i++) {
		for (unsigned k = 0; k < now->node[i]->bodies; k++)
			SIM_TRY(take_over(now->node[i]->body[k], then->node[i]->body[k]));
		SIM_TRY(params_set(now->node[i], &then->node[i]->params, then->node[i]->context));
	}
	return CUDA_SUCCESS;
}

static CUresult update(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
	SIM_TRY(exec_check(exec));
	SIM_TRY(graph_check(graph));
	*info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_ERROR};
	info->result = compare(exec->graph, graph, info);
	if (info->result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
		return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
	CUresult result = take_over(exec->graph, graph);
	if (result == CUDA_SUCCESS)
		result = rebuild(exec);
	if (result != CUDA_SUCCESS)
		info->result = CU_GRAPH_EXEC_UPDATE_ERROR;
	return result == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo)
{
	SIM_INVALID_IF(!resultInfo);
	GRAPH_LOCKED(update(hGraphExec, hGraph, resultInfo));
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out, CUgraphExecUpdateResult *updateResult_out)
{
	CUgraphExecUpdateResultInfo info = {.result = CU_GRAPH_EXEC_UPDATE_ERROR};
	SIM_INVALID_IF(!updateResult_out);
	CUresult result = cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);
	if (hErrorNode_out)
		*hErrorNode_out = info.errorNode;
	*updateResult_out = info.result;
	return result;
}

static CUresult set_child(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
	CUgraphExecUpdateResultInfo info = {0};
	struct CUgraphNode_st *copy;
	SIM_TRY(find(exec, node, CU_GRAPH_NODE_TYPE_GRAPH, &copy));
	SIM_TRY(graph_check(child));
	SIM_INVALID_IF(compare(copy->body[0], child, &info) != CU_GRAPH_EXEC_UPDATE_SUCCESS);
	SIM_TRY(take_over(copy->body[0], child));
	return rebuild(exec);
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph)
{
	GRAPH_LOCKED(set_child(hGraphExec, hNode, childGraph));
}
