/* SPDX-License-Identifier: Apache-2.0 */
#include "allocation.h"

#include <stdlib.h>

#include "charge.h"

#define BUCKETS 256

/* How long an import waits for the charge of a maker that left its memory to it. */
#define HANDOVER_TRIES 25

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
	__atomic_store_n(&allocation->lingers, true, __ATOMIC_RELAXED);
}

void allocation_export(struct allocation *allocation)
{
	if (allocation->multicast)
		cards_entangle(); /* what is bound to it, now or later */
	else if (__atomic_fetch_add(&allocation->exports, 1, __ATOMIC_ACQ_REL) == 0 && allocation->card)
		card_export(allocation->card, allocation->hold.bytes);
}

void allocation_unexport(struct allocation *allocation)
{
	if (!allocation->multicast && __atomic_sub_fetch(&allocation->exports, 1, __ATOMIC_ACQ_REL) == 0 && allocation->card)
		card_unexport(allocation->card, allocation->hold.bytes);
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
static void put_in_doubt(struct hold *hold, bool exported, struct releases *releases)
{
	if (releases->doubt.bytes != 0 && releases->doubt.card != hold->card)
		releases_end(releases); /* rare: one call about memory of two cards */
	hold_doubt(hold, exported);
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
	} else if (allocation->exports != 0 || allocation->lingers) {
		put_in_doubt(&allocation->hold, allocation->exports != 0, releases);
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

bool handle_add(CUmemGenericAllocationHandle handle, struct allocation *allocation)
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

struct allocation *handle_remove(CUmemGenericAllocationHandle handle)
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

CUresult import_admit(struct card *card, uint64_t implicit)
{
	hold_measure(NULL, card, true);
	for (int i = 0; card_implicit(card) > implicit && card_stays_above(card); i++) {
		/* A maker that gave the memory up is charged until it is measured again, and its
		 * share, where it has ended, until it is seen that we hold it. To wait is safe: the memory is charged here already. */
		if (i == HANDOVER_TRIES) {
			/* The driver may let us hold it as long as there is a descriptor. */
			card_begin_doubt(card, implicit);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		hold_measure(NULL, card, true);
	}
	return CUDA_SUCCESS;
}

void mapping_add(struct named *mapping)
{
	lock_take(&lock);
	insert(mappings, mapping);
	lock_give(&lock);
}

struct named *mappings_remove(CUdeviceptr address, size_t size)
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
