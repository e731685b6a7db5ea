/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions that make graphs and nodes, copy them and end them.
 */
#include <stdlib.h>
#include <string.h>

#include "graph.h"

/* ---- graphs -------------------------------------------------------------------------------- */

static CUresult create(CUgraph *handle, unsigned flags)
{
	struct CUgraph_st *graph;
	SIM_INVALID_IF(!handle || flags != 0);
	SIM_TRY(graph_new(&graph));
	*handle = graph;
	return CUDA_SUCCESS;
}

static CUresult destroy(CUgraph graph)
{
	SIM_TRY(graph_check(graph));
	/* That of a node ends with the node. */
	SIM_INVALID_IF(graph->parent);
	graph_free(graph);
	return CUDA_SUCCESS;
}

static CUresult clone_graph(CUgraph *handle, CUgraph original)
{
	struct CUgraph_st *graph;
	SIM_INVALID_IF(!handle);
	SIM_TRY(graph_check(original));
	SIM_TRY(graph_copy(original, false, &graph));
	*handle = graph;
	return CUDA_SUCCESS;
}

static CUresult find_in_clone(CUgraphNode *found, CUgraphNode original, CUgraph graph)
{
	SIM_INVALID_IF(!found);
	SIM_TRY(node_check(original));
	SIM_TRY(graph_check(graph));
	*found = graph_find_copy(graph, original);
	SIM_INVALID_IF(!*found);
	return CUDA_SUCCESS;
}

static CUresult destroy_node(CUgraphNode node)
{
	SIM_TRY(node_check(node));
	/* Others rely on what memory nodes do. */
	if (graph_has_memory(node->graph))
		return CUDA_ERROR_NOT_SUPPORTED;
	node_free(node);
	return CUDA_SUCCESS;
}

static CUresult create_conditional(CUgraphConditionalHandle *handle, CUgraph graph, unsigned value, unsigned flags)
{
	static CUgraphConditionalHandle last; /* under the lock */
	SIM_INVALID_IF(!handle || flags & ~(unsigned)CU_GRAPH_COND_ASSIGN_DEFAULT);
	SIM_TRY(graph_check(graph));
	struct conditional *conditional = calloc(1, sizeof(*conditional));
	if (!conditional)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*conditional = (struct conditional){.next = graph->conditionals, .handle = ++last, .value = value, .flags = flags};
	graph->conditionals = conditional;
	*handle = last;
	return CUDA_SUCCESS;
}

CUresult cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
	GRAPH_LOCKED(create(phGraph, flags));
}

CUresult cuGraphDestroy(CUgraph hGraph)
{
	GRAPH_LOCKED(destroy(hGraph));
}

CUresult cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
	GRAPH_LOCKED(clone_graph(phGraphClone, originalGraph));
}

CUresult cuGraphNodeFindInClone(CUgraphNode *phNode, CUgraphNode hOriginalNode, CUgraph hClonedGraph)
{
	GRAPH_LOCKED(find_in_clone(phNode, hOriginalNode, hClonedGraph));
}

CUresult cuGraphDestroyNode(CUgraphNode hNode)
{
	GRAPH_LOCKED(destroy_node(hNode));
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *pHandle_out, CUgraph hGraph, CUcontext ctx,
					unsigned int defaultLaunchValue, unsigned int flags)
{
	SIM_INVALID_IF(ctx && !sim_is(ctx, SIM_CONTEXT));
	GRAPH_LOCKED(create_conditional(pHandle_out, hGraph, defaultLaunchValue, flags));
}

/* ---- nodes ---------------------------------------------------------------------------------- */

static CUresult add_locked(CUgraphNode *handle, CUgraph graph, const CUgraphNode *before, const CUgraphEdgeData *data, size_t count,
			   CUgraphNodeParams *params)
{
	struct CUgraphNode_st *node;
	SIM_INVALID_IF(!handle || !params);
	SIM_TRY(graph_check(graph));
	SIM_TRY(node_add(graph, before, data, count, params, &node));
	*handle = node;
	return CUDA_SUCCESS;
}

static CUresult add(CUgraphNode *handle, CUgraph graph, const CUgraphNode *before, size_t count, CUgraphNodeParams *params)
{
	GRAPH_LOCKED(add_locked(handle, graph, before, NULL, count, params));
}

CUresult cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies,
			CUgraphNodeParams *nodeParams)
{
	return add(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

CUresult cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
			   const CUgraphEdgeData *dependencyData, size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	GRAPH_LOCKED(add_locked(phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams));
}

CUresult cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies,
			      const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
	SIM_INVALID_IF(!nodeParams);
	memcpy(&params.kernel, nodeParams, sizeof(*nodeParams)); /* the newer ones only have more */
	return add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies,
				 const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
	SIM_INVALID_IF(!nodeParams);
	memcpy(&params.kernel, nodeParams, sizeof(*nodeParams));
	return add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies,
			      const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
	SIM_INVALID_IF(!copyParams);
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY, .memcpy = {.copyCtx = ctx, .copyParams = *copyParams}};
	return add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

CUresult cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies,
			      const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
	SIM_INVALID_IF(!memsetParams);
	memcpy(&params.memset, memsetParams, sizeof(*memsetParams));
	params.memset.ctx = ctx;
	return add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

CUresult cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies,
			    const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	SIM_INVALID_IF(!nodeParams);
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_HOST, .host = {.fn = nodeParams->fn, .userData = nodeParams->userData}};
	return add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies,
				  CUgraph childGraph)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = {.graph = childGraph}};
	return add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

CUresult cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
	return add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies,
				   CUevent event)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .eventRecord = {.event = event}};
	return add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies,
				 CUevent event)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .eventWait = {.event = event}};
	return add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies,
				CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
	SIM_INVALID_IF(!nodeParams);
	memcpy(&params.alloc, nodeParams, sizeof(*nodeParams));
	SIM_TRY(add(phGraphNode, hGraph, dependencies, numDependencies, &params));
	nodeParams->dptr = params.alloc.dptr;
	return CUDA_SUCCESS;
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies,
			       CUdeviceptr dptr)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = {.dptr = dptr}};
	return add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies,
				  const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP};
	SIM_INVALID_IF(!nodeParams);
	memcpy(&params.memOp, nodeParams, sizeof(*nodeParams));
	return add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}
