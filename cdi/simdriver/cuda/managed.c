/* SPDX-License-Identifier: Apache-2.0
 *
 * Hints about managed memory. Here it is always where it is needed, so they are checked
 * and have no effect. What was hinted cannot be asked: cuMemRangeGetAttribute is
 * not modelled.
 */
#include "memory.h"

/* Whether all of a range is managed memory. */
static CUresult check_range(CUdeviceptr address, size_t bytes)
{
	struct sim_found found;
	CUresult result;

	SIM_INVALID_IF(bytes == 0);
	pthread_mutex_lock(&sim_memory_lock);
	result = sim_find(address, &found);
	if (result == CUDA_SUCCESS && (!found.range->managed || bytes > found.base + found.size - address))
		result = CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

static CUresult check_location(CUmemLocation location)
{
	switch (location.type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		return location.id == CU_DEVICE_CPU || sim_device(location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUresult advise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location)
{
	SIM_ENTER();
	SIM_INVALID_IF(advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY);
	/* These three are about no place. */
	if (advice != CU_MEM_ADVISE_SET_READ_MOSTLY && advice != CU_MEM_ADVISE_UNSET_READ_MOSTLY &&
	    advice != CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION)
		SIM_TRY(check_location(location));
	return check_range(address, bytes);
}

static CUmemLocation of_device(CUdevice device)
{
	return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
}

CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device)
{
	return advise(devPtr, count, advice, of_device(device));
}

CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location)
{
	return advise(devPtr, count, advice, location);
}

static CUresult prefetch(CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned flags, CUstream given, bool per_thread)
{
	struct CUstream_st *stream;

	SIM_CONTEXT_ENTER(context);
	SIM_INVALID_IF(flags != 0);
	SIM_TRY(check_location(location));
	SIM_TRY(engine_stream(given, per_thread, context, &stream));
	if (engine_stream_capturing(stream))
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	return check_range(address, bytes);
}

CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream)
{
	return prefetch(devPtr, count, of_device(dstDevice), 0, hStream, false);
}

CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream)
{
	return prefetch(devPtr, count, of_device(dstDevice), 0, hStream, true);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags, CUstream hStream)
{
	return prefetch(devPtr, count, location, flags, hStream, false);
}

CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags, CUstream hStream)
{
	return prefetch(devPtr, count, location, flags, hStream, true);
}
