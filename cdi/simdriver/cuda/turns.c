/* SPDX-License-Identifier: Apache-2.0 */
#include "turns.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Words of simcard.engine. */
enum {
	WORD_LAST = 0,   /* number of the last turn, or of the one before it for a moment */
	WORD_SIGNAL = 1, /* a futex */
	WORD_TURNS = 8,
	WORD_WANTS = 40, /* a bit for each slot */
};

/* A turn's word: holder's slot plus one in 11 bits, one bit: bounded, then the
 * start in units of 32 ns. Starts grow strictly, so a word that starts later than the
 * last turn is its successor. */
enum {
	TURNS = 32,
	UNIT_BITS = 5,
	START_BIT = 12,
	BOUNDED = 1 << 11,
	HOLDER_MASK = BOUNDED - 1,
};

/* Turns do not get shorter than processes can look. */
#define SHORTEST_SLICE (100u * 1000)

/* A process that wants the card looks at the clock more often than this. */
#define LOOKS_EVERY (5u * 1000 * 1000)
/* One that has not looked for so long is stopped, and gets no more turns. */
#define STOPPED_AFTER (50u * 1000 * 1000)

static uint64_t word_of(int slot, bool bounded, uint64_t start)
{
	return ((start >> UNIT_BITS) << START_BIT) | (bounded ? BOUNDED : 0) | (uint64_t)(slot + 1);
}

static uint64_t start_of(uint64_t word)
{
	return (word >> START_BIT) << UNIT_BITS;
}

static int slot_of(uint64_t word)
{
	return (int)(word & HOLDER_MASK) - 1;
}

static uint64_t *turn_word(const struct card *card, uint64_t number)
{
	return &card->page->engine[WORD_TURNS + number % TURNS];
}

static uint64_t *want_word(const struct card *card, int slot)
{
	return &card->page->engine[WORD_WANTS + slot / 64];
}

