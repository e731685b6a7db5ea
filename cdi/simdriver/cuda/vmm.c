/* SPDX-License-Identifier: Apache-2.0
 *
 * cuMemCreate: memory without addresses, and its handles.
 */
#include "vmm.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "files.h"

static struct sim_link allocations = {&allocations, &allocations};

CUresult sim_allocation_check(CUmemGenericAllocationHandle handle, struct sim_allocation **allocation)
{
	*allocation = (struct sim_allocation *)(uintptr_t)handle;
	return sim_is(*allocation, SIM_ALLOCATION) && (*allocation)->handles > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static bool is_host(CUmemLocationType type)
{
	return type == CU_MEM_LOCATION_TYPE_HOST || type == CU_MEM_LOCATION_TYPE_HOST_NUMA || type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

static CUresult check_properties(const CUmemAllocationProp *properties)
{
	SIM_INVALID_IF(!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED);
	if (properties->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	/* Pools of tiles are for sparse arrays. */
	if (properties->allocFlags.usage != 0)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (is_host(properties->location.type))
		return CUDA_SUCCESS;
	SIM_INVALID_IF(properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE);
	return sim_device(properties->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option)
{
	SIM_ENTER();
	SIM_INVALID_IF(!granularity || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
	SIM_TRY(check_properties(prop));
	*granularity = SIM_FRAME;
	return CUDA_SUCCESS;
}

/* The memory of an allocation that was just made. */
static CUresult fill(struct sim_allocation *allocation)
{
	if (allocation->device)
		return sim_block_make(allocation->device, SIMCARD_VMM, allocation->size, false, &allocation->block);
	allocation->host_fd = memfd_create("tranche-sim-vmm", MFD_CLOEXEC);
	if (allocation->host_fd < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	return ftruncate(allocation->host_fd, (off_t)allocation->size) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Without memory yet, and without a handle of the program's. */
static struct sim_allocation *new_allocation(const CUmemAllocationProp *properties, uint64_t size)
{
	struct sim_allocation *allocation = sim_new(SIM_ALLOCATION, sizeof(*allocation));

	if (!allocation)
		return NULL;
	allocation->properties = *properties;
	allocation->properties.allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_NONE;
	allocation->size = size;
	allocation->host_fd = -1;
	if (properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
		allocation->device = sim_device(properties->location.id);
	sim_list_add(&allocations, &allocation->link);
	return allocation;
}

CUresult sim_allocation_make(const CUmemAllocationProp *properties, uint64_t size, struct sim_allocation **result)
{
	struct sim_allocation *allocation = new_allocation(properties, size);
	CUresult outcome;

	if (!allocation)
		return CUDA_ERROR_OUT_OF_MEMORY;
	outcome = fill(allocation);
	if (outcome != CUDA_SUCCESS) {
		sim_allocation_end_if_unused(allocation);
		return outcome;
	}
	allocation->handles = 1;
	*result = allocation;
	return CUDA_SUCCESS;
}

void sim_allocation_end_if_unused(struct sim_allocation *allocation)
{
	if (allocation->handles > 0 || allocation->uses > 0)
		return;
	sim_block_free(allocation->block);
	if (allocation->host_fd >= 0)
		close(allocation->host_fd);
	sim_list_remove(&allocation->link);
	sim_delete(allocation);
}

struct sim_allocation *sim_allocation_of(const struct sim_device *device, struct card_reference object)
{
	for (struct sim_link *link = allocations.next; link != &allocations; link = link->next) {
		struct sim_allocation *allocation = SIM_OF(link, struct sim_allocation, link);

		if (allocation->device == device && allocation->block && allocation->block->object.id == object.id)
			return allocation;
	}
	return NULL;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct sim_allocation *allocation;
	CUresult result;

	SIM_ENTER();
	SIM_INVALID_IF(!handle || size == 0 || size % SIM_FRAME != 0 || flags != 0);
	SIM_TRY(check_properties(prop));
	pthread_mutex_lock(&sim_memory_lock);
	result = sim_allocation_make(prop, size, &allocation);
	pthread_mutex_unlock(&sim_memory_lock);
	if (result == CUDA_SUCCESS)
		*handle = (uintptr_t)allocation;
	return result;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct sim_allocation *allocation;
	CUresult result;

	SIM_ENTER();
	if (sim_is((void *)(uintptr_t)handle, SIM_MULTICAST))
		return sim_multicast_release(handle);
	pthread_mutex_lock(&sim_memory_lock);
	result = sim_allocation_check(handle, &allocation);
	if (result == CUDA_SUCCESS) {
		allocation->handles--;
		sim_allocation_end_if_unused(allocation);
	}
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	struct vmm_mapping *mapping;

	SIM_ENTER();
	SIM_INVALID_IF(!handle);
	pthread_mutex_lock(&sim_memory_lock);
	mapping = sim_mapping_at((uintptr_t)addr);
	if (mapping) {
		mapping->allocation->handles++;
		*handle = (uintptr_t)mapping->allocation;
	}
	pthread_mutex_unlock(&sim_memory_lock);
	return mapping ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
	struct sim_allocation *allocation;
	CUresult result;

	SIM_ENTER();
	SIM_INVALID_IF(!prop);
	pthread_mutex_lock(&sim_memory_lock);
	result = sim_allocation_check(handle, &allocation);
	if (result == CUDA_SUCCESS)
		*prop = allocation->properties;
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

/* ---- between processes ------------------------------------------------------------ */

/* What an importer has to know: size, and the properties that fit in a word. */
static CUresult share(struct sim_allocation *allocation)
{
	const CUmemAllocationProp *properties = &allocation->properties;
	uint64_t info[5] = {allocation->size, properties->allocFlags.gpuDirectRDMACapable};

	return sim_block_share(allocation->block, CARD_OBJECT_VMM, info);
}

static CUresult export_fd(struct sim_allocation *allocation, int *fd)
{
	struct sim_device *device = allocation->device;

	SIM_INVALID_IF(!(allocation->properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	if (!device) {
		*fd = sim_duplicate(allocation->host_fd);
		return *fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
	}
	SIM_TRY(share(allocation));
	pthread_mutex_lock(&device->frames);
	*fd = card_object_export(&device->card, allocation->block->object);
	pthread_mutex_unlock(&device->frames);
	return *fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType handleType,
				      unsigned long long flags)
{
	struct sim_allocation *allocation;
	CUresult result;

	SIM_ENTER();
	SIM_INVALID_IF(!shareableHandle || flags != 0);
	if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || sim_is((void *)(uintptr_t)handle, SIM_MULTICAST))
		return CUDA_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&sim_memory_lock);
	result = sim_allocation_check(handle, &allocation);
	if (result == CUDA_SUCCESS)
		result = export_fd(allocation, shareableHandle);
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

static CUresult import_object(struct sim_device *device, struct card_reference reference, struct sim_allocation **result)
{
	CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal},
	};
	struct sim_allocation *allocation;
	struct card_object object;
	CUresult outcome;

	*result = sim_allocation_of(device, reference);
	if (*result)
		return CUDA_SUCCESS;
	SIM_INVALID_IF(card_object_look(&device->card, reference, &object) != 0 || object.kind != CARD_OBJECT_VMM);
	properties.allocFlags.gpuDirectRDMACapable = (unsigned char)object.info[1];
	allocation = new_allocation(&properties, object.info[0]);
	if (!allocation)
		return CUDA_ERROR_OUT_OF_MEMORY;
	outcome = sim_block_open(device, reference, object.frames, false, &allocation->block);
	if (outcome != CUDA_SUCCESS) {
		sim_allocation_end_if_unused(allocation);
		return outcome;
	}
	*result = allocation;
	return CUDA_SUCCESS;
}

static CUresult import_host(int fd, struct sim_allocation **result)
{
	CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA},
	};
	struct sim_allocation *allocation;
	uint64_t size;

	SIM_INVALID_IF(!sim_is_memfd(fd, "tranche-sim-vmm", &size) || size == 0 || size % SIM_FRAME != 0);
	allocation = new_allocation(&properties, size);
	if (!allocation)
		return CUDA_ERROR_OUT_OF_MEMORY;
	allocation->host_fd = sim_duplicate(fd);
	if (allocation->host_fd < 0) {
		sim_allocation_end_if_unused(allocation);
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	*result = allocation;
	return CUDA_SUCCESS;
}

CUresult sim_allocation_import(int fd, struct sim_allocation **allocation)
{
	struct card_reference reference;

	for (int i = 0; i < sim_device_count(); i++) {
		if (card_object_import(&sim_device(i)->card, fd, &reference) == 0)
			return import_object(sim_device(i), reference, allocation);
	}
	return import_host(fd, allocation);
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle, CUmemAllocationHandleType shHandleType)
{
	struct sim_allocation *allocation;
	CUresult result;

	SIM_ENTER();
	SIM_INVALID_IF(!handle);
	if (shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&sim_memory_lock);
	result = sim_allocation_import((int)(intptr_t)osHandle, &allocation);
	if (result == CUDA_SUCCESS) {
		allocation->handles++;
		*handle = (uintptr_t)allocation;
	}
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}
