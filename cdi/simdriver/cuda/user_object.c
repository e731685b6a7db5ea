/* SPDX-License-Identifier: Apache-2.0
 *
 * User objects: what a program wants to live as long as graphs that use it.
 */
#include <stdlib.h>

#include "graph.h"

#define NO_DESTRUCTOR_SYNC 1u

struct CUuserObject_st {
	struct sim_handle handle;
	unsigned references; /* atomic */
	CUhostFn destroy;
	void *argument;
};

static CUresult check(CUuserObject object, unsigned count)
{
	SIM_INVALID_IF(!sim_is(object, SIM_USER_OBJECT) || count == 0);
	return CUDA_SUCCESS;
}

static void retain(CUuserObject object, unsigned count)
{
	__atomic_fetch_add(&object->references, count, __ATOMIC_RELAXED);
}

static CUresult release(CUuserObject object, unsigned count)
{
	unsigned left = __atomic_load_n(&object->references, __ATOMIC_ACQUIRE);
	do {
		SIM_INVALID_IF(left < count);
	} while (!__atomic_compare_exchange_n(&object->references, &left, left - count, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
	if (left == count) {
		object->destroy(object->argument);
		sim_delete(object);
	}
	return CUDA_SUCCESS;
}

CUresult cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn destroy, unsigned int initialRefcount, unsigned int flags)
{
	SIM_ENTER();
	SIM_INVALID_IF(!object_out || !destroy || initialRefcount == 0 || initialRefcount > INT32_MAX || flags != NO_DESTRUCTOR_SYNC);
	struct CUuserObject_st *object = sim_new(SIM_USER_OBJECT, sizeof(*object));
	if (!object)
		return CUDA_ERROR_OUT_OF_MEMORY;
	object->references = initialRefcount;
	object->destroy = destroy;
	object->argument = ptr;
	*object_out = object;
	return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count)
{
	SIM_ENTER();
	SIM_TRY(check(object, count));
	retain(object, count);
	return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count)
{
	SIM_ENTER();
	SIM_TRY(check(object, count));
	return release(object, count);
}

void users_release(struct user_reference *users)
{
	while (users) {
		struct user_reference *next = users->next;
		release(users->object, users->count);
		free(users);
		users = next;
	}
}

/* A copy of a graph has one reference of its own to each object. */
CUresult users_copy(const struct user_reference *from, struct user_reference **to)
{
	for (; from; from = from->next) {
		struct user_reference *copy = calloc(1, sizeof(*copy));
		if (!copy)
			return CUDA_ERROR_OUT_OF_MEMORY;
		*copy = (struct user_reference){.next = *to, .object = from->object, .count = 1};
		retain(from->object, 1);
		*to = copy;
	}
	return CUDA_SUCCESS;
}

static struct user_reference *find(struct CUgraph_st *graph, CUuserObject object)
{
	struct user_reference *user = graph->users;
	while (user && user->object != object)
		user = user->next;
	return user;
}

static CUresult graph_retain(CUgraph graph, CUuserObject object, unsigned count, bool move)
{
	SIM_TRY(graph_check(graph));
	SIM_TRY(check(object, count));
	struct user_reference *user = find(graph, object);
	if (!user) {
		user = calloc(1, sizeof(*user));
		if (!user)
			return CUDA_ERROR_OUT_OF_MEMORY;
		user->object = object;
		user->next = graph->users;
		graph->users = user;
	}
	user->count += count;
	/* Moved: the graph takes over references that the caller had. */
	if (!move)
		retain(object, count);
	return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags)
{
	SIM_INVALID_IF(flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE);
	GRAPH_LOCKED(graph_retain(graph, object, count, flags & CU_GRAPH_USER_OBJECT_MOVE));
}

static CUresult graph_release(CUgraph graph, CUuserObject object, unsigned count)
{
	SIM_TRY(graph_check(graph));
	SIM_TRY(check(object, count));
	struct user_reference *user = find(graph, object);
	SIM_INVALID_IF(!user || user->count < count);
	user->count -= count;
	if (user->count == 0) {
		struct user_reference **link = &graph->users;
		while (*link != user)
			link = &(*link)->next;
		*link = user->next;
		free(user);
	}
	return CUDA_SUCCESS;
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
	SIM_ENTER();
	graph_enter();
	CUresult result = graph_release(graph, object, count);
	graph_leave();
	return result == CUDA_SUCCESS ? release(object, count) : result;
}
