/* SPDX-License-Identifier: Apache-2.0
 *
 * Who may access a mapping. The memory can be touched once cuMemSetAccess allows it.
 */
#include <sys/mman.h>

#include "vmm.h"

/* The number that a location has in vmm_mapping.access, -1: it has none. */
static int access_slot(const CUmemLocation *location)
{
	switch (location->type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		return sim_device(location->id) ? location->id : -1;
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
		return CARD_MAX;
	default:
		return -1;
	}
}

static CUresult check_access(const CUmemAccessDesc *desc)
{
	if (desc->location.type == CU_MEM_LOCATION_TYPE_DEVICE && !sim_device(desc->location.id))
		return CUDA_ERROR_INVALID_DEVICE;
	SIM_INVALID_IF(access_slot(&desc->location) < 0);
	SIM_INVALID_IF(desc->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
		       desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	return CUDA_SUCCESS;
}

/* What anybody may do there. */
static unsigned access_of(const struct vmm_mapping *mapping)
{
	unsigned flags = 0;

	for (size_t i = 0; i < SIM_ARRAY_SIZE(mapping->access); i++)
		flags |= mapping->access[i];
	return flags;
}

static int protection_of(unsigned access)
{
	return (access & CU_MEM_ACCESS_FLAGS_PROT_READ ? PROT_READ : 0) |
	       (access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE : 0);
}

static CUresult map_host(CUdeviceptr address, const struct vmm_mapping *mapping, int protection)
{
	void *place = (void *)(uintptr_t)address;

	if (mmap(place, mapping->count * SIM_FRAME, protection, MAP_SHARED | MAP_FIXED, mapping->allocation->host_fd, 0) == MAP_FAILED) {
		sim_unmap(address, mapping->count);
		return CUDA_ERROR_MAP_FAILED;
	}
	return CUDA_SUCCESS;
}

static CUresult set_access(const struct vmm_reservation *reservation, struct vmm_mapping *mapping, const CUmemAccessDesc *desc, size_t count)
{
	CUdeviceptr base = sim_vmm_base_of(reservation, mapping);
	unsigned before = access_of(mapping);
	unsigned after;

	for (size_t i = 0; i < count; i++)
		mapping->access[access_slot(&desc[i].location)] = desc[i].flags;
	after = access_of(mapping);
	if (after == before)
		return CUDA_SUCCESS;
	if (after == 0)
		sim_unmap(base, mapping->count);
	else if (mapping->allocation->device)
		return sim_map(mapping->allocation->device, base, mapping->allocation->block->frames, mapping->count, protection_of(after));
	else
		return map_host(base, mapping, protection_of(after));
	return CUDA_SUCCESS;
}

static CUresult set_all(CUdeviceptr address, uint64_t size, const CUmemAccessDesc *desc, size_t count)
{
	struct vmm_reservation *reservation = sim_vmm_around(address, size);
	uint64_t first, end;

	SIM_INVALID_IF(!reservation);
	first = (address - reservation->range.base) / SIM_FRAME;
	end = first + size / SIM_FRAME;
	SIM_INVALID_IF(!sim_vmm_whole_mappings(reservation, first, end - first));
	for (size_t i = 0; i < count; i++)
		SIM_TRY(check_access(&desc[i]));
	while (first < end) {
		struct vmm_mapping *mapping = reservation->mapping[first];

		SIM_TRY(set_access(reservation, mapping, desc, count));
		first += mapping->count;
	}
	return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	CUresult result;

	SIM_ENTER();
	SIM_INVALID_IF(!desc || count == 0);
	pthread_mutex_lock(&sim_memory_lock);
	result = set_all(ptr, size, desc, count);
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
	const struct vmm_mapping *mapping;

	SIM_ENTER();
	SIM_INVALID_IF(!flags || !location || access_slot(location) < 0);
	pthread_mutex_lock(&sim_memory_lock);
	mapping = sim_mapping_at(ptr);
	if (mapping)
		*flags = mapping->access[access_slot(location)];
	pthread_mutex_unlock(&sim_memory_lock);
	return mapping ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- questions --------------------------------------------------------------------------- */

bool sim_vmm_find(const struct sim_range *range, CUdeviceptr address, struct sim_found *found)
{
	const struct vmm_reservation *reservation = range->owner;
	const struct vmm_mapping *mapping = reservation->mapping[(address - range->base) / SIM_FRAME];

	if (!mapping)
		return false;
	found->base = sim_vmm_base_of(reservation, mapping);
	found->size = mapping->count * SIM_FRAME;
	found->id = mapping->id;
	found->device = mapping->allocation->device;
	return true;
}

bool sim_vmm_accessible(const struct sim_range *range, CUdeviceptr address, uint64_t bytes, int *device)
{
	const struct vmm_reservation *reservation = range->owner;
	uint64_t offset = address - range->base;
	const struct vmm_mapping *mapping = reservation->mapping[offset / SIM_FRAME];

	if (bytes > range->size - offset)
		return false;
	*device = mapping && mapping->allocation->device ? mapping->allocation->device->ordinal : -1;
	for (uint64_t at = offset / SIM_FRAME; at * SIM_FRAME < offset + bytes; at = mapping->first + mapping->count) {
		mapping = reservation->mapping[at];
		if (!mapping || access_of(mapping) == 0)
			return false;
	}
	return mapping != NULL;
}

uint64_t sim_handle_types_of(const struct sim_found *found, CUdeviceptr address)
{
	const struct vmm_mapping *mapping = sim_mapping_at(address);

	if (mapping)
		return mapping->allocation->properties.requestedHandleTypes;
	return sim_pool_handle_types(found->range);
}
