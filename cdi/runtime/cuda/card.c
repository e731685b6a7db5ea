/* SPDX-License-Identifier: Apache-2.0 */
#include "card.h"

#include <stdio.h>
#include <stdlib.h>

#include "zz_generated_hooks.h"

static struct card cards[CARD_MAX];
static size_t found;
static struct lock finding;
static uint32_t doubts; /* cards */
static struct lock entangling;
/* More than any card has, and so little that nothing wraps. */
#define ENTANGLED (1ull << 60)
static __thread unsigned inside;

bool guard_enter(void)
{
	if (inside != 0)
		return false;
	inside = 1;
	return true;
}

void guard_leave(void)
{
	inside = 0;
}

static void format_uuid(const CUuuid *uuid, char text[48])
{
	const unsigned char *b = (const unsigned char *)uuid->bytes;

	snprintf(text, 48, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3], b[4], b[5],
		 b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

static CUresult find(void)
{
	int count = 0;
	CUresult result = real_cuDeviceGetCount(&count);

	if (result != CUDA_SUCCESS)
		return result;
	if (count > CARD_MAX)
		count = CARD_MAX; /* card_of knows no others: they cannot be used */
	for (int i = 0; i < count; i++) {
		struct card *card = &cards[i];
		char text[48];
		CUuuid uuid;

		result = real_cuDeviceGet(&card->device, i);
		/* A MIG device's own UUID is in _v2; this one is its card's. */
		if (result == CUDA_SUCCESS)
			result = real_cuDeviceGetUuid(&uuid, card->device);
		if (result != CUDA_SUCCESS)
			return result;
		format_uuid(&uuid, text);
		card->shares = session_find(text, card->share, CARD_SHARES);
		if (card->shares > CARD_SHARES)
			card->shares = CARD_SHARES;
	}
	__atomic_store_n(&found, (size_t)count, __ATOMIC_RELEASE);
	return CUDA_SUCCESS;
}

CUresult cards_find(void)
{
	CUresult result = CUDA_SUCCESS;

	lock_take(&finding);
	if (found == 0)
		result = find();
	lock_give(&finding);
	return result;
}

CUresult cards_ready(void)
{
	return session_state() == SESSION_OPEN && card_count() != 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

size_t card_count(void)
{
	return __atomic_load_n(&found, __ATOMIC_ACQUIRE);
}

struct card *card_at(size_t i)
{
	return &cards[i];
}

struct card *card_of(CUdevice device)
{
	size_t count = card_count();

	if (device >= 0 && (size_t)device < count && cards[device].device == device)
		return &cards[device];
	for (size_t i = 0; i < count; i++)
		if (cards[i].device == device)
			return &cards[i];
	return NULL;
}

CUresult share_refusal(const struct session_share *share)
{
	uint32_t flags = session_flags(share);

	if (flags & TRANCHE_GRANT_WITHHELD) {
		session_say("share %s is withheld: the card holds more for it than it asked for; see the events of its claim", share->key);
		return CUDA_ERROR_NOT_PERMITTED;
	}
	if (flags & TRANCHE_GRANT_ENDED) {
		session_say("share %s has ended: its claim was released", share->key);
		return CUDA_ERROR_SYSTEM_NOT_READY;
	}
	return CUDA_SUCCESS;
}

CUresult card_refusal(const struct card *card)
{
	CUresult result = card->shares == 0 ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;

	for (size_t i = 0; i < card->shares && result == CUDA_SUCCESS; i++)
		result = share_refusal(card->share[i]);
	return result;
}

void card_begin(struct card *card)
{
	for (size_t i = 0; i < card->shares; i++)
		ledger_begin(card->share[i]);
}

void card_end(struct card *card)
{
	for (size_t i = 0; i < card->shares; i++)
		ledger_end(card->share[i]);
}

static uint64_t plus(uint64_t a, uint64_t b)
{
	uint64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

uint64_t card_limit(const struct card *card)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < card->shares; i++)
		sum = plus(sum, session_limit(card->share[i]));
	return sum;
}

uint64_t card_charge(const struct card *card)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < card->shares; i++)
		sum = plus(sum, ledger_charge(card->share[i]));
	return sum;
}

