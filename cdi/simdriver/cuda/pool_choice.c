/* SPDX-License-Identifier: Apache-2.0
 *
 * Which pool a device's allocations come from.
 */
#include "pool.h"

typedef CUresult chooser(struct sim_device *device, struct CUmemPoolHandle_st **pool);

static CUresult choose(CUmemoryPool *pool, CUdevice dev, chooser *choice)
{
	CUresult result;

	SIM_ENTER();
	SIM_INVALID_IF(!pool);
	if (!sim_device(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&sim_memory_lock);
	result = choice(sim_device(dev), pool);
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

/* Pools of the host's memory are not modelled. */
static CUresult check_location(const CUmemLocation *location, CUmemAllocationType type)
{
	SIM_ENTER();
	SIM_INVALID_IF(!location);
	if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_NOT_SUPPORTED;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev)
{
	return choose(pool_out, dev, sim_pool_default);
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location, CUmemAllocationType type)
{
	SIM_TRY(check_location(location, type));
	return choose(pool_out, location->id, sim_pool_default);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
	return choose(pool, dev, sim_pool_current);
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
	SIM_TRY(check_location(location, type));
	return choose(pool, location->id, sim_pool_current);
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
	CUresult result;

	SIM_ENTER();
	if (!sim_device(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&sim_memory_lock);
	result = sim_pool_check(pool);
	if (result == CUDA_SUCCESS && (pool->device != sim_device(dev) || pool->imported))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		pool->device->pool = pool;
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
	SIM_TRY(check_location(location, type));
	return cuDeviceSetMemPool(location->id, pool);
}
