/* SPDX-License-Identifier: Apache-2.0
 *
 * What pointers can be asked, and what copies ask about them.
 */
#include "memory.h"

#include <string.h>

/* Addresses of graphs have memory only at times. */
static bool is_there(const struct sim_found *found)
{
	return found->range->type != SIM_RANGE_GRAPH || found->range->block;
}

CUresult sim_memory_check(CUdeviceptr address, size_t bytes, int *device)
{
	struct sim_range *range;
	struct sim_found found;
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&sim_memory_lock);
	range = sim_range_at(address);
	if (range && range->type == SIM_RANGE_RESERVED) {
		if (sim_vmm_accessible(range, address, bytes, device))
			result = CUDA_SUCCESS;
	} else if (sim_find(address, &found) == CUDA_SUCCESS && bytes <= found.base + found.size - address && is_there(&found)) {
		*device = found.device ? found.device->ordinal : -1;
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

bool sim_memory_pinned(const void *address)
{
	const struct sim_range *range;
	bool pinned;

	pthread_mutex_lock(&sim_memory_lock);
	range = sim_range_at((uintptr_t)address);
	pinned = range ? range->managed : sim_host_at((uintptr_t)address) != NULL;
	pthread_mutex_unlock(&sim_memory_lock);
	return pinned;
}

static bool is_host(const struct sim_found *found)
{
	return !found->device;
}

/* The device of a pointer: of the host's memory, that of the context that knows it. */
static int ordinal_of(const struct sim_found *found)
{
	const struct sim_device *device = found->device ? found->device : found->range->device;

	return device ? device->ordinal : CU_DEVICE_INVALID;
}

/* Bytes of an attribute's value; 0: no such attribute. */
static size_t value_size(CUpointer_attribute attribute)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		return 8;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		return 4;
	/* Programs that have an int for it set it to 0 before. */
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_MAPPED:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		return sizeof(bool);
	default:
		return 0;
	}
}

/* Values as numbers; pointers are numbers too. NOT_SUPPORTED: the pointer has no such
 * attribute. */
static CUresult value_of(CUpointer_attribute attribute, CUdeviceptr address, const struct sim_found *found, uint64_t *value)
{
	const struct sim_range *range = found->range;
	bool host = is_host(found);

	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*value = (uintptr_t)range->context;
		break;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*value = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*value = address;
		break;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		SIM_INVALID_IF(!host && !range->managed);
		*value = address;
		break;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*value = range->sync_memops;
		break;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		*value = found->id;
		break;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*value = range->managed;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*value = (uint64_t)(uint32_t)ordinal_of(found);
		break;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		*value = !range->managed && (range->type == SIM_RANGE_LINEAR || range->type == SIM_RANGE_SLAB);
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		*value = found->base;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		*value = found->size;
		break;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*value = true;
		break;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*value = sim_handle_types_of(found, address);
		break;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		*value = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
		break;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*value = (uintptr_t)sim_pool_of(range);
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

static void store(void *data, CUpointer_attribute attribute, uint64_t value)
{
	/* Little-endian: a shorter value is the beginning of a longer one. */
	memcpy(data, &value, value_size(attribute));
}

/* What a pointer is said to be that the driver does not know. */
static uint64_t value_of_unknown(CUpointer_attribute attribute)
{
	return attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? (uint64_t)(uint32_t)CU_DEVICE_INVALID : 0;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	struct sim_found found;
	uint64_t value;
	CUresult result;

	SIM_ENTER();
	SIM_INVALID_IF(!data);
	if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
		return CUDA_ERROR_NOT_SUPPORTED;
	SIM_INVALID_IF(value_size(attribute) == 0);
	pthread_mutex_lock(&sim_memory_lock);
	result = sim_find(ptr, &found);
	if (result == CUDA_SUCCESS)
		result = value_of(attribute, ptr, &found, &value);
	pthread_mutex_unlock(&sim_memory_lock);
	if (result == CUDA_SUCCESS)
		store(data, attribute, value);
	return result;
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data, CUdeviceptr ptr)
{
	struct sim_found found;
	bool known;

	SIM_ENTER();
	SIM_INVALID_IF(!attributes || !data || numAttributes == 0);
	for (unsigned i = 0; i < numAttributes; i++) {
		if (attributes[i] == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
			return CUDA_ERROR_NOT_SUPPORTED;
		SIM_INVALID_IF(!data[i] || value_size(attributes[i]) == 0);
	}
	pthread_mutex_lock(&sim_memory_lock);
	known = sim_find(ptr, &found) == CUDA_SUCCESS;
	for (unsigned i = 0; i < numAttributes; i++) {
		uint64_t value = 0;

		if (!known)
			value = value_of_unknown(attributes[i]);
		else if (value_of(attributes[i], ptr, &found, &value) != CUDA_SUCCESS)
			value = 0;
		store(data[i], attributes[i], value);
	}
	pthread_mutex_unlock(&sim_memory_lock);
	return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	struct sim_found found;
	CUresult result;

	SIM_ENTER();
	SIM_INVALID_IF(!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
	pthread_mutex_lock(&sim_memory_lock);
	result = sim_find(ptr, &found);
	/* Of managed memory and of the host's it cannot be set. */
	if (result == CUDA_SUCCESS && (found.range->managed || is_host(&found)))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		found.range->sync_memops = *(const uint8_t *)value != 0;
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}
