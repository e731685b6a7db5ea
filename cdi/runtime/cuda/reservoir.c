/* SPDX-License-Identifier: Apache-2.0 */
#include "reservoir.h"

#include <stdlib.h>

#include "charge.h"
#include "zz_generated_hooks.h"

static struct reservoir *all;
static struct lock lock;
/* Reservoirs that are charged with something: synchronisation may let them shrink. */
static uint64_t charged;

/* Under the lock. */
static struct reservoir *find(CUmemoryPool pool, const struct card *card)
{
	struct reservoir *reservoir = all;

	while (reservoir && (reservoir->pool != pool || (!pool && reservoir->card != card) || reservoir->destroyed))
		reservoir = reservoir->next;
	return reservoir;
}

/* Takes a pool's threshold over from the driver. */
static void take_threshold(struct reservoir *reservoir)
{
	cuuint64_t endless = UINT64_MAX, threshold = 0;

	if (!reservoir->pool || !reservoir->card ||
	    real_cuMemPoolGetAttribute(reservoir->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold) != CUDA_SUCCESS ||
	    real_cuMemPoolSetAttribute(reservoir->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &endless) != CUDA_SUCCESS)
		threshold = UINT64_MAX;
	__atomic_store_n(&reservoir->threshold, threshold, __ATOMIC_RELAXED);
}

/* Finds it, or makes it. */
static struct reservoir *get(CUmemoryPool pool, struct card *card)
{
	struct reservoir *reservoir, *fresh = calloc(1, sizeof(*fresh));

	if (fresh) {
		*fresh = (struct reservoir){ .pool = pool, .card = card, .hold.card = card, .users = 1 };
		/* Until the driver's is known, as if it were endless. */
		fresh->threshold = UINT64_MAX;
	}
	lock_take(&lock);
	reservoir = find(pool, card);
	if (!reservoir && fresh) {
		fresh->next = all;
		all = fresh;
		reservoir = fresh;
	}
	if (reservoir)
		reservoir->users++;
	lock_give(&lock);
	if (reservoir != fresh)
		free(fresh);
	else if (fresh)
		take_threshold(fresh);
	return reservoir;
}

void reservoir_put(struct reservoir *reservoir)
{
	lock_take(&lock);
	if (--reservoir->users != 0)
		reservoir = NULL;
	lock_give(&lock);
	free(reservoir);
}

void reservoir_get(struct reservoir *reservoir)
{
	lock_take(&lock);
	reservoir->users++;
	lock_give(&lock);
	lock_take(&reservoir->lock);
	reservoir->live++;
	lock_give(&reservoir->lock);
}

/* The card that has the pool as its default one, or NULL. */
static struct card *card_by_default(CUmemoryPool pool)
{
	CUmemoryPool other;

	for (size_t i = 0; i < card_count(); i++) {
		struct card *card = card_at(i);

		if (real_cuDeviceGetDefaultMemPool(&other, card->device) == CUDA_SUCCESS && other == pool)
			return card;
	}
	return NULL;
}

static bool of_host(CUmemoryPool pool)
{
	CUmemLocation host = { .type = CU_MEM_LOCATION_TYPE_HOST };
	CUmemoryPool other;

	return real_cuMemGetDefaultMemPool(&other, &host, CU_MEM_ALLOCATION_TYPE_PINNED) == CUDA_SUCCESS && other == pool;
}

static struct reservoir *known(CUmemoryPool pool)
{
	struct reservoir *reservoir;

	lock_take(&lock);
	reservoir = find(pool, NULL);
	if (reservoir)
		reservoir->users++;
	lock_give(&lock);
	return reservoir;
}

struct reservoir *reservoir_of_pool(CUmemoryPool pool)
{
	struct reservoir *reservoir = known(pool);
	struct card *card = reservoir ? NULL : card_by_default(pool);

	/* Any other handle may be no pool's, and one day be a new pool's. */
	return card ? get(pool, card) : reservoir;
}

CUresult reservoir_to_grow(CUmemoryPool pool, struct card *current, struct reservoir **reservoir)
{
	cuuint64_t reserved;
	struct card *card;
	CUresult result;

	*reservoir = known(pool);
	if (*reservoir && (*reservoir)->card)
		return CUDA_SUCCESS;
	card = card_by_default(pool);
	if (*reservoir) {
		if (!card)
			return CUDA_SUCCESS;
		/* A pool of the host, or an imported one, had this handle before. */
		reservoir_put(*reservoir);
		*reservoir = NULL;
		if (!reservoir_register(pool, card))
			return CUDA_ERROR_OUT_OF_MEMORY;
	} else if (!card) {
		result = real_cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved);
		if (result != CUDA_SUCCESS)
			return result;
		card = of_host(pool) ? NULL : current;
	}
	*reservoir = get(pool, card);
	return *reservoir ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

struct reservoir *reservoir_of_graphs(struct card *card)
{
	return get(NULL, card);
}

/* Under the lock: takes it off the list, whose user the caller becomes. False: it was not
 * there. */
static bool unlist(struct reservoir *reservoir)
{
	for (struct reservoir **link = &all; *link; link = &(*link)->next)
		if (*link == reservoir) {
			*link = reservoir->next;
			return true;
		}
	return false;
}

