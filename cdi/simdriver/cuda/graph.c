/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs and nodes: making, copying and ending them.
 */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

/* Bodies of one conditional node. */
#define BODIES_MAX 32u

pthread_mutex_t graph_lock = PTHREAD_MUTEX_INITIALIZER;

CUresult graph_check(CUgraph graph)
{
	return sim_is(graph, SIM_GRAPH) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult node_check(CUgraphNode node)
{
	return sim_is(node, SIM_GRAPH_NODE) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult graph_new(struct CUgraph_st **graph)
{
	*graph = sim_new(SIM_GRAPH, sizeof(**graph));
	return *graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void node_free(struct CUgraphNode_st *node)
{
	while (node->before.count > 0)
		edge_remove(node->before.edge[0].node, node);
	while (node->after.count > 0)
		edge_remove(node, node->after.edge[0].node);
	free(node->before.edge);
	free(node->after.edge);
	for (unsigned i = 0; i < node->bodies; i++)
		graph_free(node->body[i]);
	free(node->body);
	if (node->memory)
		memory_put(node->memory);
	free(node->owned);
	struct CUgraph_st *graph = node->graph;
	for (size_t i = 0; i < graph->count; i++)
		if (graph->node[i] == node) {
			memmove(&graph->node[i], &graph->node[i + 1], (graph->count - i - 1) * sizeof(struct CUgraphNode_st *));
			graph->count--;
			break;
		}
	sim_delete(node);
}

void graph_free(struct CUgraph_st *graph)
{
	if (!graph)
		return;
	while (graph->count > 0)
		node_free(graph->node[graph->count - 1]);
	free(graph->node);
	while (graph->conditionals) {
		struct conditional *next = graph->conditionals->next;
		free(graph->conditionals);
		graph->conditionals = next;
	}
	users_release(graph->users);
	sim_delete(graph);
}

bool graph_has_memory(const struct CUgraph_st *graph)
{
	for (size_t i = 0; i < graph->count; i++) {
		const struct CUgraphNode_st *node = graph->node[i];
		if (node->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->params.type == CU_GRAPH_NODE_TYPE_MEM_FREE)
			return true;
		for (unsigned k = 0; k < node->bodies; k++)
			if (graph_has_memory(node->body[k]))
				return true;
	}
	return false;
}

/* ---- nodes ------------------------------------------------------------------------------------ */

static CUresult node_new(struct CUgraph_st *graph, struct CUgraphNode_st **made)
{
	if (graph->count == graph->room) {
		size_t room = graph->room ? 2 * graph->room : 16;
		struct CUgraphNode_st **grown = realloc(graph->node, room * sizeof(struct CUgraphNode_st *));
		if (!grown)
			return CUDA_ERROR_OUT_OF_MEMORY;
		graph->node = grown;
		graph->room = room;
	}
	struct CUgraphNode_st *node = sim_new(SIM_GRAPH_NODE, sizeof(*node));
	if (!node)
		return CUDA_ERROR_OUT_OF_MEMORY;
	node->graph = graph;
	node->params.type = CU_GRAPH_NODE_TYPE_EMPTY;
	graph->node[graph->count++] = node;
	*made = node;
	return CUDA_SUCCESS;
}

static CUresult bodies_new(struct CUgraphNode_st *node, unsigned count)
{
	node->body = calloc(count, sizeof(struct CUgraph_st *));
	if (!node->body)
		return CUDA_ERROR_OUT_OF_MEMORY;
	node->bodies = count;
	return CUDA_SUCCESS;
}

static struct conditional *find_conditional(const struct CUgraph_st *graph, CUgraphConditionalHandle handle)
{
	struct conditional *found = graph->conditionals;
	while (found && found->handle != handle)
		found = found->next;
	return found;
}

/* A conditional node has graphs of its own, which the program fills. */
static CUresult add_bodies(struct CUgraphNode_st *node, CUDA_CONDITIONAL_NODE_PARAMS *params)
{
	/* The handle belongs to the outermost graph, or to the one that the node is in. */
	const struct CUgraph_st *graph = node->graph;
	struct conditional *conditional = find_conditional(graph, params->handle);
	while (!conditional && graph->parent) {
		graph = graph->parent->graph;
		conditional = find_conditional(graph, params->handle);
	}
	SIM_INVALID_IF(!conditional || conditional->used || params->size == 0 || params->size > BODIES_MAX);
	SIM_INVALID_IF(params->type > CU_GRAPH_COND_TYPE_SWITCH);
	SIM_INVALID_IF(params->type == CU_GRAPH_COND_TYPE_WHILE && params->size != 1);
	SIM_INVALID_IF(params->type == CU_GRAPH_COND_TYPE_IF && params->size > 2);
	SIM_TRY(bodies_new(node, params->size));
	for (unsigned i = 0; i < params->size; i++) {
		SIM_TRY(graph_new(&node->body[i]));
		node->body[i]->parent = node;
	}
	conditional->used = true;
	params->phGraph_out = node->body;
	return CUDA_SUCCESS;
}

static CUresult add_child(struct CUgraphNode_st *node, CUgraph child, bool executable)
{
	SIM_TRY(graph_check(child));
	for (const struct CUgraphNode_st *parent = node; parent; parent = parent->graph->parent)
		SIM_INVALID_IF(parent->graph == child);
	SIM_TRY(bodies_new(node, 1));
	SIM_TRY(graph_copy(child, executable, &node->body[0]));
	node->body[0]->parent = node;
	return CUDA_SUCCESS;
}

/* An address is freed once in a graph. */
static CUresult check_free(const struct CUgraph_st *graph, CUdeviceptr address)
{
	SIM_INVALID_IF(!memory_known(address));
	for (size_t i = 0; i < graph->count; i++)
		SIM_INVALID_IF(graph->node[i]->params.type == CU_GRAPH_NODE_TYPE_MEM_FREE && graph->node[i]->params.free.dptr == address);
	return CUDA_SUCCESS;
}

/* What a new node needs besides its parameters. */
static CUresult equip(struct CUgraphNode_st *node, CUgraphNodeParams *params, struct CUctx_st *context)
{
	switch (params->type) {
	case CU_GRAPH_NODE_TYPE_GRAPH:
		SIM_TRY(add_child(node, params->graph.graph, false));
		break;
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		SIM_TRY(add_bodies(node, &params->conditional));
		break;
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		/* Memory nodes are in outermost graphs only. */
		if (node->graph->parent)
			return CUDA_ERROR_NOT_SUPPORTED;
		SIM_TRY(memory_make(&params->alloc, context, &node->memory));
		params->alloc.dptr = node->memory->address;
		break;
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		if (node->graph->parent)
			return CUDA_ERROR_NOT_SUPPORTED;
		SIM_TRY(check_free(node->graph, params->free.dptr));
		break;
	default:
		break;
	}
	return params_set(node, params, context);
}

CUresult node_add(struct CUgraph_st *graph, const CUgraphNode *before, const CUgraphEdgeData *data, size_t count,
		  CUgraphNodeParams *params, struct CUgraphNode_st **made)
{
	struct CUctx_st *context = NULL;
	struct CUgraphNode_st *node;
	SIM_INVALID_IF(count > 0 && !before);
	for (size_t i = 0; i < count; i++) {
		SIM_TRY(node_check(before[i]));
		SIM_INVALID_IF(before[i]->graph != graph);
	}
	sim_current(&context);
	SIM_TRY(node_new(graph, &node));
	CUresult result = equip(node, params, context);
	for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
		result = edge_add(before[i], node, data ? &data[i] : NULL);
	if (result != CUDA_SUCCESS) {
		node_free(node);
		return result;
	}
	*made = node;
	return CUDA_SUCCESS;
}

/* ---- copies ------------------------------------------------------------------------------------- */

static CUresult copy_node(const struct CUgraphNode_st *from, struct CUgraph_st *graph, bool executable)
{
	struct CUgraphNode_st *node;
	SIM_TRY(node_new(graph, &node));
	node->copied_from = from->handle.id;
	node->priority = from->priority;
	node->cooperative = from->cooperative;
	node->window = from->window;
	if (from->bodies > 0) {
		SIM_TRY(bodies_new(node, from->bodies));
		for (unsigned i = 0; i < from->bodies; i++) {
			SIM_TRY(graph_copy(from->body[i], executable, &node->body[i]));
			node->body[i]->parent = node;
		}
	}
	if (from->memory)
		node->memory = memory_get(from->memory);
	return params_set(node, &from->params, from->context);
}

static CUresult copy_into(const struct CUgraph_st *from, bool executable, struct CUgraph_st *to)
{
	for (size_t i = 0; i < from->count; i++) {
		from->node[i]->waits = i;
		SIM_TRY(copy_node(from->node[i], to, executable));
	}
	for (size_t i = 0; i < from->count; i++)
		for (size_t k = 0; k < from->node[i]->before.count; k++) {
			const struct edge *edge = &from->node[i]->before.edge[k];
			SIM_TRY(edge_add(to->node[edge->node->waits], to->node[i], &edge->data));
		}
	for (const struct conditional *conditional = from->conditionals; conditional; conditional = conditional->next) {
		struct conditional *copy = malloc(sizeof(*copy));
		if (!copy)
			return CUDA_ERROR_OUT_OF_MEMORY;
		*copy = *conditional;
		copy->next = to->conditionals;
		to->conditionals = copy;
	}
	return users_copy(from->users, &to->users);
}

CUresult graph_copy(const struct CUgraph_st *from, bool executable, struct CUgraph_st **to)
{
	if (!executable && graph_has_memory(from))
		return CUDA_ERROR_NOT_SUPPORTED;
	SIM_TRY(graph_new(to));
	CUresult result = copy_into(from, executable, *to);
	if (result != CUDA_SUCCESS) {
		graph_free(*to);
		*to = NULL;
	}
	return result;
}

struct CUgraphNode_st *graph_find_copy(const struct CUgraph_st *graph, const struct CUgraphNode_st *original)
{
	for (size_t i = 0; i < graph->count; i++) {
		if (graph->node[i]->copied_from == original->handle.id)
			return graph->node[i];
		for (unsigned k = 0; k < graph->node[i]->bodies; k++) {
			struct CUgraphNode_st *found = graph_find_copy(graph->node[i]->body[k], original);
			if (found)
				return found;
		}
	}
	return NULL;
}
