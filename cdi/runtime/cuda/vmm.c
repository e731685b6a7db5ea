/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm.h"

#include <stdlib.h>

#include "charge.h"
#include "taking.h"
#include "zz_generated_hooks.h"

#define BUCKETS 256

struct allocation {
	struct card *card;
	struct hold hold; /* empty: imported */
	uint64_t references;
	bool exported;
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

static struct named *handles[BUCKETS];
static struct named *mappings[BUCKETS];
static struct lock lock;

static struct named **bucket_of(struct named **table, uint64_t name)
{
	return &table[((name >> 4) ^ (name >> 21)) % BUCKETS];
}

/* Under the lock. */
static struct named **find(struct named **table, uint64_t name)
{
	struct named **link = bucket_of(table, name);

	while (*link && (*link)->name != name)
		link = &(*link)->next;
	return link;
}

static void insert(struct named **table, struct named *named)
{
	struct named **bucket = bucket_of(table, named->name);

	named->next = *bucket;
	*bucket = named;
}

void allocation_get(struct allocation *allocation)
{
	__atomic_add_fetch(&allocation->references, 1, __ATOMIC_RELAXED);
}

void allocation_begin(struct allocation *allocation)
{
	if (allocation->card)
		card_begin(allocation->card);
}

void allocation_linger(struct allocation *allocation)
{
	__atomic_store_n(&allocation->exported, true, __ATOMIC_RELAXED);
}

void releases_end(struct releases *releases)
{
	if (releases->doubt.bytes != 0)
		hold_measure(&releases->doubt, releases->doubt.card, true);
	else if (releases->measure)
		hold_measure(NULL, releases->measure, false);
	releases->measure = NULL;
}

/* What the driver no longer holds for us, but may hold for another process. */
static void put_in_doubt(struct hold *hold, struct releases *releases)
{
	if (releases->doubt.bytes != 0 && releases->doubt.card != hold->card)
		releases_end(releases); /* rare: one call about memory of two cards */
	hold_doubt(hold);
	card_end(hold->card);
	hold_merge(&releases->doubt, hold);
}

void allocation_end(struct allocation *allocation, bool given_up, struct releases *releases)
{
	struct card *card = allocation->card;

	if (!given_up || __atomic_sub_fetch(&allocation->references, 1, __ATOMIC_ACQ_REL) != 0) {
		if (card)
			card_end(card);
		return;
	}
	if (allocation->hold.bytes == 0) {
		/* Imported: its maker may have left it to us in the meantime. */
		releases->measure = card;
		if (card)
			card_end(card);
	} else if (allocation->exported) {
		put_in_doubt(&allocation->hold, releases);
	} else {
		hold_end(&allocation->hold, false);
	}
	free(allocation);
}

void allocation_put(struct allocation *allocation)
{
	struct releases releases = { .measure = NULL };

	allocation_begin(allocation);
	allocation_end(allocation, true, &releases);
	releases_end(&releases);
}

struct allocation *allocation_of_handle(CUmemGenericAllocationHandle handle)
{
	struct allocation *allocation = NULL;
	struct named *named;

	if (cards_ready() != CUDA_SUCCESS)
		return NULL;
	lock_take(&lock);
	named = *find(handles, handle);
	if (named) {
		allocation = named->allocation;
		allocation_get(allocation);
	}
	lock_give(&lock);
	return allocation;
}

struct allocation *allocation_at(CUdeviceptr address)
{
	struct allocation *allocation = NULL;

	if (cards_ready() != CUDA_SUCCESS)
		return NULL;
	lock_take(&lock);
	/* Addresses in the middle of a mapping are asked for rarely: all are looked at. */
	for (size_t i = 0; i < BUCKETS && !allocation; i++)
		for (struct named *named = mappings[i]; named && !allocation; named = named->next)
			if (address - named->name < named->size)
				allocation = named->allocation;
	if (allocation)
		allocation_get(allocation);
	lock_give(&lock);
	return allocation;
}

/* The program has one more reference by this handle; it takes over the caller's
 * reference. Imported into the process that made it, memory has the handle that it has
 * already, and false says that the reference was not needed. */
static bool add_handle(CUmemGenericAllocationHandle handle, struct allocation *allocation)
{
	struct named *fresh = calloc(1, sizeof(*fresh));
	bool taken = true;
	struct named *named;

	lock_take(&lock);
	named = *find(handles, handle);
	if (named) {
		named->count++;
		taken = named->allocation == allocation;
		if (!taken)
			allocation_get(named->allocation);
	} else if (fresh) {
		*fresh = (struct named){ .name = handle, .count = 1, .allocation = allocation };
		insert(handles, fresh);
		fresh = NULL;
	}
	lock_give(&lock);
	free(fresh);
	return taken;
}

/* Takes one of the program's references away; NULL: the handle is not known. */
static struct allocation *remove_handle(CUmemGenericAllocationHandle handle)
{
	struct allocation *allocation = NULL;
	struct named **link, *named, *last = NULL;

	if (cards_ready() != CUDA_SUCCESS)
		return NULL;
	lock_take(&lock);
	link = find(handles, handle);
	named = *link;
	if (named) {
		allocation = named->allocation;
		if (--named->count == 0) {
			*link = named->next;
			last = named;
		}
	}
	lock_give(&lock);
	free(last);
	return allocation;
}

static CUresult create(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop, unsigned long long flags,
		       struct card *card)
{
	struct allocation *allocation = calloc(1, sizeof(*allocation));
	struct taking taking;
	CUresult result;

