/* SPDX-License-Identifier: Apache-2.0
 *
 * Multicast objects, as far as memory goes: what is bound to one stays allocated.
 * They cost nothing themselves, and cannot be mapped: what is written there
 * would have to reach several cards.
 */
#include <stdlib.h>
#include <string.h>

#include "vmm.h"

struct binding {
	struct binding *next;
	struct sim_allocation *allocation;
	struct sim_device *device;
	uint64_t offset; /* in the object */
	uint64_t size;
};

struct multicast {
	struct sim_handle handle; /* SIM_MULTICAST */
	CUmulticastObjectProp properties;
	unsigned handles;
	unsigned devices;
	bool has[CARD_MAX];
	struct binding *bindings;
};

static CUresult check(CUmemGenericAllocationHandle handle, struct multicast **object)
{
	*object = (struct multicast *)(uintptr_t)handle;
	return sim_is(*object, SIM_MULTICAST) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult check_properties(const CUmulticastObjectProp *properties)
{
	SIM_INVALID_IF(!properties || properties->numDevices == 0 || properties->size == 0 || properties->flags != 0);
	/* Exporting it is of use only to who can map it. */
	if (properties->handleTypes != 0 && properties->handleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	SIM_INVALID_IF(properties->numDevices > (unsigned)sim_device_count());
	return CUDA_SUCCESS;
}

CUresult cuMulticastGetGranularity(size_t *granularity, const CUmulticastObjectProp *prop, CUmulticastGranularity_flags option)
{
	SIM_ENTER();
	SIM_INVALID_IF(!granularity || (option != CU_MULTICAST_GRANULARITY_MINIMUM && option != CU_MULTICAST_GRANULARITY_RECOMMENDED));
	SIM_TRY(check_properties(prop));
	*granularity = SIM_FRAME;
	return CUDA_SUCCESS;
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *mcHandle, const CUmulticastObjectProp *prop)
{
	struct multicast *object;

	SIM_ENTER();
	SIM_INVALID_IF(!mcHandle);
	SIM_TRY(check_properties(prop));
	SIM_INVALID_IF(prop->size % SIM_FRAME != 0);
	object = sim_new(SIM_MULTICAST, sizeof(*object));
	if (!object)
		return CUDA_ERROR_OUT_OF_MEMORY;
	object->properties = *prop;
	object->handles = 1;
	*mcHandle = (uintptr_t)object;
	return CUDA_SUCCESS;
}

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle mcHandle, CUdevice dev)
{
	struct multicast *object;
	CUresult result;

	SIM_ENTER();
	if (!sim_device(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&sim_memory_lock);
	result = check(mcHandle, &object);
	if (result == CUDA_SUCCESS && (object->has[dev] || object->devices == object->properties.numDevices))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS) {
		object->has[dev] = true;
		object->devices++;
	}
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

static CUresult bind(struct multicast *object, uint64_t offset, struct sim_allocation *allocation, uint64_t from, uint64_t size)
{
	struct binding *binding;

	/* Nothing can be bound before all devices were added. */
	if (object->devices < object->properties.numDevices)
		return CUDA_ERROR_ILLEGAL_STATE;
	SIM_INVALID_IF(!allocation->device || !object->has[allocation->device->ordinal] || size == 0);
	SIM_INVALID_IF(offset % SIM_FRAME != 0 || from % SIM_FRAME != 0 || size % SIM_FRAME != 0);
	SIM_INVALID_IF(size > object->properties.size || offset > object->properties.size - size);
	SIM_INVALID_IF(size > allocation->size || from > allocation->size - size);
	for (binding = object->bindings; binding; binding = binding->next) {
		SIM_INVALID_IF(binding->device == allocation->device && offset < binding->offset + binding->size &&
			       binding->offset < offset + size);
	}
	binding = malloc(sizeof(*binding));
	if (!binding)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*binding = (struct binding){object->bindings, allocation, allocation->device, offset, size};
	object->bindings = binding;
	allocation->uses++;
	return CUDA_SUCCESS;
}

/* device NULL: of whichever the memory is. */
static CUresult bind_memory(CUmemGenericAllocationHandle handle, const struct sim_device *device, uint64_t offset,
			    CUmemGenericAllocationHandle memory, uint64_t from, uint64_t size)
{
	struct sim_allocation *allocation;
	struct multicast *object;
	CUresult result;

	pthread_mutex_lock(&sim_memory_lock);
	result = check(handle, &object);
	if (result == CUDA_SUCCESS)
		result = sim_allocation_check(memory, &allocation);
	if (result == CUDA_SUCCESS && device && allocation->device != device)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = bind(object, offset, allocation, from, size);
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

static CUresult bind_address(CUmemGenericAllocationHandle handle, const struct sim_device *device, uint64_t offset, CUdeviceptr address,
			     uint64_t size)
{
	struct vmm_mapping *mapping;
	struct sim_found found;
	struct multicast *object;
	CUresult result;

	pthread_mutex_lock(&sim_memory_lock);
	result = check(handle, &object);
	mapping = sim_mapping_at(address);
	if (result == CUDA_SUCCESS && (!mapping || sim_find(address, &found) != CUDA_SUCCESS || (device && found.device != device)))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS && size > found.base + found.size - address)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = bind(object, offset, mapping->allocation, address - found.base, size);
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset, CUmemGenericAllocationHandle memHandle, size_t memOffset,
			    size_t size, unsigned long long flags)
{
	SIM_ENTER();
	SIM_INVALID_IF(flags != 0);
	return bind_memory(mcHandle, NULL, mcOffset, memHandle, memOffset, size);
}

CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset, CUmemGenericAllocationHandle memHandle,
			       size_t memOffset, size_t size, unsigned long long flags)
{
	SIM_ENTER();
	SIM_INVALID_IF(flags != 0);
	if (!sim_device(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	return bind_memory(mcHandle, sim_device(dev), mcOffset, memHandle, memOffset, size);
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset, CUdeviceptr memptr, size_t size, unsigned long long flags)
{
	SIM_ENTER();
	SIM_INVALID_IF(flags != 0);
	return bind_address(mcHandle, NULL, mcOffset, memptr, size);
}

CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset, CUdeviceptr memptr, size_t size,
				unsigned long long flags)
{
	SIM_ENTER();
	SIM_INVALID_IF(flags != 0);
	if (!sim_device(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	return bind_address(mcHandle, sim_device(dev), mcOffset, memptr, size);
}

static void unbind(struct binding **at)
{
	struct binding *binding = *at;

	*at = binding->next;
	binding->allocation->uses--;
	sim_allocation_end_if_unused(binding->allocation);
	free(binding);
}

/* Whole bindings only. */
CUresult cuMulticastUnbind(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset, size_t size)
{
	struct multicast *object;
	CUresult result;

	SIM_ENTER();
	if (!sim_device(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&sim_memory_lock);
	result = check(mcHandle, &object);
	if (result == CUDA_SUCCESS) {
		struct binding **at = &object->bindings;

		while (*at && ((*at)->device != sim_device(dev) || (*at)->offset != mcOffset || (*at)->size != size))
			at = &(*at)->next;
		if (*at)
			unbind(at);
		else
			result = CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

CUresult sim_multicast_release(CUmemGenericAllocationHandle handle)
{
	struct multicast *object;
	CUresult result;

	pthread_mutex_lock(&sim_memory_lock);
	result = check(handle, &object);
	if (result == CUDA_SUCCESS && --object->handles == 0) {
		while (object->bindings)
			unbind(&object->bindings);
		sim_delete(object);
	}
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}
