/* SPDX-License-Identifier: Apache-2.0
 *
 * Reservations of addresses, and what is mapped there. The memory can be touched once
 * cuMemSetAccess allows it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "vmm.h"

static uint64_t next_id = (uint64_t)3 << 40;

static struct vmm_reservation *reservation_at(CUdeviceptr address)
{
	struct sim_range *range = sim_range_at(address);

	return range && range->type == SIM_RANGE_RESERVED ? range->owner : NULL;
}

static CUdeviceptr base_of(const struct vmm_reservation *reservation, const struct vmm_mapping *mapping)
{
	return reservation->range.base + mapping->first * SIM_FRAME;
}

struct vmm_mapping *sim_mapping_at(CUdeviceptr address)
{
	struct vmm_reservation *reservation = reservation_at(address);

	return reservation ? reservation->mapping[(address - reservation->range.base) / SIM_FRAME] : NULL;
}

/* ---- reservations ------------------------------------------------------------------- */

/* Addresses by the kernel's choice, or exactly at hint; 0: not to be had. */
static CUdeviceptr reserve_apart(uint64_t size, uint64_t alignment, CUdeviceptr hint)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (hint ? MAP_FIXED_NOREPLACE : 0);
	uint64_t more = hint ? 0 : alignment;
	char *start = mmap((void *)(uintptr_t)hint, size + more, PROT_NONE, flags, -1, 0);
	char *aligned;

	if (start == MAP_FAILED)
		return 0;
	/* Older kernels take the hint for one. */
	if (hint && (uintptr_t)start != hint) {
		munmap(start, size);
		return 0;
	}
	aligned = hint ? start : (char *)sim_round_up((uintptr_t)start, alignment);
	if (aligned > start)
		munmap(start, (size_t)(aligned - start));
	if (start + size + more > aligned + size)
		munmap(aligned + size, (size_t)(start + more - aligned));
	return (uintptr_t)aligned;
}

static void give_addresses(const struct vmm_reservation *reservation)
{
	if (reservation->apart)
		munmap((void *)(uintptr_t)reservation->range.base, reservation->range.span);
	else
		sim_address_give(reservation->range.base, reservation->range.span / SIM_FRAME);
}

static void take_addresses(struct vmm_reservation *reservation, uint64_t size, uint64_t alignment, CUdeviceptr hint)
{
	struct sim_range *range = &reservation->range;

	if (hint && hint % alignment == 0 && !sim_range_at(hint)) {
		range->base = reserve_apart(size, alignment, hint);
		reservation->apart = range->base != 0;
	}
	if (!range->base && alignment <= SIM_FRAME)
		range->base = sim_address_take(size / SIM_FRAME);
	if (!range->base) {
		range->base = reserve_apart(size, alignment, 0);
		reservation->apart = true;
	}
}

