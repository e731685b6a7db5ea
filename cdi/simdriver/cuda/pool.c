/* SPDX-License-Identifier: Apache-2.0
 *
 * Pools and stream-ordered allocation, as programs see them.
 */
#include "pool.h"

#include <stdlib.h>
#include <string.h>

struct sim_link sim_pools = {&sim_pools, &sim_pools};

CUresult sim_pool_check(CUmemoryPool pool)
{
	return sim_is(pool, SIM_POOL) && !pool->destroyed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_pool_make(struct sim_device *device, const CUmemPoolProps *properties, struct CUmemPoolHandle_st **result)
{
	struct CUmemPoolHandle_st *pool = sim_new(SIM_POOL, sizeof(*pool));

	if (!pool)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pool->bucket = calloc(SIM_POOL_BUCKETS, sizeof(struct pool_piece *));
	if (!pool->bucket) {
		sim_delete(pool);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	pool->device = device;
	pool->properties = *properties;
	pool->reuse[CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = 1;
	pool->reuse[CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC] = 1;
	pool->reuse[CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES] = 1;
	pool->access[device->ordinal] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	sim_list_init(&pool->segments);
	sim_list_add(&sim_pools, &pool->link);
	*result = pool;
	return CUDA_SUCCESS;
}

CUresult sim_pool_default(struct sim_device *device, struct CUmemPoolHandle_st **pool)
{
	CUmemPoolProps properties = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal},
	};

	if (!device->default_pool) {
		SIM_TRY(sim_pool_make(device, &properties, &device->default_pool));
		device->default_pool->is_default = true;
	}
	*pool = device->default_pool;
	return CUDA_SUCCESS;
}

CUresult sim_pool_current(struct sim_device *device, struct CUmemPoolHandle_st **pool)
{
	if (!device->pool)
		return sim_pool_default(device, pool);
	*pool = device->pool;
	return CUDA_SUCCESS;
}

void sim_pool_end_if_idle(struct CUmemPoolHandle_st *pool)
{
	if (!pool->destroyed || pool->used > 0)
		return;
	sim_pool_trim(pool, 0);
	if (pool->segments.next != &pool->segments)
		return;
	if (pool->object.id) {
		pthread_mutex_lock(&pool->device->frames);
		card_object_drop(&pool->device->card, pool->object);
		pthread_mutex_unlock(&pool->device->frames);
	}
	sim_list_remove(&pool->link);
	free(pool->bucket);
	sim_delete(pool);
}

static CUresult check_properties(const CUmemPoolProps *properties)
{
	SIM_INVALID_IF(!properties || properties->location.type == CU_MEM_LOCATION_TYPE_INVALID);
	if (properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED || properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!sim_device(properties->location.id))
		return CUDA_ERROR_INVALID_DEVICE;
	if (properties->handleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	return CUDA_SUCCESS;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
	CUresult result;

	SIM_ENTER();
	SIM_INVALID_IF(!pool);
	SIM_TRY(check_properties(poolProps));
	pthread_mutex_lock(&sim_memory_lock);
	result = sim_pool_make(sim_device(poolProps->location.id), poolProps, pool);
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	CUresult result;

	SIM_ENTER();
	pthread_mutex_lock(&sim_memory_lock);
	result = sim_pool_check(pool);
	if (result == CUDA_SUCCESS && pool->is_default)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS) {
		if (pool->device->pool == pool)
			pool->device->pool = NULL;
		pool->destroyed = true;
		sim_pool_end_if_idle(pool);
	}
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
	CUresult result;

	SIM_ENTER();
	pthread_mutex_lock(&sim_memory_lock);
	result = sim_pool_check(pool);
	if (result == CUDA_SUCCESS)
		sim_pool_trim(pool, minBytesToKeep);
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

static CUresult set_attribute(struct CUmemPoolHandle_st *pool, CUmemPool_attribute attribute, const void *value)
{
	uint64_t number;

	switch (attribute) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		pool->reuse[attribute] = *(const int *)value != 0;
		return CUDA_SUCCESS;
	default:
		break;
	}
	memcpy(&number, value, sizeof(number));
	switch (attribute) {
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		pool->threshold = number;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		SIM_INVALID_IF(number != 0);
		pool->reserved_high = pool->reserved;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		SIM_INVALID_IF(number != 0);
		pool->used_high = pool->used;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUresult get_attribute(const struct CUmemPoolHandle_st *pool, CUmemPool_attribute attribute, void *value)
{
	uint64_t number;

	switch (attribute) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		*(int *)value = pool->reuse[attribute];
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		number = pool->threshold;
		break;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		number = pool->reserved;
		break;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		number = pool->reserved_high;
		break;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		number = pool->used;
		break;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		number = pool->used_high;
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	memcpy(value, &number, sizeof(number));
	return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	CUresult result;

	SIM_ENTER();
	SIM_INVALID_IF(!value);
	pthread_mutex_lock(&sim_memory_lock);
	result = sim_pool_check(pool);
	if (result == CUDA_SUCCESS)
		result = set_attribute(pool, attr, value);
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	CUresult result;

	SIM_ENTER();
	SIM_INVALID_IF(!value);
	pthread_mutex_lock(&sim_memory_lock);
	result = sim_pool_check(pool);
	if (result == CUDA_SUCCESS)
		result = get_attribute(pool, attr, value);
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

static CUresult check_access(const struct CUmemPoolHandle_st *pool, const CUmemAccessDesc *map)
{
	if (map->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!sim_device(map->location.id))
		return CUDA_ERROR_INVALID_DEVICE;
	SIM_INVALID_IF(map->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && map->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	/* Its own device's access cannot be taken away. */
	if (map->location.id == pool->device->ordinal && map->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
		return CUDA_ERROR_INVALID_DEVICE;
	return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
	CUresult result;

	SIM_ENTER();
	SIM_INVALID_IF(count > 0 && !map);
	pthread_mutex_lock(&sim_memory_lock);
	result = sim_pool_check(pool);
	for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
		result = check_access(pool, &map[i]);
	for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
		pool->access[map[i].location.id] = map[i].flags;
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool, CUmemLocation *location)
{
	CUresult result;

	SIM_ENTER();
	SIM_INVALID_IF(!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE);
	if (!sim_device(location->id))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&sim_memory_lock);
	result = sim_pool_check(memPool);
	if (result == CUDA_SUCCESS)
		*flags = memPool->access[location->id];
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

/* ---- allocating ---------------------------------------------------------------------- */

/* pool NULL: the current one of the stream's device. */
static CUresult alloc_async(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream given, bool per_thread)
{
	struct CUstream_st *stream;
	CUmemPoolProps properties;
	CUresult result = CUDA_SUCCESS;

	SIM_CONTEXT_ENTER(context);
	SIM_INVALID_IF(!dptr || bytes == 0);
	SIM_TRY(engine_stream(given, per_thread, context, &stream));
	pthread_mutex_lock(&sim_memory_lock);
	if (!pool)
		result = sim_pool_current(engine_stream_context(stream)->device, &pool);
	if (result == CUDA_SUCCESS)
		result = sim_pool_check(pool);
	if (result == CUDA_SUCCESS && pool->imported)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS && engine_stream_capturing(stream)) {
		properties = pool->properties;
		pthread_mutex_unlock(&sim_memory_lock);
		return capture_memory_alloc(stream, &properties, bytes, dptr);
	}
	if (result == CUDA_SUCCESS)
		result = sim_pool_alloc(pool, bytes, stream, dptr);
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	return alloc_async(dptr, bytesize, NULL, hStream, false);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	return alloc_async(dptr, bytesize, NULL, hStream, true);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
	SIM_ENTER();
	SIM_INVALID_IF(!pool);
	return alloc_async(dptr, bytesize, pool, hStream, false);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
	SIM_ENTER();
	SIM_INVALID_IF(!pool);
	return alloc_async(dptr, bytesize, pool, hStream, true);
}

static CUresult free_async(CUdeviceptr dptr, CUstream given, bool per_thread)
{
	struct CUstream_st *stream;
	struct sim_range *range;
	bool graph = false;
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	SIM_CONTEXT_ENTER(context);
	SIM_TRY(engine_stream(given, per_thread, context, &stream));
	if (dptr == 0)
		return CUDA_SUCCESS;
	if (engine_stream_capturing(stream))
		return capture_memory_free(stream, dptr);
	pthread_mutex_lock(&sim_memory_lock);
	range = sim_range_at(dptr);
	if (range && range->type == SIM_RANGE_POOL)
		result = sim_pool_free_at(range, dptr, stream);
	else if (range)
		graph = range->type == SIM_RANGE_GRAPH;
	pthread_mutex_unlock(&sim_memory_lock);
	return graph ? engine_graph_memory_free(dptr, stream) : result;
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
	return free_async(dptr, hStream, false);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream)
{
	return free_async(dptr, hStream, true);
}
