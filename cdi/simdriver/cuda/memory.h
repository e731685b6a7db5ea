/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the files of the memory half.
 *
 * One lock, sim_memory_lock, is around everything that is declared here. It is
 * not held while the engine is asked to wait.
 */
#ifndef TRANCHE_SIM_MEMORY_H
#define TRANCHE_SIM_MEMORY_H

#include "card/objects.h"
#include "engine.h"
#include "sim.h"

#define SIM_FRAME ((uint64_t)SIMCARD_FRAME)

extern pthread_mutex_t sim_memory_lock;

static inline uint64_t sim_round_up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) / unit * unit;
}

/* ---- lists ------------------------------------------------------------------ */

static inline void sim_list_init(struct sim_link *list)
{
	list->next = list->previous = list;
}

static inline void sim_list_add(struct sim_link *list, struct sim_link *link)
{
	link->next = list->next;
	link->previous = list;
	list->next->previous = link;
	list->next = link;
}

static inline void sim_list_remove(struct sim_link *link)
{
	if (!link->next)
		return;
	link->next->previous = link->previous;
	link->previous->next = link->next;
	link->next = link->previous = NULL;
}

#define SIM_OF(link, type, member) ((type *)(void *)((char *)(link) - offsetof(type, member)))

/* ---- devices ------------------------------------------------------------------ */

/* Takes the process's slot on the card, if it has none yet. Every holder of memory
 * calls it first. */
CUresult sim_device_use(struct sim_device *device);

/* ---- addresses (address.c) ------------------------------------------------------ */

/* Addresses for whole frames, nothing mapped there. 0: none left. */
CUdeviceptr sim_address_take(uint64_t frames);
/* Unmaps what is there. */
void sim_address_give(CUdeviceptr address, uint64_t frames);

/* Maps frames of a device one after the other. */
CUresult sim_map(struct sim_device *device, CUdeviceptr address, const uint32_t *frames, uint64_t count, int protection);
/* Takes the mappings away, the addresses stay taken. */
void sim_unmap(CUdeviceptr address, uint64_t frames);

/* ---- blocks (block.c) ------------------------------------------------------------ */

/* Whole frames of one card, and where they are mapped. */
struct sim_block {
	struct sim_device *device;
	CUdeviceptr address; /* 0: nowhere */
	uint64_t count;
	struct card_reference object; /* id 0: no other process can have it */
	uint32_t *frames;
};

/* A block of at least bytes; *result is mapped if mapped says so. */
CUresult sim_block_make(struct sim_device *device, enum simcard_kind kind, uint64_t bytes, bool mapped, struct sim_block **result);
/* A block of count frames, the first have of which the process holds already; on an error they
 * go back to the card. */
CUresult sim_block_make_of(struct sim_device *device, enum simcard_kind kind, const uint32_t *frames, uint64_t have, uint64_t count,
			   bool mapped, struct sim_block **result);
/* The frames of an object that another process (or this one) made. */
CUresult sim_block_open(struct sim_device *device, struct card_reference object, uint64_t count, bool mapped, struct sim_block **result);
/* Makes an object of the block, once. */
CUresult sim_block_share(struct sim_block *block, enum card_object_kind kind, const uint64_t info[5]);
void sim_block_free(struct sim_block *block);

/* ---- ranges (range.c) ------------------------------------------------------------- */

enum sim_range_type {
	SIM_RANGE_SLAB,   /* frames with small allocations */
	SIM_RANGE_LINEAR, /* one allocation */
	SIM_RANGE_POOL,   /* a segment of a pool */
	SIM_RANGE_ARRAY,
	SIM_RANGE_MODULE,
	SIM_RANGE_RESERVED, /* cuMemAddressReserve */
	SIM_RANGE_IPC,
	SIM_RANGE_EXTERNAL,
	SIM_RANGE_GRAPH,
	SIM_RANGE_HOST, /* memory of the host that the driver knows */
};

/* What is at some addresses. Ranges of the card have whole frames for themselves. */
struct sim_range {
	enum sim_range_type type;
	CUdeviceptr base;
	uint64_t size; /* what the program asked for */
	uint64_t span; /* what the addresses take; of the card: from the first frame on */
	uint64_t id;   /* CU_POINTER_ATTRIBUTE_BUFFER_ID */
	struct sim_device *device;
	struct CUctx_st *context; /* may be NULL: pools, reservations */
	struct sim_block *block;  /* may be NULL */
	bool managed;
	bool sync_memops;
	unsigned flags; /* of the call that made it */
	void *owner;    /* slab, segment, reservation, ... by type */
	struct sim_link in_context;
};