static CUresult reserve(uint64_t size, uint64_t alignment, CUdeviceptr hint, CUdeviceptr *address)
{
	struct vmm_reservation *reservation;
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	if (size > (uint64_t)1 << 46)
		return result;
	reservation = calloc(1, sizeof(*reservation) + size / SIM_FRAME * sizeof(struct vmm_mapping *));
	if (!reservation)
		return result;
	reservation->range = (struct sim_range){.type = SIM_RANGE_RESERVED, .size = size, .span = size, .owner = reservation};
	take_addresses(reservation, size, alignment, hint);
	if (reservation->range.base) {
		result = sim_range_add(&reservation->range);
		if (result != CUDA_SUCCESS)
			give_addresses(reservation);
	}
	if (result != CUDA_SUCCESS) {
		free(reservation);
		return result;
	}
	*address = reservation->range.base;
	return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long flags)
{
	CUresult result;

	SIM_ENTER();
	SIM_INVALID_IF(!ptr || size == 0 || size % SIM_FRAME != 0 || (alignment & (alignment - 1)) != 0 || flags != 0);
	if (alignment < SIM_FRAME)
		alignment = SIM_FRAME;
	pthread_mutex_lock(&sim_memory_lock);
	result = reserve(size, alignment, addr, ptr);
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

static CUresult free_reservation(CUdeviceptr address, uint64_t size)
{
	struct vmm_reservation *reservation = reservation_at(address);

	SIM_INVALID_IF(!reservation || reservation->range.base != address || reservation->range.size != size);
	for (uint64_t i = 0; i < size / SIM_FRAME; i++)
		SIM_INVALID_IF(reservation->mapping[i]);
	sim_range_remove(&reservation->range);
	give_addresses(reservation);
	free(reservation);
	return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	CUresult result;

	SIM_ENTER();
	pthread_mutex_lock(&sim_memory_lock);
	result = free_reservation(ptr, size);
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

/* ---- mappings -------------------------------------------------------------------------- */

/* The reservation that has all of a range of frames; NULL: none. */
static struct vmm_reservation *around(CUdeviceptr address, uint64_t size)
{
	struct vmm_reservation *reservation = reservation_at(address);

	if (!reservation || size == 0 || address % SIM_FRAME != 0 || size % SIM_FRAME != 0)
		return NULL;
	return size <= reservation->range.base + reservation->range.size - address ? reservation : NULL;
}

static CUresult map(CUdeviceptr address, uint64_t size, struct sim_allocation *allocation)
{
	struct vmm_reservation *reservation = around(address, size);
	struct vmm_mapping *mapping;
	uint64_t first;

	SIM_INVALID_IF(!reservation || size > allocation->size);
	first = (address - reservation->range.base) / SIM_FRAME;
	for (uint64_t i = 0; i < size / SIM_FRAME; i++)
		SIM_INVALID_IF(reservation->mapping[first + i]);
	mapping = calloc(1, sizeof(*mapping));
	if (!mapping)
		return CUDA_ERROR_OUT_OF_MEMORY;
	mapping->allocation = allocation;
	mapping->first = first;
	mapping->count = size / SIM_FRAME;
	mapping->id = ++next_id;
	for (uint64_t i = 0; i < mapping->count; i++)
		reservation->mapping[first + i] = mapping;
	allocation->uses++;
	return CUDA_SUCCESS;
}

/* The offset must be 0, as it is documented. */
CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct sim_allocation *allocation;
	CUresult result;

	SIM_ENTER();
	SIM_INVALID_IF(offset != 0 || flags != 0);
	/* What is written there would have to reach several cards. */
	if (sim_is((void *)(uintptr_t)handle, SIM_MULTICAST))
		return CUDA_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&sim_memory_lock);
	result = sim_allocation_check(handle, &allocation);
	if (result == CUDA_SUCCESS)
		result = map(ptr, size, allocation);
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

/* Whether a range of frames is mapped, by whole mappings. */
static bool whole_mappings(const struct vmm_reservation *reservation, uint64_t first, uint64_t count)
{
	uint64_t at = first;

	while (at < first + count) {
		const struct vmm_mapping *mapping = reservation->mapping[at];

		if (!mapping || mapping->first != at)
			return false;
		at += mapping->count;
	}
	return at == first + count;
}

static void unmap_one(struct vmm_reservation *reservation, struct vmm_mapping *mapping)
{
	struct sim_allocation *allocation = mapping->allocation;

	sim_unmap(base_of(reservation, mapping), mapping->count);
	for (uint64_t i = 0; i < mapping->count; i++)
		reservation->mapping[mapping->first + i] = NULL;
	free(mapping);
	allocation->uses--;
	sim_allocation_end_if_unused(allocation);
}

static CUresult unmap(CUdeviceptr address, uint64_t size)
{
	struct vmm_reservation *reservation = around(address, size);
	uint64_t first, count = size / SIM_FRAME;

	SIM_INVALID_IF(!reservation);
	first = (address - reservation->range.base) / SIM_FRAME;
	SIM_INVALID_IF(!whole_mappings(reservation, first, count));
	for (uint64_t at = first; at < first + count;) {
		struct vmm_mapping *mapping = reservation->mapping[at];

		at += mapping->count;
		unmap_one(reservation, mapping);
	}
	return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	CUresult result;

	SIM_ENTER();
	/* Work that was submitted before may still use the memory. */
	for (int i = 0; i < sim_device_count(); i++)
		SIM_TRY(engine_device_wait(sim_device(i)));
	pthread_mutex_lock(&sim_memory_lock);
	result = unmap(ptr, size);
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

/* ---- access ------------------------------------------------------------------------------ */

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
	CUdeviceptr base = base_of(reservation, mapping);
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
	struct vmm_reservation *reservation = around(address, size);
	uint64_t first, end;

	SIM_INVALID_IF(!reservation);
	first = (address - reservation->range.base) / SIM_FRAME;
	end = first + size / SIM_FRAME;
	SIM_INVALID_IF(!whole_mappings(reservation, first, end - first));
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
	found->base = base_of(reservation, mapping);
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
