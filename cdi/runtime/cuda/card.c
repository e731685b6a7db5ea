/* SPDX-License-Identifier: Apache-2.0 */
#include "card.h"

#include <stdio.h>
#include <stdlib.h>

#include "zz_generated_hooks.h"

static struct card cards[CARD_MAX];
static size_t found;
static struct lock finding;
static uint32_t doubts; /* cards */
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

static CUresult share_refusal(const struct session_share *share)
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

/* Bytes of the hold in share i. */
static uint64_t part_of(const struct hold *hold, size_t i)
{
	if (hold->parts)
		return hold->parts[i];
	return hold->share == i ? hold->bytes : 0;
}

static void give(struct session_share *share, enum ledger_column column, uint64_t bytes)
{
	if (column == LEDGER_COMMITTED)
		ledger_give(share, bytes);
	else
		ledger_unreserve(share, bytes);
}

/* No share alone has room: what each has, until it is enough. */
static bool take_parts(struct hold *hold, enum ledger_column column)
{
	struct card *card = hold->card;
	uint64_t left = hold->bytes;
	uint64_t *parts = calloc(CARD_SHARES, sizeof(*parts));

	if (!parts)
		return false;
	for (size_t i = 0; i < card->shares && left != 0; i++) {
		uint64_t limit = session_limit(card->share[i]);
		uint64_t charge = ledger_charge(card->share[i]);
		uint64_t room = limit > charge ? (limit - charge) / FRAME * FRAME : 0;

		if (room > left)
			room = left;
		if (room == 0 || session_flags(card->share[i]) != 0 || !ledger_take(card->share[i], column, room))
			continue;
		parts[i] = room;
		left -= room;
	}
	if (left == 0) {
		hold->parts = parts;
		return true;
	}
	for (size_t i = 0; i < card->shares; i++)
		if (parts[i] != 0)
			give(card->share[i], column, parts[i]);
	free(parts);
	return false;
}

static void give_parts(struct hold *hold, enum ledger_column column)
{
	for (size_t i = 0; i < hold->card->shares; i++)
		if (part_of(hold, i) != 0)
			give(hold->card->share[i], column, part_of(hold, i));
	hold_drop(hold);
}

/* Takes all from one share; the first that has room. */
static CUresult take_whole(struct hold *hold, enum ledger_column column)
{
	CUresult refusal = CUDA_ERROR_NOT_PERMITTED;

	for (uint32_t i = 0; i < hold->card->shares; i++) {
		struct session_share *share = hold->card->share[i];

		if (session_flags(share) != 0) {
			if (refusal != CUDA_ERROR_OUT_OF_MEMORY)
				refusal = share_refusal(share);
			continue;
		}
		if (ledger_take(share, column, hold->bytes)) {
			hold->share = i;
			return CUDA_SUCCESS;
		}
		refusal = CUDA_ERROR_OUT_OF_MEMORY;
	}
	return refusal == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : refusal;
}

