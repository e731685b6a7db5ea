/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that graphs allocate. Its address is fixed when the node is made; memory
 * is behind it from the first upload or launch on. What no graph uses any more stays with the
 * device, for other graphs, until cuDeviceGraphMemTrim.
 *
 * Every allocation has memory of its own: none is used twice within one graph.
 */
#include <stdlib.h>

#include "copy.h"
#include "graph.h"

enum { USED, USED_HIGH, RESERVED, RESERVED_HIGH };

static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;
static struct graph_memory *memories;

/* ---- books -------------------------------------------------------------------------------- */

static void book(uint64_t *limits, int what, uint64_t more, uint64_t less)
{
	limits[what] += more - less;
	if (limits[what + 1] < limits[what])
		limits[what + 1] = limits[what];
}

/* Whether the memory counts as used: it is there, and a graph needs it. */
static bool used(const struct graph_memory *memory)
{
	return memory->backed && (memory->executables > 0 || memory->live);
}

/* Changes what decides on that. */
#define BOOKED(memory, change)                                                              \
	do {                                                                                \
		bool before_ = used(memory);                                                \
		change;                                                                     \
		bool now_ = used(memory);                                                   \
		book((memory)->device->graph_limits, USED, now_ && !before_ ? (memory)->bytes : 0, \
		     before_ && !now_ ? (memory)->bytes : 0);                               \
	} while (0)

static void unback(struct graph_memory *memory)
{
	sim_graph_memory_unback(memory->address);
	book(memory->device->graph_limits, RESERVED, 0, memory->bytes);
	BOOKED(memory, memory->backed = false);
}

/* Forgets memory that nobody can ask for again. */
static void forget_unneeded(void)
{
	for (struct graph_memory **link = &memories; *link;) {
		struct graph_memory *memory = *link;
		if (memory->references || memory->executables || memory->backed || memory->live) {
			link = &memory->next;
			continue;
		}
		*link = memory->next;
		if (memory->context)
			sim_graph_memory_unreserve(memory->address);
		free(memory);
	}
}

static struct graph_memory *find(CUdeviceptr address)
{
	struct graph_memory *memory = memories;
	while (memory && memory->address != address)
		memory = memory->next;
	return memory;
}

bool memory_known(CUdeviceptr address)
{
	pthread_mutex_lock(&memory_lock);
	bool known = find(address) != NULL;
	pthread_mutex_unlock(&memory_lock);
	return known;
}

bool graph_memory_covers(CUdeviceptr address, size_t bytes, int *device)
{
	pthread_mutex_lock(&memory_lock);
	struct graph_memory *memory = memories;
	while (memory && (address < memory->address || address - memory->address > memory->bytes ||
			  bytes > memory->bytes - (address - memory->address)))
		memory = memory->next;
	if (memory)
		*device = memory->device->ordinal;
	pthread_mutex_unlock(&memory_lock);
	return memory != NULL;
}

/* ---- nodes and executables -------------------------------------------------------------------- */

