/* SPDX-License-Identifier: Apache-2.0
 *
 * What nodes depend on.
 */
#include <stdlib.h>
#include <string.h>

#include "graph.h"

/* ---- edges ------------------------------------------------------------------------------ */

static CUresult append(struct edges *edges, struct CUgraphNode_st *node, const CUgraphEdgeData *data)
{
	if (edges->count == edges->room) {
		size_t room = edges->room ? 2 * edges->room : 4;
		struct edge *grown = realloc(edges->edge, room * sizeof(*grown));
		if (!grown)
			return CUDA_ERROR_OUT_OF_MEMORY;
		edges->edge = grown;
		edges->room = room;
	}
	edges->edge[edges->count++] = (struct edge){.node = node, .data = data ? *data : (CUgraphEdgeData){0}};
	return CUDA_SUCCESS;
}

static struct edge *find(const struct edges *edges, const struct CUgraphNode_st *node)
{
	for (size_t i = 0; i < edges->count; i++)
		if (edges->edge[i].node == node)
			return &edges->edge[i];
	return NULL;
}

static void take_out(struct edges *edges, struct edge *edge)
{
	size_t after = (size_t)(edges->edge + edges->count - edge) - 1;
	memmove(edge, edge + 1, after * sizeof(*edge));
	edges->count--;
}

static bool known_data(const CUgraphEdgeData *data)
{
	return !data || (data->type <= CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC && data->from_port <= CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER &&
			 data->to_port == 0);
}

CUresult edge_add(struct CUgraphNode_st *from, struct CUgraphNode_st *to, const CUgraphEdgeData *data)
{
	SIM_INVALID_IF(from == to || from->graph != to->graph || find(&from->after, to) || !known_data(data));
	SIM_TRY(append(&from->after, to, data));
	CUresult result = append(&to->before, from, data);
	if (result != CUDA_SUCCESS)
		from->after.count--;
	return result;
}

bool edge_remove(struct CUgraphNode_st *from, struct CUgraphNode_st *to)
{
	struct edge *out = find(&from->after, to);
	if (!out)
		return false;
	take_out(&from->after, out);
	take_out(&to->before, find(&to->before, from));
	return true;
}

CUresult graph_sort(const struct CUgraph_st *graph, struct CUgraphNode_st **sorted, struct CUgraphNode_st **at)
{
	size_t done = 0, found = 0;
	for (size_t i = 0; i < graph->count; i++) {
		graph->node[i]->waits = graph->node[i]->before.count;
		if (graph->node[i]->waits == 0)
			sorted[found++] = graph->node[i];
	}
	for (; done < found; done++)
		for (size_t i = 0; i < sorted[done]->after.count; i++) {
			struct CUgraphNode_st *next = sorted[done]->after.edge[i].node;
			if (--next->waits == 0)
				sorted[found++] = next;
		}
	for (size_t i = 0; found < graph->count && i < graph->count; i++)
		if (graph->node[i]->waits > 0) {
			*at = graph->node[i];
			return CUDA_ERROR_INVALID_VALUE;
		}
	return CUDA_SUCCESS;
}

/* ---- changing them ------------------------------------------------------------------------- */

static CUresult change(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data, size_t count, bool add)
{
	SIM_TRY(graph_check(graph));
	SIM_INVALID_IF(count > 0 && (!from || !to));
	/* Edges of memory nodes stay as they are. */
	if (count > 0 && graph_has_memory(graph) && !add)
		return CUDA_ERROR_NOT_SUPPORTED;
	for (size_t i = 0; i < count; i++) {
		SIM_TRY(node_check(from[i]));
		SIM_TRY(node_check(to[i]));
		SIM_INVALID_IF(from[i]->graph != graph || to[i]->graph != graph);
	}
	for (size_t i = 0; i < count; i++) {
		if (add)
			SIM_TRY(edge_add(from[i], to[i], data ? &data[i] : NULL));
		else
			SIM_INVALID_IF(!edge_remove(from[i], to[i]));
	}
	return CUDA_SUCCESS;
}

CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to, size_t numDependencies)
{
	GRAPH_LOCKED(change(hGraph, from, to, NULL, numDependencies, true));
}

CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *edgeData,
				   size_t numDependencies)
{
	GRAPH_LOCKED(change(hGraph, from, to, edgeData, numDependencies, true));
}

CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to, size_t numDependencies)
{
	GRAPH_LOCKED(change(hGraph, from, to, NULL, numDependencies, false));
}

CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *edgeData,
				      size_t numDependencies)
{
	GRAPH_LOCKED(change(hGraph, from, to, edgeData, numDependencies, false));
}

/* ---- asking for them -------------------------------------------------------------------------- */

/* All of these fill an array of *count places; without an array they only count. A longer array's rest becomes NULL. */
static void fill(CUgraphNode *array, size_t place, size_t room, CUgraphNode node)
{
	if (array && place < room)
		array[place] = node;
}

static CUresult finish(CUgraphNode *array, size_t found, size_t *count, bool data)
{
	size_t room = array ? *count : 0; /* without an array, count is an answer only */
	*count = found;
	/* Without a place for its data, an edge that has some must not look like an ordinary one. */
	if (data)
		return CUDA_ERROR_LOSSY_QUERY;
	for (size_t i = found; i < room; i++)
		array[i] = NULL;
	return CUDA_SUCCESS;
}

static bool has_data(const struct edge *edge)
{
	static const CUgraphEdgeData none;
	return memcmp(&edge->data, &none, sizeof(none)) != 0;
}

static CUresult list_neighbours(CUgraphNode node, bool after, CUgraphNode *array, CUgraphEdgeData *data, size_t *count)
{
	SIM_TRY(node_check(node));
	SIM_INVALID_IF(!count);
	const struct edges *edges = after ? &node->after : &node->before;
	bool lossy = false;
	for (size_t i = 0; i < edges->count; i++) {
		fill(array, i, *count, edges->edge[i].node);
		if (data && i < *count)
			data[i] = edges->edge[i].data;
		lossy |= array && !data && has_data(&edges->edge[i]);
	}
	return finish(array, edges->count, count, lossy);
}

static CUresult list_edges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t *count)
{
	size_t found = 0;
	bool lossy = false;
	SIM_TRY(graph_check(graph));
	SIM_INVALID_IF(!count || !from != !to);
	for (size_t i = 0; i < graph->count; i++)
		for (size_t k = 0; k < graph->node[i]->after.count; k++, found++) {
			const struct edge *edge = &graph->node[i]->after.edge[k];
			fill(from, found, *count, graph->node[i]);
			fill(to, found, *count, edge->node);
			if (data && found < *count)
				data[found] = edge->data;
			lossy |= from && !data && has_data(edge);
		}
	size_t room = to ? *count : 0;
	for (size_t i = found; i < room; i++)
		to[i] = NULL;
	return finish(from, found, count, lossy);
}

static CUresult list_nodes(CUgraph graph, bool roots, CUgraphNode *array, size_t *count)
{
	size_t found = 0;
	SIM_TRY(graph_check(graph));
	SIM_INVALID_IF(!count);
	for (size_t i = 0; i < graph->count; i++)
		if (!roots || graph->node[i]->before.count == 0)
			fill(array, found++, *count, graph->node[i]);
	return finish(array, found, count, false);
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
	GRAPH_LOCKED(list_nodes(hGraph, false, nodes, numNodes));
}

CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes)
{
	GRAPH_LOCKED(list_nodes(hGraph, true, rootNodes, numRootNodes));
}

CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges)
{
	GRAPH_LOCKED(list_edges(hGraph, from, to, NULL, numEdges));
}

CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edgeData, size_t *numEdges)
{
	GRAPH_LOCKED(list_edges(hGraph, from, to, edgeData, numEdges));
}

CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode *dependencies, size_t *numDependencies)
{
	GRAPH_LOCKED(list_neighbours(hNode, false, dependencies, NULL, numDependencies));
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode *dependencies, CUgraphEdgeData *edgeData, size_t *numDependencies)
{
	GRAPH_LOCKED(list_neighbours(hNode, false, dependencies, edgeData, numDependencies));
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode *dependentNodes, size_t *numDependentNodes)
{
	GRAPH_LOCKED(list_neighbours(hNode, true, dependentNodes, NULL, numDependentNodes));
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode *dependentNodes, CUgraphEdgeData *edgeData,
					 size_t *numDependentNodes)
{
	GRAPH_LOCKED(list_neighbours(hNode, true, dependentNodes, edgeData, numDependentNodes));
}
