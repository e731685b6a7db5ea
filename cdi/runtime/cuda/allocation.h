/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of vmm.h.
 */
#ifndef TRANCHE_ALLOCATION_H
#define TRANCHE_ALLOCATION_H

#include "vmm.h"

/* Physical memory, or a multicast object. */
struct allocation {
	struct card *card;
	struct hold hold; /* empty: imported */
	uint64_t references;
	uint64_t exports; /* that were made, or are being made */
	bool lingers;     /* the driver keeps it until a stream gets there */
	bool multicast;
};

/* A handle, or a mapping. Both are found by a number. */
struct named {
	struct named *next;
	uint64_t name; /* handle, or address */
	uint64_t size; /* of a mapping */
	uint64_t count; /* references of the program to the handle */
	struct allocation *allocation;
};

/* Before the driver is asked for a descriptor; and after it refused one. Needs a reference. */
void allocation_export(struct allocation *allocation);
void allocation_unexport(struct allocation *allocation);

/* The program has one more reference by this handle; it takes over the caller's
 * reference. Imported into the process that made it, memory has the handle that it has
 * already, and false says that the reference was not needed. */
bool handle_add(CUmemGenericAllocationHandle handle, struct allocation *allocation);

/* Takes one of the program's references away; NULL: the handle is not known. */
struct allocation *handle_remove(CUmemGenericAllocationHandle handle);

/* After memory was imported: CUDA_ERROR_OUT_OF_MEMORY where nobody else was charged for it
 * any more and the card's shares have no room. The import is then to be undone. implicit is what the
 * process held before, by card_undoubted. */
CUresult import_admit(struct card *card, uint64_t implicit);

void mapping_add(struct named *mapping);
/* All mappings in a range, which mappings cover one after the other. */
struct named *mappings_remove(CUdeviceptr address, size_t size);

#endif
