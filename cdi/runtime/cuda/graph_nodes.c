/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "around.h"
#include "graph.h"
#include "zz_generated_hooks.h"

/* Graphs within graphs within graphs: the driver allows no more than a few. */
#define DEEPEST 16

#define BUCKETS 64

/* The bodies of a conditional node, which the driver tells only when it is added. */
struct conditional {
	struct conditional *next;
	CUgraphNode node;
	unsigned int count;
	CUgraph body[];
};

static struct conditional *buckets[BUCKETS];
static struct lock lock;

static struct conditional **find(CUgraphNode node)
{
	struct conditional **link = &buckets[((uintptr_t)node >> 4) % BUCKETS];

	while (*link && (*link)->node != node)
		link = &(*link)->next;
	return link;
}

static void remember(CUgraphNode node, const CUDA_CONDITIONAL_NODE_PARAMS *params)
{
	struct conditional *fresh = malloc(sizeof(*fresh) + params->size * sizeof(fresh->body[0]));
	struct conditional **link, *old;

	if (!fresh || !params->phGraph_out) {
		free(fresh);
		return;
	}
	fresh->node = node;
	fresh->count = params->size;
	for (unsigned int i = 0; i < params->size; i++)
		fresh->body[i] = params->phGraph_out[i];
	lock_take(&lock);
	link = find(node);
	old = *link;
	fresh->next = old ? old->next : *link;
	*link = fresh;
	lock_give(&lock);
	free(old);
}

static CUresult add_up(CUgraph graph, struct need **needs, unsigned int depth);

static CUresult add_bodies(CUgraphNode node, struct need **needs, unsigned int depth)
{
	CUresult result = CUDA_SUCCESS;
	CUgraph body;

	for (unsigned int i = 0; result == CUDA_SUCCESS; i++) {
		struct conditional *known;

		lock_take(&lock);
		known = *find(node);
		body = known && i < known->count ? known->body[i] : NULL;
		lock_give(&lock);
		if (!body)
			break;
		result = add_up(body, needs, depth + 1);
	}
	return result;
}

static void add_allocation(CUgraphNode node, struct need **needs)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params;
	struct card *card;

	if (real_cuGraphMemAllocNodeGetParams(node, &params) != CUDA_SUCCESS ||
	    params.poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return;
	card = card_of(params.poolProps.location.id);
	if (card)
		graph_add_need(needs, card, frames_of(params.bytesize));
}

static CUresult add_node(CUgraphNode node, struct need **needs, unsigned int depth)
{
	CUgraphNodeType type;
	CUgraph child;

	if (real_cuGraphNodeGetType(node, &type) != CUDA_SUCCESS)
		return CUDA_SUCCESS;
	if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		add_allocation(node, needs);
	else if (type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
		return add_bodies(node, needs, depth);
	else if (type == CU_GRAPH_NODE_TYPE_GRAPH && real_cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS)
		return add_up(child, needs, depth + 1);
	return CUDA_SUCCESS;
}

static CUresult add_up(CUgraph graph, struct need **needs, unsigned int depth)
{
	CUresult result = CUDA_SUCCESS;
	CUgraphNode *nodes;
	size_t count = 0;

	/* What lies deeper would not be charged. */
	if (depth > DEEPEST)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (real_cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS || count == 0)
		return CUDA_SUCCESS;
	nodes = calloc(count, sizeof(*nodes));
	if (!nodes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (real_cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS)
		for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
			result = add_node(nodes[i], needs, depth);
	free(nodes);
	return result;
}

CUresult graph_needs(CUgraph graph, struct need **needs)
{
	return add_up(graph, needs, 0);
}

/* A node that allocates takes nothing yet; but it needs a card that the process may use. */
static CUresult permitted(const CUmemPoolProps *properties)
{
	struct card *card;

	if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_SUCCESS;
	card = card_of(properties->location.id);
	return card ? card_refusal(card) : CUDA_SUCCESS;
}

CUresult hook_cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies,
				     CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
	CUresult result = cards_ready();

	if (result == CUDA_SUCCESS && nodeParams)
		result = permitted(&nodeParams->poolProps);

	if (result != CUDA_SUCCESS)
		return result;
	return real_cuGraphAddMemAllocNode(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

static CUresult before_adding(struct around *around, const CUgraphNodeParams *params)
{
	CUresult result = cards_ready();

	if (result == CUDA_SUCCESS && params && params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		result = permitted(&params->alloc.poolProps);
	return result == CUDA_SUCCESS ? around_begin_graph_node(around, params) : result;
}

/* True: once more. */
static bool after_adding(struct around *around, CUresult *result, const CUgraphNode *node, const CUgraphNodeParams *params)
{
	if (*result == CUDA_SUCCESS && node && params && params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
		remember(*node, &params->conditional);
	return around_end_graph_node(around, result);
}

CUresult hook_cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies,
			     CUgraphNodeParams *nodeParams)
{
	struct around around;
	CUresult result = before_adding(&around, nodeParams);

	if (result != CUDA_SUCCESS)
		return result;
	do
		result = real_cuGraphAddNode(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
	while (after_adding(&around, &result, phGraphNode, nodeParams));
	return result;
}

CUresult hook_cuGraphAddNode_v2(enum cuda_hook hook, CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				const CUgraphEdgeData *dependencyData, size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	real_fn_cuGraphAddNode_v2 *real = (real_fn_cuGraphAddNode_v2 *)cuda_real(hook);
	struct around around;
	CUresult result = before_adding(&around, nodeParams);

	if (result != CUDA_SUCCESS)
		return result;
	do
		result = real(phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams);
	while (after_adding(&around, &result, phGraphNode, nodeParams));
	return result;
}