	if (!allocation)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = taking_begin_on(&taking, card, &allocation->hold, frames_of(size));
	if (result == CUDA_SUCCESS)
		do
			result = real_cuMemCreate(handle, size, prop, flags);
		while (taking_again(&taking, &result));
	if (result != CUDA_SUCCESS || taking.plain) {
		free(allocation);
		return result;
	}
	allocation->card = card;
	allocation->references = 1;
	add_handle(*handle, allocation);
	taking_end(&taking);
	return result;
}

CUresult hook_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop, unsigned long long flags)
{
	CUresult result = cards_ready();
	struct card *card;

	if (result != CUDA_SUCCESS)
		return result;
	if (!handle || !prop || size == 0 || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return real_cuMemCreate(handle, size, prop, flags);
	card = card_of(prop->location.id);
	if (!card)
		return real_cuMemCreate(handle, size, prop, flags);
	result = card_connect(card);
	return result == CUDA_SUCCESS ? create(handle, size, prop, flags, card) : result;
}

CUresult hook_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle, CUmemAllocationHandleType shHandleType)
{
	CUresult result = cards_ready();
	struct allocation *allocation;
	CUmemAllocationProp prop;

	if (result == CUDA_SUCCESS)
		result = real_cuMemImportFromShareableHandle(handle, osHandle, shHandleType);
	if (result != CUDA_SUCCESS)
		return result;
	allocation = calloc(1, sizeof(*allocation));
	if (!allocation)
		return result;
	allocation->references = 1;
	if (real_cuMemGetAllocationPropertiesFromHandle(&prop, *handle) == CUDA_SUCCESS &&
	    prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE)
		allocation->card = card_of(prop.location.id);
	if (!add_handle(*handle, allocation))
		free(allocation);
	return result;
}

CUresult hook_cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
					   CUmemAllocationHandleType handleType, unsigned long long flags)
{
	CUresult result = real_cuMemExportToShareableHandle(shareableHandle, handle, handleType, flags);
	struct allocation *allocation = result == CUDA_SUCCESS ? allocation_of_handle(handle) : NULL;

	if (allocation) {
		__atomic_store_n(&allocation->exported, true, __ATOMIC_RELAXED);
		allocation_put(allocation);
	}
	return result;
}

CUresult hook_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	struct allocation *allocation = allocation_at((CUdeviceptr)(uintptr_t)addr);
	CUresult result = real_cuMemRetainAllocationHandle(handle, addr);

	if (!allocation)
		return result;
	if (result != CUDA_SUCCESS || !add_handle(*handle, allocation))
		allocation_put(allocation);
	return result;
}

CUresult hook_cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct releases releases = { .measure = NULL };
	struct allocation *allocation = remove_handle(handle);
	struct bond *bonds = NULL;
	CUresult result;

	if (!allocation)
		return real_cuMemRelease(handle);
	allocation_begin(allocation);
	if (allocation->multicast && __atomic_load_n(&allocation->references, __ATOMIC_ACQUIRE) == 1)
		bonds = bonds_begin(handle, -1, 0, UINT64_MAX);
	result = real_cuMemRelease(handle);
	bonds_end(bonds, result == CUDA_SUCCESS);
	if (result != CUDA_SUCCESS)
		add_handle(handle, allocation);
	allocation_end(allocation, result == CUDA_SUCCESS, &releases);
	releases_end(&releases);
	return result;
}

CUresult hook_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct allocation *allocation = allocation_of_handle(handle);
	struct named *mapping = allocation ? calloc(1, sizeof(*mapping)) : NULL;
	CUresult result;

	if (allocation && !mapping) {
		allocation_put(allocation);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	result = real_cuMemMap(ptr, size, offset, handle, flags);
	if (!mapping)
		return result;
	if (result != CUDA_SUCCESS) {
		free(mapping);
		allocation_put(allocation);
		return result;
	}
	*mapping = (struct named){ .name = ptr, .size = size, .allocation = allocation };
	lock_take(&lock);
	insert(mappings, mapping);
	lock_give(&lock);
	return result;
}

/* All mappings in a range, which mappings cover one after the other. */
static struct named *remove_mappings(CUdeviceptr address, size_t size)
{
	struct named *removed = NULL;
	CUdeviceptr end = address + size;

	lock_take(&lock);
	while (address < end) {
		struct named **link = find(mappings, address);
		struct named *named = *link;

		if (!named || named->size > end - address) {
			address += FRAME;
			continue;
		}
		*link = named->next;
		named->next = removed;
		removed = named;
		address += named->size;
	}
	lock_give(&lock);
	return removed;
}

CUresult hook_cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	struct releases releases = { .measure = NULL };
	struct named *removed = cards_ready() == CUDA_SUCCESS ? remove_mappings(ptr, size) : NULL;
	CUresult result;

	for (struct named *named = removed; named; named = named->next)
		allocation_begin(named->allocation);
	result = real_cuMemUnmap(ptr, size);
	while (removed) {
		struct named *next = removed->next;

		allocation_end(removed->allocation, result == CUDA_SUCCESS, &releases);
		if (result == CUDA_SUCCESS) {
			free(removed);
		} else {
			lock_take(&lock);
			insert(mappings, removed);
			lock_give(&lock);
		}
		removed = next;
	}
	releases_end(&releases);
	return result;
}

CUresult hook_cuMulticastCreate(CUmemGenericAllocationHandle *mcHandle, const CUmulticastObjectProp *prop)
{
	CUresult result = cards_ready();
	struct allocation *allocation;

	if (result == CUDA_SUCCESS)
		result = real_cuMulticastCreate(mcHandle, prop);
	if (result != CUDA_SUCCESS)
		return result;
	/* The object itself holds no memory; what is bound to it is kept alive by it. */
	allocation = calloc(1, sizeof(*allocation));
	if (allocation) {
		allocation->references = 1;
		allocation->multicast = true;
		add_handle(*mcHandle, allocation);
	}
	return result;
}