/* Ranges of the card. */
CUresult sim_range_add(struct sim_range *range);
void sim_range_remove(struct sim_range *range);
struct sim_range *sim_range_at(CUdeviceptr address);

/* Ranges of the host: any addresses, not overlapping. */
CUresult sim_host_add(struct sim_range *range);
void sim_host_remove(struct sim_range *range);
struct sim_range *sim_host_at(CUdeviceptr address);
/* The first host range that has an address in [address, address + bytes). */
struct sim_range *sim_host_overlap(CUdeviceptr address, uint64_t bytes);

/* The allocation at an address, of whatever kind: its first address and size. */
struct sim_found {
	struct sim_range *range;
	struct sim_device *device; /* NULL: memory of the host */
	CUdeviceptr base;
	uint64_t size;
	uint64_t id;
};

CUresult sim_find(CUdeviceptr address, struct sim_found *found);

/* ---- small allocations (slab.c) ------------------------------------------------------ */

#define SIM_SLAB_UNIT 256u
#define SIM_SMALL_MAX (1u << 20)

CUresult sim_slab_alloc(struct CUctx_st *context, bool managed, uint64_t bytes, CUdeviceptr *address);
/* INVALID_VALUE: no allocation begins there. */
CUresult sim_slab_free(struct sim_range *range, CUdeviceptr address);
bool sim_slab_find(const struct sim_range *range, CUdeviceptr address, struct sim_found *found);
/* Frees the frame; the range was removed. */
void sim_slab_delete(struct sim_range *range);

/* ---- contexts ------------------------------------------------------------------------ */

/* What a context holds. */
struct sim_memory {
	struct CUctx_st *context;
	struct sim_link link;          /* among sim_contexts */
	struct sim_block *own;         /* context_bytes */
	struct sim_block *limits[3];   /* stack, printf, heap beyond the default */
	struct sim_link slabs[2];      /* linear, managed; those with room first */
	struct sim_link ranges;        /* sim_range.in_context */
	struct sim_link arrays;        /* CUarray_st, array.c */
	struct sim_link mipmaps;       /* CUmipmappedArray_st */
	struct sim_link modules;       /* CUmod_st, module.c */
	struct sim_link imports;       /* external memory, external.c */
};

/* The memory of all contexts that are alive. */
extern struct sim_link sim_contexts;

/* Frees everything that a context holds. Takes the lock. */
void sim_context_empty(struct CUctx_st *context);
void sim_context_free_ranges(struct CUctx_st *context);
void sim_context_free_arrays(struct CUctx_st *context);
void sim_context_free_modules(struct CUctx_st *context);
void sim_context_free_imports(struct CUctx_st *context);

/* Frees one range that a context holds, whatever it is. */
void sim_range_free(struct sim_range *range);

/* Frees a buffer of external memory, whose range was removed (external.c). */
void sim_external_free(struct sim_range *range);

/* The variable of a module at an address (module.c). */
bool sim_module_find(const struct sim_range *range, CUdeviceptr address, struct sim_found *found);

/* Frees the memory and addresses of a graph's range, which was removed (memory_graph.c). */
void sim_graph_range_free(struct sim_range *range);

/* ---- pools ------------------------------------------------------------------------------ */

bool sim_pool_find(const struct sim_range *range, CUdeviceptr address, struct sim_found *found);
uint64_t sim_pool_handle_types(const struct sim_range *range);
CUmemoryPool sim_pool_of(const struct sim_range *range);
/* The device's last context is gone: what its pools hold is freed. */
void sim_pools_reset(struct sim_device *device);

/* CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES (vmm_access.c). */
uint64_t sim_handle_types_of(const struct sim_found *found, CUdeviceptr address);

/* ---- reservations and mappings ----------------------------------------------------------- */

bool sim_vmm_find(const struct sim_range *range, CUdeviceptr address, struct sim_found *found);
/* Whether bytes from address on are mapped and may be accessed. *device: where the first is. */
bool sim_vmm_accessible(const struct sim_range *range, CUdeviceptr address, uint64_t bytes, int *device);

#endif