static uint64_t load(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static bool swap(uint64_t *word, uint64_t from, uint64_t to)
{
	return __atomic_compare_exchange_n(word, &from, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* Number and word of the last turn. Moves WORD_LAST on for whoever was
 * interrupted between the two steps of adding a turn. */
static uint64_t last_word(const struct card *card, uint64_t *word)
{
	uint64_t *last = &card->page->engine[WORD_LAST];
	for (;;) {
		uint64_t number = load(last);
		*word = load(turn_word(card, number));
		uint64_t following = load(turn_word(card, number + 1));
		if (load(last) != number)
			continue;
		if (start_of(following) <= start_of(*word))
			return number;
		swap(last, number, number + 1);
	}
}

/* Adds a turn after the one with this number and word; false: somebody else did. */
static bool add(const struct card *card, uint64_t number, uint64_t word, uint64_t added)
{
	uint64_t *place = turn_word(card, number + 1);
	uint64_t old = load(place);
	bool done = start_of(old) <= start_of(word) && load(&card->page->engine[WORD_LAST]) == number && swap(place, old, added);
	swap(&card->page->engine[WORD_LAST], number, number + 1);
	return done;
}

static uint64_t slice_of(const struct card *card)
{
	uint64_t slice = card->page->time_slice;
	return slice >= SHORTEST_SLICE ? slice : SHORTEST_SLICE;
}

static struct turn describe(const struct card *card, uint64_t number, uint64_t word)
{
	struct turn turn = {.number = number, .start = start_of(word), .end = TURNS_NEVER, .slot = slot_of(word), .last = true};
	if (word & BOUNDED)
		turn.end = turn.start + slice_of(card);
	return turn;
}

struct turn turns_last(const struct card *card)
{
	uint64_t word;
	uint64_t number = last_word(card, &word);
	return describe(card, number, word);
}

struct turn turns_get(const struct card *card, uint64_t number)
{
	for (;;) {
		uint64_t word, last = last_word(card, &word);
		if (number >= last)
			return describe(card, last, word);
		/* The oldest are about to be overwritten. */
		if (number + TURNS - 3 < last)
			number = last - (TURNS - 3);
		uint64_t mine = load(turn_word(card, number));
		uint64_t next = load(turn_word(card, number + 1));
		if (load(&card->page->engine[WORD_LAST]) + 2 >= number + TURNS)
			continue; /* it may have been overwritten meanwhile */
		struct turn turn = describe(card, number, mine);
		turn.end = start_of(next);
		turn.last = false;
		return turn;
	}
}

void turns_join(struct card *card, uint64_t now)
{
	turns_want(card, false, now);
	struct turn turn = turns_last(card);
	if (turn.slot == card->slot)
		turns_release(card, &turn, now, now);
}

void turns_want(struct card *card, bool want, uint64_t now)
{
	uint64_t *word = want_word(card, card->slot);
	uint64_t bit = 1ull << (card->slot % 64);
	/* turn_seen before the bit: whoever sees the bit knows us as alive. */
	__atomic_store_n(&card->page->slot[card->slot].turn_seen, now, __ATOMIC_SEQ_CST);
	if (want && !(load(word) & bit))
		__atomic_fetch_or(word, bit, __ATOMIC_SEQ_CST);
	else if (!want && (load(word) & bit))
		__atomic_fetch_and(word, ~bit, __ATOMIC_SEQ_CST);
}

/* Whether the process with this slot, which wants the card, can use it. */
static bool present(struct card *card, int slot, uint64_t now)
{
	if (slot == card->slot)
		return true;
	uint64_t seen = load(&card->page->slot[slot].turn_seen);
	if (seen + LOOKS_EVERY > now)
		return true;
	enum card_owner owner = card_owner(card, (unsigned)slot, NULL);
	if (owner != CARD_ALIVE) {
		__atomic_fetch_and(want_word(card, slot), ~(1ull << (slot % 64)), __ATOMIC_SEQ_CST);
		return false;
	}
	return seen + STOPPED_AFTER > now;
}

int turns_next(struct card *card, const struct turn *turn, uint64_t now)
{
	int first = turn->slot < 0 ? 0 : (turn->slot + 1) % (int)SIMCARD_MAX_SLOTS;
	/* The word of first comes twice: from first on, and at the end below it. */
	for (int i = 0; i <= (int)SIMCARD_MAX_SLOTS / 64; i++) {
		int word = (first / 64 + i) % ((int)SIMCARD_MAX_SLOTS / 64);
		uint64_t bits = load(&card->page->engine[WORD_WANTS + word]);
		uint64_t below = (1ull << (first % 64)) - 1;
		if (i == 0)
			bits &= ~below;
		else if (word == first / 64)
			bits &= below;
		for (; bits; bits &= bits - 1) {
			int slot = word * 64 + __builtin_ctzll(bits);
			if (present(card, slot, now))
				return slot;
		}
	}
	return -1;
}

/* Whether a process other than slot, that can use the card, wants it. */
static bool contended(struct card *card, int slot, uint64_t now)
{
	struct turn turn = {.slot = slot};
	int next = turns_next(card, &turn, now);
	return next >= 0 && next != slot;
}

static bool follow(struct card *card, const struct turn *turn, int slot, bool bounded, uint64_t start)
{
	uint64_t word;
	if (last_word(card, &word) != turn->number || start_of(word) != turn->start)
		return true;
	/* Rounded up: the holder may use its turn to the end. And strictly later, whatever
	 * was asked for. */
	start = (start + (1 << UNIT_BITS) - 1) >> UNIT_BITS << UNIT_BITS;
	if (start <= turn->start)
		start = turn->start + (1 << UNIT_BITS);
	if (add(card, turn->number, word, word_of(slot, bounded, start)) && slot >= 0 && slot != turn->slot && slot != card->slot)
		turns_wake(card, slot);
	return true;
}

bool turns_pass(struct card *card, const struct turn *turn, uint64_t since, uint64_t now)
{
	uint64_t slice = slice_of(card);
	if (turn->slot < 0)
		return follow(card, turn, card->slot, contended(card, card->slot, now), since);
	if (turn->end <= now) {
		int next = turns_next(card, turn, now);
		uint64_t start = turn->end;
		/* Nobody looked for long: no need to tell whose each slice was. */
		if ((now - start) / slice > TURNS / 2)
			start += ((now - start) / slice - TURNS / 4) * slice;
		return follow(card, turn, next, next >= 0 && contended(card, next, now), start);
	}
	if (turn->end == TURNS_NEVER && turn->slot != card->slot) {
		/* The holder's slices followed each other unseen while nobody else
		 * wanted the card: the one that is under way now is its last. */
		uint64_t start = now > turn->start ? now - (now - turn->start) % slice : now;
		return follow(card, turn, turn->slot, true, start);
	}
	return false;
}

void turns_release(struct card *card, const struct turn *turn, uint64_t end, uint64_t now)
{
	int next = turns_next(card, turn, now);
	if (next == card->slot)
		next = -1;
	follow(card, turn, next, next >= 0 && contended(card, next, now), end);
}

uint32_t turns_signal(const struct card *card)
{
	return __atomic_load_n((uint32_t *)&card->page->engine[WORD_SIGNAL], __ATOMIC_SEQ_CST);
}

/* Waiters of one card wait on one word; the bit tells them apart well enough. */
static uint32_t futex_bit(int slot)
{
	return 1u << (slot % 32);
}

void turns_wait(struct card *card, uint32_t seen, uint64_t until)
{
	struct timespec time = {.tv_sec = (time_t)(until / 1000000000), .tv_nsec = (long)(until % 1000000000)};
	syscall(SYS_futex, &card->page->engine[WORD_SIGNAL], FUTEX_WAIT_BITSET, seen, until == TURNS_NEVER ? NULL : &time, NULL,
		futex_bit(card->slot));
}

void turns_wake(struct card *card, int slot)
{
	uint32_t *word = (uint32_t *)&card->page->engine[WORD_SIGNAL];
	__atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, word, FUTEX_WAKE_BITSET, INT_MAX, NULL, NULL, futex_bit(slot));
}
