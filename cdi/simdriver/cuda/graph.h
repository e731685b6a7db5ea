/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs. graph_lock guards all of them, and captures; it is taken before any other
 * lock and never held while a stream is waited for.
 */
#ifndef TRANCHE_SIM_GRAPH_H
#define TRANCHE_SIM_GRAPH_H

#include "stream.h"

extern pthread_mutex_t graph_lock;

static inline void graph_enter(void)
{
	pthread_mutex_lock(&graph_lock);
}

static inline void graph_leave(void)
{
	pthread_mutex_unlock(&graph_lock);
}

/* For functions that do all of their work under the lock. */
#define GRAPH_LOCKED(expression)               \
	do {                                   \
		SIM_ENTER();                   \
		graph_enter();                 \
		CUresult result_ = (expression); \
		graph_leave();                 \
		return result_;                \
	} while (0)

struct edge {
	struct CUgraphNode_st *node;
	CUgraphEdgeData data;
};

struct edges {
	struct edge *edge;
	size_t count, room;
};

/* Memory of an allocation node. It is known by its address as long as a node or an
 * executable graph has it, it is allocated, or memory is behind it. */
struct graph_memory {
	struct graph_memory *next;
	unsigned references; /* nodes */
	unsigned executables;
	struct sim_device *device;
	struct CUctx_st *context; /* NULL once it has ended: then there is no memory any more */
	CUdeviceptr address;
	size_t bytes;  /* whole frames */
	bool backed;
	bool live;     /* allocated by a launch, and not freed since */
	unsigned launches; /* being submitted */
	uint64_t mark; /* of the last launch that uses it */
};

struct CUgraphNode_st {
	struct sim_handle handle;
	struct CUgraph_st *graph;
	uint64_t copied_from; /* id of the node that this one was copied from, or 0 */
	CUgraphNodeParams params;
	void *owned; /* what params points to */
	struct CUctx_st *context; /* of what has one */
	struct CUgraph_st **body; /* the child graph, or those of a conditional node */
	unsigned bodies;
	struct graph_memory *memory; /* of an allocation node */
	struct edges before, after;
	size_t waits; /* while sorting: nodes before this one that are not sorted yet; while copying: its place */
	int priority; /* attributes of a kernel node */
	int cooperative;
	CUaccessPolicyWindow window;
	bool disabled; /* in an executable graph */
};

struct conditional {
	struct conditional *next;
	CUgraphConditionalHandle handle;
	unsigned value, flags;
	bool used;
};

struct user_reference {
	struct user_reference *next;
	CUuserObject object;
	unsigned count;
};

struct CUgraph_st {
	struct sim_handle handle;
	struct CUgraphNode_st **node; /* in the order in which they were made */
	size_t count, room;
	struct CUgraphNode_st *parent; /* whose child graph or body this is */
	struct CUgraphExec_st *executable; /* of a graph with memory nodes: it can have one */
	struct conditional *conditionals;
	struct user_reference *users;
};

/* An event that an executable graph records or waits for. */
struct graph_event {
	CUevent event;
	uint64_t id;
	bool record;
};

struct CUgraphExec_st {
	struct sim_handle handle;
	struct CUctx_st *context;
	struct CUgraph_st *graph;  /* its own copy */
	struct CUgraph_st *source; /* if that may have one executable only, or NULL */
	struct program *program;
	struct sim_device *device; /* that its nodes need, or NULL */
	struct graph_event *event; /* program->moments of them */
	unsigned long long flags;
	uint64_t mark; /* of its last launch */
};

/* ---- graph.c: under the lock ------------------------------------------------- */

CUresult graph_new(struct CUgraph_st **graph);
void graph_free(struct CUgraph_st *graph);
/* Copies a graph. Those with memory nodes only for an executable, whose nodes share their memory. */
CUresult graph_copy(const struct CUgraph_st *from, bool executable, struct CUgraph_st **to);
bool graph_has_memory(const struct CUgraph_st *graph);
CUresult graph_check(CUgraph graph);
CUresult node_check(CUgraphNode node);
/* Adds a node to a graph. Nodes on which it depends are in `before`; data may be NULL. Writes to params what
 * the node gave to it: an address, graphs. */
CUresult node_add(struct CUgraph_st *graph, const CUgraphNode *before, const CUgraphEdgeData *data, size_t count,
		  CUgraphNodeParams *params, struct CUgraphNode_st **node);
void node_free(struct CUgraphNode_st *node);
/* The copy of a node, at any depth. */
struct CUgraphNode_st *graph_find_copy(const struct CUgraph_st *graph, const struct CUgraphNode_st *original);

/* ---- graph_edges.c ------------------------------------------------------------- */

CUresult edge_add(struct CUgraphNode_st *from, struct CUgraphNode_st *to, const CUgraphEdgeData *data);
bool edge_remove(struct CUgraphNode_st *from, struct CUgraphNode_st *to);
/* The graph's nodes in an order in which they can be done. INVALID_VALUE: there is a cycle; *at is on it. */
CUresult graph_sort(const struct CUgraph_st *graph, struct CUgraphNode_st **sorted, struct CUgraphNode_st **at);

/* ---- graph_params.c -------------------------------------------------------------- */

/* Checks what a node is to do and copies it, with what it points to, into the node. context: for
 * what does not name one. */
CUresult params_set(struct CUgraphNode_st *node, const CUgraphNodeParams *params, struct CUctx_st *context);
/* The command that does what the node does, except for child graphs, conditionals and events. */
CUresult params_command(const struct CUgraphNode_st *node, struct command *command);

/* ---- graph_memory.c: with a lock of its own ------------------------------------------ */

CUresult memory_make(const CUDA_MEM_ALLOC_NODE_PARAMS_v2 *params, struct CUctx_st *context, struct graph_memory **memory);
bool memory_known(CUdeviceptr address);
struct graph_memory *memory_get(struct graph_memory *memory);
void memory_put(struct graph_memory *memory);
/* For an executable graph: the memory of its nodes. */
void memory_attach(const struct CUgraph_st *graph);
void memory_detach(const struct CUgraph_st *graph);
/* Gets memory for a launch or an upload. */
CUresult memory_prepare(const struct CUgraph_st *graph, bool launch, bool free_before);
/* What a launch leaves allocated, and how long it uses its memory. Comes after memory_prepare for a launch
 * that succeeded; with mark 0 the launch failed after that. */
void memory_launched(const struct CUgraph_st *graph, uint64_t mark);

/* ---- graph_exec.c ------------------------------------------------------------------- */

/* Makes the program of an executable graph anew. */
CUresult exec_build(struct CUgraphExec_st *exec, CUgraphInstantiateResult *why, struct CUgraphNode_st **at);
CUresult exec_check(CUgraphExec exec);
CUresult exec_launch(CUgraphExec exec, struct CUstream_st *stream);

/* ---- user_object.c ---------------------------------------------------------------------- */

/* Runs the destructors of the program, which must not call the driver. */
void users_release(struct user_reference *users);
CUresult users_copy(const struct user_reference *from, struct user_reference **to);

#endif