CUresult memory_make(const CUDA_MEM_ALLOC_NODE_PARAMS_v2 *params, struct CUctx_st *context, struct graph_memory **made)
{
	const CUmemPoolProps *pool = &params->poolProps;
	SIM_INVALID_IF(params->bytesize == 0 || pool->allocType != CU_MEM_ALLOCATION_TYPE_PINNED || pool->handleTypes != 0);
	SIM_INVALID_IF(pool->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !sim_device(pool->location.id));
	struct sim_device *device = sim_device(pool->location.id);
	if (!context || context->device != device)
		context = device->primary_count > 0 ? device->primary : NULL;
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	struct graph_memory *memory = calloc(1, sizeof(*memory));
	if (!memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memory->references = 1;
	memory->device = device;
	memory->context = context;
	memory->bytes = (params->bytesize + SIMCARD_FRAME - 1) / SIMCARD_FRAME * SIMCARD_FRAME;
	CUresult result = sim_graph_memory_reserve(context, params->bytesize, &memory->address);
	if (result != CUDA_SUCCESS) {
		free(memory);
		return result;
	}
	pthread_mutex_lock(&memory_lock);
	memory->next = memories;
	memories = memory;
	pthread_mutex_unlock(&memory_lock);
	*made = memory;
	return CUDA_SUCCESS;
}

struct graph_memory *memory_get(struct graph_memory *memory)
{
	pthread_mutex_lock(&memory_lock);
	memory->references++;
	pthread_mutex_unlock(&memory_lock);
	return memory;
}

void memory_put(struct graph_memory *memory)
{
	pthread_mutex_lock(&memory_lock);
	memory->references--;
	forget_unneeded();
	pthread_mutex_unlock(&memory_lock);
}

static void attach(const struct CUgraph_st *graph, int more)
{
	pthread_mutex_lock(&memory_lock);
	for (size_t i = 0; i < graph->count; i++) {
		struct graph_memory *memory = graph->node[i]->memory;
		if (memory)
			BOOKED(memory, memory->executables += (unsigned)more);
	}
	forget_unneeded();
	pthread_mutex_unlock(&memory_lock);
}

void memory_attach(const struct CUgraph_st *graph)
{
	attach(graph, 1);
}

void memory_detach(const struct CUgraph_st *graph)
{
	attach(graph, -1);
}

void graph_memory_close(struct CUctx_st *context)
{
	pthread_mutex_lock(&memory_lock);
	for (struct graph_memory *memory = memories; memory; memory = memory->next) {
		if (memory->context != context)
			continue;
		if (memory->backed)
			unback(memory);
		sim_graph_memory_unreserve(memory->address);
		memory->live = false;
		memory->context = NULL;
		memory->address = 0;
	}
	forget_unneeded();
	pthread_mutex_unlock(&memory_lock);
}

/* ---- launches --------------------------------------------------------------------------------- */

/* Whether a launch that is under way, or to come, needs the memory. */
static bool busy(const struct graph_memory *memory)
{
	return memory->live || memory->launches > 0 || (memory->mark && !engine_mark_done(memory->mark));
}

/* Gives up memory that is behind addresses which no launch needs: bytes of it if they are not 0, else all. */
static bool give_up(const struct sim_device *device, size_t bytes, bool executables)
{
	bool any = false;
	for (struct graph_memory *memory = memories; memory; memory = memory->next) {
		if (memory->device != device || !memory->backed || (bytes && memory->bytes != bytes) ||
		    (!executables && memory->executables > 0) || busy(memory))
			continue;
		unback(memory);
		any = true;
		if (bytes)
			break;
	}
	return any;
}

static CUresult back(struct graph_memory *memory)
{
	if (memory->backed)
		return CUDA_SUCCESS;
	if (!memory->context)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	/* What another graph left is used again. */
	give_up(memory->device, memory->bytes, false);
	CUresult result = sim_graph_memory_back(memory->address);
	if (result == CUDA_ERROR_OUT_OF_MEMORY && give_up(memory->device, 0, false))
		result = sim_graph_memory_back(memory->address);
	if (result != CUDA_SUCCESS)
		return result;
	BOOKED(memory, memory->backed = true);
	book(memory->device->graph_limits, RESERVED, memory->bytes, 0);
	return CUDA_SUCCESS;
}

CUresult memory_prepare(const struct CUgraph_st *graph, bool launch, bool free_before)
{
	CUresult result = CUDA_SUCCESS;
	pthread_mutex_lock(&memory_lock);
	for (size_t i = 0; result == CUDA_SUCCESS && i < graph->count; i++) {
		struct graph_memory *memory = graph->node[i]->memory;
		/* What the launch before left allocated has to be freed first. */
		if (memory && memory->live && launch && !free_before)
			result = CUDA_ERROR_INVALID_VALUE;
	}
	for (size_t i = 0; result == CUDA_SUCCESS && i < graph->count; i++)
		if (graph->node[i]->memory)
			result = back(graph->node[i]->memory);
	for (size_t i = 0; launch && result == CUDA_SUCCESS && i < graph->count; i++)
		if (graph->node[i]->memory)
			graph->node[i]->memory->launches++;
	pthread_mutex_unlock(&memory_lock);
	return result;
}

void memory_launched(const struct CUgraph_st *graph, uint64_t mark)
{
	pthread_mutex_lock(&memory_lock);
	for (size_t i = 0; i < graph->count; i++) {
		struct graph_memory *memory = graph->node[i]->memory;
		if (!memory)
			continue;
		memory->launches--;
		if (!mark)
			continue;
		memory->mark = mark;
		BOOKED(memory, memory->live = true);
	}
	for (size_t i = 0; mark && i < graph->count; i++) {
		const struct CUgraphNode_st *node = graph->node[i];
		struct graph_memory *memory = node->params.type == CU_GRAPH_NODE_TYPE_MEM_FREE ? find(node->params.free.dptr) : NULL;
		if (!memory)
			continue;
		memory->mark = mark;
		BOOKED(memory, memory->live = false);
	}
	pthread_mutex_unlock(&memory_lock);
}

CUresult engine_graph_memory_free(CUdeviceptr address, struct CUstream_st *stream)
{
	pthread_mutex_lock(&memory_lock);
	struct graph_memory *memory = find(address);
	CUresult result = memory && memory->live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS) {
		if (stream)
			memory->mark = engine_mark(stream);
		BOOKED(memory, memory->live = false);
		forget_unneeded();
	}
	pthread_mutex_unlock(&memory_lock);
	return result;
}

/* ---- what programs can ask ------------------------------------------------------------------------ */

static CUresult device_of(CUdevice ordinal, struct sim_device **device)
{
	SIM_ENTER();
	*device = sim_device(ordinal);
	return *device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
	struct sim_device *found;
	SIM_TRY(device_of(device, &found));
	SIM_INVALID_IF(!value || (unsigned)attr > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH);
	pthread_mutex_lock(&memory_lock);
	*(cuuint64_t *)value = found->graph_limits[attr];
	pthread_mutex_unlock(&memory_lock);
	return CUDA_SUCCESS;
}

/* High-water marks can be set to what is the case now, by giving 0. */
CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
	struct sim_device *found;
	SIM_TRY(device_of(device, &found));
	SIM_INVALID_IF(!value || *(cuuint64_t *)value != 0);
	SIM_INVALID_IF(attr != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH && attr != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH);
	pthread_mutex_lock(&memory_lock);
	found->graph_limits[attr] = found->graph_limits[attr - 1];
	pthread_mutex_unlock(&memory_lock);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
	struct sim_device *found;
	SIM_TRY(device_of(device, &found));
	pthread_mutex_lock(&memory_lock);
	give_up(found, 0, true);
	forget_unneeded();
	pthread_mutex_unlock(&memory_lock);
	return CUDA_SUCCESS;
}
