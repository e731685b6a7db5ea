/* SPDX-License-Identifier: Apache-2.0 */
#include "card.h"

#include <stdlib.h>

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
	if (bytes == 0)
		return CUDA_SUCCESS;
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

enum session_measured hold_measure(struct hold *hold, struct card *card, bool everybody)
{
	uint64_t given_up = __atomic_exchange_n(&card->given_up, 0, __ATOMIC_ACQ_REL);
	enum session_measured lent, others;

	/* While memory is in doubt, this process's charge may fall because another one took
	 * the memory over: that one's has to rise first. */
	everybody |= __atomic_load_n(&card->doubtful, __ATOMIC_RELAXED) != 0;
	/* Who lent its room first, so that what was found is counted there. */
	lent = measure_shares(hold, card, everybody, true);
	others = measure_shares(hold, card, everybody, false);

	if (hold)
		hold_drop(hold);
	if (others > lent)
		lent = others;
	card_measured(card, lent == SESSION_MEASURED, given_up);
	return lent;
}

void hold_doubt(struct hold *hold, bool exported)
{
	if (hold->bytes != 0)
		card_begin_doubt(hold->card, card_implicit(hold->card));
	for (size_t i = 0; hold->bytes != 0 && i < hold->card->shares; i++)
		if (part_of(hold, i) != 0)
			ledger_doubt(hold->card->share[i], part_of(hold, i));
	if (exported)
		__atomic_add_fetch(&hold->card->given_up, hold->bytes, __ATOMIC_ACQ_REL);
}

void hold_drop(struct hold *hold)
{
	free(hold->parts);
	hold->parts = NULL;
	hold->bytes = 0;
}
