/* SPDX-License-Identifier: Apache-2.0
 *
 * Virtual memory management, between its files: allocations, and reservations of addresses
 * with mappings. An allocation lives while it has handles, mappings or
 * bindings to a multicast object.
 */
#ifndef TRANCHE_SIM_VMM_H
#define TRANCHE_SIM_VMM_H

#include "memory.h"

struct sim_allocation {
	struct sim_handle handle; /* SIM_ALLOCATION */
	CUmemAllocationProp properties;
	uint64_t size;
	unsigned handles;
	unsigned uses; /* mappings, bindings, imports as external memory */
	struct sim_device *device; /* NULL: memory of the host */
	struct sim_block *block;
	int host_fd; /* of the host's memory */
	struct sim_link link; /* among all allocations */
};

/* A part of a reservation that is mapped as a whole. */
struct vmm_mapping {
	struct sim_allocation *allocation;
	uint64_t first, count; /* frames of the reservation */
	uint64_t id;
	CUmemAccess_flags access[CARD_MAX + 1]; /* by device; the last is the host's */
};

struct vmm_reservation {
	struct sim_range range;
	bool apart; /* mapped by itself, not from the addresses of address.c */
	struct vmm_mapping *mapping[]; /* by frame */
};

/* INVALID_VALUE: not a handle that the program has. */
CUresult sim_allocation_check(CUmemGenericAllocationHandle handle, struct sim_allocation **allocation);
/* Frees an allocation that nothing uses any more. */
void sim_allocation_end_if_unused(struct sim_allocation *allocation);
CUresult sim_allocation_make(const CUmemAllocationProp *properties, uint64_t size, struct sim_allocation **allocation);
/* The process's allocation that is an object, or NULL. */
struct sim_allocation *sim_allocation_of(const struct sim_device *device, struct card_reference object);
/* The allocation that a descriptor stands for, of whichever device; made if the process does not have it. */
CUresult sim_allocation_import(int fd, struct sim_allocation **allocation);

/* cuMemRelease of a multicast object. Takes the lock. */
CUresult sim_multicast_release(CUmemGenericAllocationHandle handle);

/* The reservation that has all of a range of frames, or NULL. */
struct vmm_reservation *sim_vmm_around(CUdeviceptr address, uint64_t size);
/* Whether some of its frames are mapped, by whole mappings. */
bool sim_vmm_whole_mappings(const struct vmm_reservation *reservation, uint64_t first, uint64_t count);
CUdeviceptr sim_vmm_base_of(const struct vmm_reservation *reservation, const struct vmm_mapping *mapping);

/* The mapping at an address, or NULL. */
struct vmm_mapping *sim_mapping_at(CUdeviceptr address);

#endif