bool reservoir_register(CUmemoryPool pool, struct card *card)
{
	struct reservoir *older, *reservoir;

	lock_take(&lock);
	older = find(pool, NULL);
	if (older)
		unlist(older);
	lock_give(&lock);
	if (older) {
		if (older->card)
			card_begin(older->card);
		reservoir_destroyed(older);
		reservoir_put(older);
	}
	reservoir = get(pool, card);
	if (reservoir)
		reservoir_put(reservoir);
	return reservoir;
}

uint64_t reservoir_charge(struct reservoir *reservoir)
{
	uint64_t bytes;

	lock_take(&reservoir->lock);
	bytes = reservoir->hold.bytes;
	lock_give(&reservoir->lock);
	return bytes;
}

static CUresult ask(const struct reservoir *reservoir, cuuint64_t *reserved)
{
	if (reservoir->pool)
		return real_cuMemPoolGetAttribute(reservoir->pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, reserved);
	return real_cuDeviceGetGraphMemAttribute(reservoir->card->device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, reserved);
}

/* Under the reservoir's lock. */
static void recount(struct reservoir *reservoir)
{
	bool counts = reservoir->hold.bytes != 0;

	if (counts == reservoir->counted)
		return;
	reservoir->counted = counts;
	__atomic_add_fetch(&charged, counts ? 1 : (uint64_t)-1, __ATOMIC_RELAXED);
}

/* Under the reservoir's lock: charges exactly bytes. What may have passed to another
 * process goes into doubt. */
static void charge(struct reservoir *reservoir, uint64_t bytes, struct hold *doubt)
{
	if (reservoir->exported && bytes < reservoir->hold.bytes)
		hold_split(&reservoir->hold, reservoir->hold.bytes - bytes, doubt);
	hold_keep(&reservoir->hold, bytes);
	recount(reservoir);
}

bool reservoir_settle(struct reservoir *reservoir, struct hold *taken)
{
	struct hold doubt = { .card = reservoir->card };
	bool beyond = false;
	cuuint64_t reserved = 0;
	uint64_t number;
	bool answered;

	lock_take(&reservoir->lock);
	number = ++reservoir->asked;
	lock_give(&reservoir->lock);
	answered = ask(reservoir, &reserved) == CUDA_SUCCESS;
	lock_take(&reservoir->lock);
	if (!answered && !reservoir->destroyed)
		reserved = reservoir->hold.bytes + (taken ? taken->bytes : 0);
	if (!reservoir->destroyed && number > reservoir->used) {
		reservoir->used = number;
		if (taken)
			hold_merge(&reservoir->hold, taken);
		beyond = frames_of(reserved) > reservoir->hold.bytes;
		charge(reservoir, frames_of(reserved), &doubt);
	} else if (taken) {
		hold_keep(taken, 0);
	}
	lock_give(&reservoir->lock);
	hold_end(&doubt, true);
	return beyond;
}

/* The last of a destroyed pool is gone, or will be when its streams get there: only
 * a measurement can tell. Does card_end. */
static void empty(struct reservoir *reservoir, bool doubt)
{
	struct hold rest = { .card = reservoir->card };

	lock_take(&reservoir->lock);
	hold_merge(&rest, &reservoir->hold);
	recount(reservoir);
	lock_give(&reservoir->lock);
	hold_end(&rest, doubt);
}

void reservoir_destroyed(struct reservoir *reservoir)
{
	bool last;

	lock_take(&lock);
	if (unlist(reservoir))
		reservoir->users--; /* the caller is one, so not the last */
	lock_give(&lock);
	lock_take(&reservoir->lock);
	reservoir->destroyed = true;
	last = reservoir->live == 0;
	lock_give(&reservoir->lock);
	if (!reservoir->card)
		return;
	if (last)
		empty(reservoir, reservoir->exported);
	else
		card_end(reservoir->card);
}

void reservoir_freed(struct reservoir *reservoir)
{
	bool last;

	lock_take(&reservoir->lock);
	last = --reservoir->live == 0 && reservoir->destroyed;
	lock_give(&reservoir->lock);
	if (!last || !reservoir->card)
		return;
	card_begin(reservoir->card);
	empty(reservoir, true);
}

bool reservoirs_charged(void)
{
	return __atomic_load_n(&charged, __ATOMIC_RELAXED) != 0;
}

struct reservoir *reservoir_nth(const struct card *card, size_t i)
{
	struct reservoir *reservoir;

	lock_take(&lock);
	for (reservoir = all; reservoir; reservoir = reservoir->next)
		if (reservoir->card == card && i-- == 0)
			break;
	if (reservoir)
		reservoir->users++;
	lock_give(&lock);
	return reservoir;
}

bool reservoir_get_threshold(CUmemoryPool pool, cuuint64_t *threshold)
{
	struct reservoir *reservoir = reservoir_of_pool(pool);
	bool ours = reservoir && reservoir->card;

	if (ours)
		*threshold = __atomic_load_n(&reservoir->threshold, __ATOMIC_RELAXED);
	if (reservoir)
		reservoir_put(reservoir);
	return ours;
}

bool reservoir_set_threshold(CUmemoryPool pool, cuuint64_t threshold)
{
	struct reservoir *reservoir = reservoir_of_pool(pool);
	bool ours = reservoir && reservoir->card;

	if (ours)
		__atomic_store_n(&reservoir->threshold, threshold, __ATOMIC_RELAXED);
	if (reservoir)
		reservoir_put(reservoir);
	return ours;
}
