/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocations of cuMemCreate. One is charged until the last handle, the last mapping and the last
 * binding to a multicast object are gone. Functions that take a reference do so
 * before the driver is called, and give it back where the driver refuses.
 */
#ifndef TRANCHE_VMM_H
#define TRANCHE_VMM_H

#include "card.h"

/* Physical memory. */
struct allocation;

/* A handle or a mapping at an address; with a reference for the caller, or NULL. */
struct allocation *allocation_of_handle(CUmemGenericAllocationHandle handle);
struct allocation *allocation_at(CUdeviceptr address);
void allocation_get(struct allocation *allocation);
/* Gives back a reference that nothing was done with. */
void allocation_put(struct allocation *allocation);

/* Several references that a call of the driver gives up. allocation_begin for each before
 * the call, allocation_end for each afterwards, then releases_end once. */
struct releases {
	struct hold doubt;  /* another process may hold it now */
	struct card *measure;
};
void allocation_begin(struct allocation *allocation);
void allocation_end(struct allocation *allocation, bool given_up, struct releases *releases);
void releases_end(struct releases *releases);
/* The driver gives it up only when a stream gets there: whether it has is to be
 * measured. */
void allocation_linger(struct allocation *allocation);

/* References that are kept for something else than a handle or a mapping: what, and which
 * part of it. Released by releasing what, or a range of it. */
struct bond;
bool bond_add(uint64_t what, int device, uint64_t offset, uint64_t size, struct allocation *allocation);
/* Takes out those in the range (device -1: of any), and begins to give their references
 * up; bonds_end ends it, or ties them again. */
struct bond *bonds_begin(uint64_t what, int device, uint64_t offset, uint64_t size);
void bonds_end(struct bond *bonds, bool given_up);

#endif
