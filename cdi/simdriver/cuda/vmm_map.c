/* SPDX-License-Identifier: Apache-2.0
 *
 * Reservations of addresses, and what is mapped there.
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

CUdeviceptr sim_vmm_base_of(const struct vmm_reservation *reservation, const struct vmm_mapping *mapping)
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

struct vmm_reservation *sim_vmm_around(CUdeviceptr address, uint64_t size)
{
	struct vmm_reservation *reservation = reservation_at(address);

	if (!reservation || size == 0 || address % SIM_FRAME != 0 || size % SIM_FRAME != 0)
		return NULL;
	return size <= reservation->range.base + reservation->range.size - address ? reservation : NULL;
}

static CUresult map(CUdeviceptr address, uint64_t size, struct sim_allocation *allocation)
{
	struct vmm_reservation *reservation = sim_vmm_around(address, size);
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

bool sim_vmm_whole_mappings(const struct vmm_reservation *reservation, uint64_t first, uint64_t count)
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

	sim_unmap(sim_vmm_base_of(reservation, mapping), mapping->count);
	for (uint64_t i = 0; i < mapping->count; i++)
		reservation->mapping[mapping->first + i] = NULL;
	free(mapping);
	allocation->uses--;
	sim_allocation_end_if_unused(allocation);
}

static CUresult unmap(CUdeviceptr address, uint64_t size)
{
	struct vmm_reservation *reservation = sim_vmm_around(address, size);
	uint64_t first, count = size / SIM_FRAME;

	SIM_INVALID_IF(!reservation);
	first = (address - reservation->range.base) / SIM_FRAME;
	SIM_INVALID_IF(!sim_vmm_whole_mappings(reservation, first, count));
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