CUresult hold_take(struct hold *hold, struct card *card, enum ledger_column column, uint64_t bytes)
{
	CUresult result;

	*hold = (struct hold){ .card = card, .bytes = bytes };
	result = take_whole(hold, column);
	if (result == CUDA_ERROR_OUT_OF_MEMORY && card->shares > 1 && take_parts(hold, column))
		result = CUDA_SUCCESS;
	if (result != CUDA_SUCCESS) {
		hold->bytes = 0;
		return result;
	}
	/* What was measured is charged to one share and may be more than that has, while
	 * another has room for it. */
	if (card->shares > 1 && card_stays_above(card)) {
		give_parts(hold, column);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

void hold_keep(struct hold *hold, uint64_t bytes)
{
	struct card *card = hold->card;

	if (bytes > hold->bytes) {
		uint64_t more = bytes - hold->bytes;

		ledger_admit(card->share[hold->share], more);
		if (hold->parts)
			hold->parts[hold->share] += more;
	}
	for (size_t i = card->shares; i-- > 0 && hold->bytes > bytes;) {
		uint64_t part = part_of(hold, i);
		uint64_t less = hold->bytes - bytes;

		if (less > part)
			less = part;
		if (less == 0)
			continue;
		ledger_give(card->share[i], less);
		hold->bytes -= less;
		if (hold->parts)
			hold->parts[i] -= less;
	}
	hold->bytes = bytes;
	if (bytes == 0)
		hold_drop(hold);
}

uint32_t hold_carve(struct hold *hold, uint64_t bytes)
{
	for (uint32_t i = 0; i < hold->card->shares; i++) {
		if (part_of(hold, i) < bytes)
			continue;
		if (hold->parts)
			hold->parts[i] -= bytes;
		hold->bytes -= bytes;
		return i;
	}
	ledger_admit(hold->card->share[0], bytes);
	return 0;
}

void hold_join(struct hold *hold, struct card *card, uint32_t share, uint64_t bytes)
{
	if (hold->bytes == 0) {
		hold_drop(hold);
		*hold = (struct hold){ .card = card, .bytes = bytes, .share = share };
		return;
	}
	if (!hold->parts && hold->share != share) {
		uint64_t *parts = calloc(CARD_SHARES, sizeof(*parts));

		if (parts) {
			parts[hold->share] = hold->bytes;
			hold->parts = parts;
		}
	}
	if (hold->parts)
		hold->parts[share] += bytes;
	hold->bytes += bytes;
}

void hold_split(struct hold *hold, uint64_t bytes, struct hold *part)
{
	for (uint32_t i = hold->card->shares; i-- > 0 && bytes != 0;) {
		uint64_t here = part_of(hold, i);

		if (here > bytes)
			here = bytes;
		if (here == 0)
			continue;
		hold->bytes -= here;
		if (hold->parts)
			hold->parts[i] -= here;
		bytes -= here;
		hold_join(part, hold->card, i, here);
	}
}

void hold_merge(struct hold *hold, struct hold *other)
{
	for (uint32_t i = 0; other->bytes != 0 && i < other->card->shares; i++)
		if (part_of(other, i) != 0)
			hold_join(hold, other->card, i, part_of(other, i));
	hold_drop(other);
}

void hold_unreserve(struct hold *hold)
{
	if (hold->bytes != 0)
		give_parts(hold, LEDGER_RESERVE);
	else
		hold_drop(hold);
}

static enum session_measured measure_shares(struct hold *hold, struct card *card, bool everybody, bool with_part)
{
	enum session_measured worst = SESSION_MEASURED;

	for (size_t i = 0; i < card->shares; i++) {
		uint64_t part = hold ? part_of(hold, i) : 0;
		enum session_measured result;

		if ((part != 0) != with_part)
			continue;
		result = session_measure(card->share[i], part, everybody);
		if (result > worst)
			worst = result;
	}
	return worst;
}

uint64_t card_implicit(const struct card *card)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < card->shares; i++)
		sum = plus(sum, __atomic_load_n(&session_slot(card->share[i])->implicit, __ATOMIC_RELAXED));
	return sum;
}

static void begin_doubt(struct card *card)
{
	if (__atomic_exchange_n(&card->doubtful, 1, __ATOMIC_ACQ_REL))
		return;
	__atomic_store_n(&card->doubt_base, card_implicit(card), __ATOMIC_RELAXED);
	__atomic_add_fetch(&doubts, 1, __ATOMIC_RELAXED);
}

static void end_doubt(struct card *card)
{
	if (__atomic_exchange_n(&card->doubtful, 0, __ATOMIC_ACQ_REL))
		__atomic_sub_fetch(&doubts, 1, __ATOMIC_RELAXED);
}

bool cards_in_doubt(void)
{
	return __atomic_load_n(&doubts, __ATOMIC_RELAXED) != 0;
}

enum session_measured hold_measure(struct hold *hold, struct card *card, bool everybody)
{
	/* Who lent its room first, so that what was found is counted there. */
	enum session_measured lent = measure_shares(hold, card, everybody, true);
	enum session_measured others = measure_shares(hold, card, everybody, false);

	if (hold)
		hold_drop(hold);
	__atomic_store_n(&card->measured_at, now_ns(), __ATOMIC_RELAXED);
	if (__atomic_load_n(&card->doubtful, __ATOMIC_RELAXED) && card_implicit(card) <= __atomic_load_n(&card->doubt_base, __ATOMIC_RELAXED))
		end_doubt(card);
	return lent > others ? lent : others;
}

bool card_look_again(struct card *card, uint64_t interval)
{
	uint64_t before;

	if (!__atomic_load_n(&card->doubtful, __ATOMIC_RELAXED) ||
	    now_ns() - __atomic_load_n(&card->measured_at, __ATOMIC_RELAXED) < interval)
		return false;
	before = card_implicit(card);
	hold_measure(NULL, card, false);
	return card_implicit(card) < before;
}

void hold_doubt(struct hold *hold)
{
	if (hold->bytes != 0)
		begin_doubt(hold->card);
	for (size_t i = 0; hold->bytes != 0 && i < hold->card->shares; i++)
		if (part_of(hold, i) != 0)
			ledger_doubt(hold->card->share[i], part_of(hold, i));
}

void hold_drop(struct hold *hold)
{
	free(hold->parts);
	hold->parts = NULL;
	hold->bytes = 0;
}