bool card_stays_above(const struct card *card)
{
	for (int i = 0; i < 20; i++) {
		if (card_charge(card) <= card_limit(card))
			return false;
		nap_ns(1000000);
	}
	return true;
}

uint64_t card_implicit(const struct card *card)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < card->shares; i++)
		sum = plus(sum, __atomic_load_n(&session_slot(card->share[i])->implicit, __ATOMIC_RELAXED));
	return sum;
}

void card_begin_doubt(struct card *card, uint64_t base)
{
	if (__atomic_exchange_n(&card->doubtful, 1, __ATOMIC_ACQ_REL))
		return;
	__atomic_store_n(&card->doubt_base, base, __ATOMIC_RELAXED);
	__atomic_add_fetch(&doubts, 1, __ATOMIC_RELAXED);
}

void card_measured(struct card *card, bool measured, uint64_t given_up)
{
	bool over = measured && card_implicit(card) <= __atomic_load_n(&card->doubt_base, __ATOMIC_RELAXED);

	__atomic_store_n(&card->measured_at, now_ns(), __ATOMIC_RELAXED);
	if (over && given_up != 0)
		card_unexport(card, given_up);
	else if (given_up != 0)
		__atomic_add_fetch(&card->given_up, given_up, __ATOMIC_RELAXED);
	if (over && __atomic_load_n(&card->doubtful, __ATOMIC_RELAXED) && __atomic_exchange_n(&card->doubtful, 0, __ATOMIC_ACQ_REL))
		__atomic_sub_fetch(&doubts, 1, __ATOMIC_RELAXED);
}

void card_export(struct card *card, uint64_t bytes)
{
	for (size_t i = 0; i < card->shares; i++)
		ledger_export(card->share[i], bytes);
}

void card_unexport(struct card *card, uint64_t bytes)
{
	for (size_t i = 0; i < card->shares; i++)
		ledger_unexport(card->share[i], bytes);
}

void card_entangle(struct card *card)
{
	if (__atomic_load_n(&card->entangled, __ATOMIC_ACQUIRE))
		return;
	lock_take(&entangling);
	if (!card->entangled)
		card_export(card, ENTANGLED);
	__atomic_store_n(&card->entangled, 1, __ATOMIC_RELEASE);
	lock_give(&entangling);
}

void cards_entangle(void)
{
	for (size_t i = 0; i < card_count(); i++)
		card_entangle(card_at(i));
}

uint64_t card_undoubted(const struct card *card)
{
	uint64_t implicit = card_implicit(card);
	uint64_t base = __atomic_load_n(&card->doubt_base, __ATOMIC_RELAXED);

	return __atomic_load_n(&card->doubtful, __ATOMIC_RELAXED) && base < implicit ? base : implicit;
}

bool cards_in_doubt(void)
{
	return __atomic_load_n(&doubts, __ATOMIC_RELAXED) != 0;
}

bool card_look_again(struct card *card, uint64_t interval)
{
	uint64_t before;

	if (!__atomic_load_n(&card->doubtful, __ATOMIC_RELAXED) ||
	    now_ns() - __atomic_load_n(&card->measured_at, __ATOMIC_RELAXED) < interval)
		return false;
	before = card_implicit(card);
	hold_measure(NULL, card, true);
	return card_implicit(card) < before;
}

bool card_look_at_ended(struct card *card)
{
	bool others = false;
	uint32_t moves = 0;

	for (size_t i = 0; i < card->shares; i++) {
		others |= ledger_has_others(card->share[i]);
		moves += ledger_moves(card->share[i]);
	}
	if (others)
		hold_measure(NULL, card, true);
	/* Who was in the way may have been cleared since. */
	return __atomic_exchange_n(&card->moves, moves, __ATOMIC_RELAXED) != moves || others;
}
