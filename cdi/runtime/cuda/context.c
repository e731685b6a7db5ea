/* SPDX-License-Identifier: Apache-2.0 */
#include "context.h"

#include <stdlib.h>

#include "trim.h"
#include "zz_generated_hooks.h"

struct record {
	struct record *next;
	struct owner owner;
	struct card *card;
};

#define BUCKETS 64

static struct record *buckets[BUCKETS];
static struct lock lock;
static uint64_t generations;
/* Changes whenever a handle may mean another context. */
static uint64_t epoch = 1;

uint32_t contexts_alive;

/* The context that this thread asked for last. */
static __thread struct {
	struct owner owner;
	struct card *card;
	uint64_t epoch;
} last;

static struct record **bucket_of(CUcontext context)
{
	return &buckets[((uintptr_t)context >> 4) % BUCKETS];
}

/* Under the lock. */
static struct record *find(CUcontext context)
{
	struct record *record = *bucket_of(context);

	while (record && record->owner.context != context)
		record = record->next;
	return record;
}

/* Under the lock; NULL: no memory. */
static struct record *add(struct owner owner, struct card *card)
{
	struct record *record = malloc(sizeof(*record));

	if (!record)
		return NULL;
	*record = (struct record){ .next = *bucket_of(owner.context), .owner = owner, .card = card };
	*bucket_of(owner.context) = record;
	return record;
}

/* A context that was made without our seeing it, or before its record could be. */
static CUresult discover(CUcontext context, struct card **card, struct owner *owner)
{
	struct record *record;
	CUdevice device;
	CUresult result = real_cuCtxGetDevice(&device);

	if (result != CUDA_SUCCESS)
		return result;
	*card = card_of(device);
	if (!*card)
		return CUDA_ERROR_INVALID_DEVICE;
	lock_take(&lock);
	record = find(context);
	if (!record)
		record = add((struct owner){ .context = context, .generation = ++generations }, *card);
	if (record)
		*owner = record->owner;
	lock_give(&lock);
	return record ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult context_current(struct card **card, struct owner *owner)
{
	uint64_t now = __atomic_load_n(&epoch, __ATOMIC_ACQUIRE);
	struct record *record;
	CUcontext context;
	CUresult result = cards_ready();

	if (result == CUDA_SUCCESS)
		result = real_cuCtxGetCurrent(&context);
	if (result != CUDA_SUCCESS)
		return result;
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (last.owner.context == context && last.epoch == now) {
		*card = last.card;
		*owner = last.owner;
		return CUDA_SUCCESS;
	}
	lock_take(&lock);
	record = find(context);
	if (record) {
		*card = record->card;
		*owner = record->owner;
	}
	lock_give(&lock);
	if (!record) {
		result = discover(context, card, owner);
		if (result != CUDA_SUCCESS)
			return result;
	}
	last.owner = *owner;
	last.card = *card;
	last.epoch = now;
	return CUDA_SUCCESS;
}

struct card *context_card(CUcontext context)
{
	struct record *record;
	struct card *card = NULL;
	CUcontext popped;
	CUdevice device;

	lock_take(&lock);
	record = find(context);
	if (record)
		card = record->card;
	lock_give(&lock);
	if (record || !context || real_cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
		return card;
	if (real_cuCtxGetDevice(&device) == CUDA_SUCCESS)
		card = card_of(device);
	real_cuCtxPopCurrent_v2(&popped);
	return card;
}

void context_count(struct card *card, int more)
{
	__atomic_add_fetch(&card->contexts, (uint32_t)more, __ATOMIC_RELAXED);
	__atomic_add_fetch(&contexts_alive, (uint32_t)more, __ATOMIC_RELAXED);
}

void context_register(CUcontext context, struct card *card)
{
	lock_take(&lock);
	if (!find(context))
		add((struct owner){ .context = context, .generation = ++generations }, card);
	lock_give(&lock);
}

struct owner context_retire(CUcontext context, struct card **card)
{
	struct owner owner = { .context = context };
	struct record **link;

	lock_take(&lock);
	owner.generation = generations;
	for (link = bucket_of(context); *link && (*link)->owner.context != context; link = &(*link)->next)
		;
	if (*link) {
		struct record *record = *link;

		owner = record->owner;
		*card = record->card;
		*link = record->next;
		free(record);
	}
	__atomic_add_fetch(&epoch, 1, __ATOMIC_RELEASE);
	lock_give(&lock);
	return owner;
}

void context_revive(struct owner owner, struct card *card)
{
	lock_take(&lock);
	if (!find(owner.context))
		add(owner, card);
	__atomic_add_fetch(&epoch, 1, __ATOMIC_RELEASE);
	lock_give(&lock);
}

CUresult card_connect(struct card *card)
{
	CUresult result = card_refusal(card);

	if (card->shares == 0)
		session_say("a card is visible that this container has no share of; contexts on it are refused");
	if (result != CUDA_SUCCESS || session_has_liaison())
		return result;
	for (size_t i = 0; i < card->shares; i++) {
		if (session_restore(card->share[i], SESSION_DEADLINE_NS))
			continue;
		session_say("share %s: tranche-arbiter does not answer; see that it runs on this node (tranche-node doctor)", card->share[i]->key);
		return CUDA_ERROR_SYSTEM_NOT_READY;
	}
	return CUDA_SUCCESS;
}

CUresult estimate_take(struct estimate *estimate, struct card *card, uint64_t bytes)
{
	CUresult result = hold_take(&estimate->hold, card, LEDGER_RESERVE, bytes);

	if (result == CUDA_ERROR_OUT_OF_MEMORY && trim_card(card))
		result = hold_take(&estimate->hold, card, LEDGER_RESERVE, bytes);
	estimate->before = card_implicit(card);
	return result;
}

void estimate_give(struct estimate *estimate)
{
	hold_unreserve(&estimate->hold);
}

CUresult estimate_settle(struct estimate *estimate, struct card *card)
{
	uint64_t expected = estimate->before + estimate->hold.bytes;

	if (hold_measure(&estimate->hold, card, false) == SESSION_UNANSWERED)
		return CUDA_ERROR_SYSTEM_NOT_READY;
	return card_implicit(card) > expected && card_stays_above(card) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
