/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of frames. A frame belongs to whoever changed its entry from 0 by
 * compare-and-swap, so the card can never be given out beyond its size; used
 * and held only report. What is claimed is added after the table was changed,
 * and what is given back is taken off before, so that they never say more than
 * is true. All of that happens between two changes of a word of the slot. Who
 * clears up after a dead process has everything counted anew.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "internal.h"
#include "objects.h"

/* Two processes that each took half of the last frames give them back and try again. */
#define CLAIM_TRIES 4
#define RECOUNT_TRIES 8

void card_begin(struct card *card)
{
	if (card->slot >= 0)
		__atomic_fetch_add(&card->page->slot[card->slot].reserved[CARD_SLOT_WORK], 1, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&card->page->changes, 1, __ATOMIC_SEQ_CST);
}

void card_end(struct card *card)
{
	__atomic_fetch_add(&card->page->changes, 1, __ATOMIC_SEQ_CST);
	if (card->slot >= 0)
		__atomic_fetch_add(&card->page->slot[card->slot].reserved[CARD_SLOT_WORK], 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&card_shared(card->page)->recount, __ATOMIC_RELAXED))
		card_recount(card);
}

void card_raise(uint64_t *maximum, uint64_t value)
{
	uint64_t seen = __atomic_load_n(maximum, __ATOMIC_RELAXED);

	while (seen < value && !__atomic_compare_exchange_n(maximum, &seen, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		continue;
}

void card_account(struct simcard *page, unsigned slot, unsigned kind, int64_t frames)
{
	uint64_t change = (uint64_t)frames * SIMCARD_FRAME;
	uint64_t held = 0;

	__atomic_fetch_add(&page->slot[slot].held[kind], change, __ATOMIC_RELAXED);
	if (frames < 0)
		return;
	for (int i = 0; i < SIMCARD_KINDS; i++)
		held += __atomic_load_n(&page->slot[slot].held[i], __ATOMIC_RELAXED);
	card_raise(&page->slot[slot].held_max, held);
}

void card_unuse(struct simcard *page, uint64_t frames)
{
	uint64_t seen = __atomic_load_n(&page->used, __ATOMIC_RELAXED);
	uint64_t less;

	/* Who died may not have added what is taken off now. */
	do {
		less = seen > frames * SIMCARD_FRAME ? seen - frames * SIMCARD_FRAME : 0;
	} while (!__atomic_compare_exchange_n(&page->used, &seen, less, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
}

static bool claim_one(struct card *card, enum simcard_kind kind, uint32_t frame)
{
	uint16_t nobody = 0;

	if (!__atomic_compare_exchange_n(&card->page->frame[frame], &nobody, (uint16_t)(card->slot + 1), false, __ATOMIC_SEQ_CST,
					 __ATOMIC_RELAXED))
		return false;
	__atomic_store_n(&card_shared(card->page)->kind[frame], (uint8_t)kind, __ATOMIC_RELAXED);
	return true;
}

static bool is_free(const struct simcard *page, uint64_t frame)
{
	return __atomic_load_n(&page->frame[frame], __ATOMIC_RELAXED) == 0;
}

/* Claims free frames in the order of the table from start on, once around; in one run if there is
 * one. Returns how many it got. */
static uint64_t claim_some(struct card *card, enum simcard_kind kind, uint32_t *frames, uint64_t count, uint64_t start)
{
	uint64_t capacity = card_frames(card->page);
	uint64_t got = 0, run = 0;

	for (uint64_t i = 0; count > 1 && i < capacity && run < count; i++) {
		uint64_t frame = (start + i) % capacity;

		run = !is_free(card->page, frame) ? 0 : frame == 0 ? 1 : run + 1;
		if (run == count)
			start = frame + 1 - count;
	}
	for (uint64_t i = 0; i < capacity && got < count; i++) {
		uint64_t frame = (start + i) % capacity;

		if (is_free(card->page, frame) && claim_one(card, kind, (uint32_t)frame))
			frames[got++] = (uint32_t)frame;
	}
	return got;
}

static void unclaim(struct card *card, const uint32_t *frames, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		__atomic_store_n(&card->page->frame[frames[i]], 0, __ATOMIC_SEQ_CST);
}

static bool try_claim(struct card *card, enum simcard_kind kind, uint32_t *frames, uint64_t count)
{
	uint64_t capacity = card_frames(card->page);
	uint64_t got, used;

	card_begin(card);
	got = claim_some(card, kind, frames, count, card->next % capacity);
	if (got < count) {
		unclaim(card, frames, got);
	} else {
		card->next = frames[count - 1] + 1u;
		used = __atomic_add_fetch(&card->page->used, count * SIMCARD_FRAME, __ATOMIC_RELAXED);
		card_raise(&card->page->used_max, used);
		card_account(card->page, (unsigned)card->slot, kind, (int64_t)count);
	}
	card_end(card);
	return got == count;
}

int card_claim(struct card *card, enum simcard_kind kind, uint32_t *frames, uint64_t count)
{
	uint64_t capacity = card_frames(card->page);

	if (!card_intact(card))
		return -EBADF;
	for (int try = 0; try < CLAIM_TRIES && count <= capacity; try++) {
		if (try_claim(card, kind, frames, count))
			return 0;
		if (card_reap(card) + card_sweep(card) > 0)
			continue;
		/* Does it fit, but for what others have claimed and will give back? */
		if (__atomic_load_n(&card->page->used, __ATOMIC_RELAXED) / SIMCARD_FRAME + count > capacity)
			break;
		sched_yield();
	}
	__atomic_fetch_add(&card->page->refused, 1, __ATOMIC_RELAXED);
	return -ENOMEM;
}

void card_punch(const struct card *card, uint32_t first, uint64_t count)
{
	if (fallocate(card->mem_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, card_offset(first), (off_t)(count * SIMCARD_FRAME)) != 0) {
		/* A file system that cannot: zeros are what the next owner must read. */
		void *memory = mmap(NULL, count * SIMCARD_FRAME, PROT_READ | PROT_WRITE, MAP_SHARED, card->mem_fd, card_offset(first));

		if (memory == MAP_FAILED)
			return;
		for (uint64_t *word = memory; word < (uint64_t *)memory + count * SIMCARD_FRAME / sizeof(*word); word++)
			*word = 0;
		munmap(memory, count * SIMCARD_FRAME);
	}
}

void card_release(struct card *card, const uint32_t *frames, uint64_t count)
{
	struct card_shared *shared = card_shared(card->page);

	if (!card_intact(card))
		return;
	for (uint64_t i = 0, run; i < count; i += run) {
		for (run = 1; i + run < count && frames[i + run] == frames[i] + run; run++)
			continue;
		card_punch(card, frames[i], run);
	}
	card_begin(card);
	for (uint64_t i = 0; i < count; i++)
		card_account(card->page, (unsigned)card->slot, __atomic_load_n(&shared->kind[frames[i]], __ATOMIC_RELAXED), -1);
	card_unuse(card->page, count);
	for (uint64_t i = 0; i < count; i++)
		__atomic_store_n(&card->page->frame[frames[i]], 0, __ATOMIC_SEQ_CST);
	card_end(card);
}

/* Whether no living process is between card_begin and card_end. */
static bool quiet(struct simcard *page)
{
	for (unsigned slot = 0; slot < SIMCARD_MAX_SLOTS; slot++) {
		if (__atomic_load_n(&page->slot[slot].taken, __ATOMIC_ACQUIRE) &&
		    __atomic_load_n(&page->slot[slot].reserved[CARD_SLOT_WORK], __ATOMIC_SEQ_CST) % 2 != 0)
			return false;
	}
	return true;
}

typedef uint32_t slot_counts[SIMCARD_MAX_SLOTS][SIMCARD_KINDS];

/* Sets what is counted to what the table says. A word that changes
 * meanwhile keeps what it was changed to. */
static void correct(struct simcard *page, slot_counts counts, const slot_counts before)
{
	for (unsigned slot = 0; slot < SIMCARD_MAX_SLOTS; slot++) {
		for (int kind = 0; kind < SIMCARD_KINDS; kind++) {
			uint64_t is = before[slot][kind] * SIMCARD_FRAME;
			uint64_t should = counts[slot][kind] * SIMCARD_FRAME;

			if (is != should)
				__atomic_compare_exchange_n(&page->slot[slot].held[kind], &is, should, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
		}
	}
}

static bool try_recount(struct card *card, slot_counts counts, slot_counts before)
{
	struct simcard *page = card->page;
	struct card_shared *shared = card_shared(page);
	uint64_t changes = __atomic_load_n(&page->changes, __ATOMIC_SEQ_CST);
	uint64_t used = __atomic_load_n(&page->used, __ATOMIC_RELAXED);
	uint64_t total = 0;

	if (!quiet(page))
		return false;
	for (unsigned slot = 0; slot < SIMCARD_MAX_SLOTS; slot++) {
		for (int kind = 0; kind < SIMCARD_KINDS; kind++) {
			counts[slot][kind] = 0;
			before[slot][kind] = (uint32_t)(__atomic_load_n(&page->slot[slot].held[kind], __ATOMIC_RELAXED) / SIMCARD_FRAME);
		}
	}
	for (uint64_t frame = 0; frame < card_frames(page); frame++) {
		unsigned owner = __atomic_load_n(&page->frame[frame], __ATOMIC_SEQ_CST);

		if (owner == 0 || owner > SIMCARD_MAX_SLOTS)
			continue;
		total += SIMCARD_FRAME;
		counts[owner - 1][__atomic_load_n(&shared->kind[frame], __ATOMIC_RELAXED) % SIMCARD_KINDS]++;
	}
	if (__atomic_load_n(&page->changes, __ATOMIC_SEQ_CST) != changes)
		return false;
	__atomic_store_n(&shared->recount, 0, __ATOMIC_SEQ_CST);
	correct(page, counts, before);
	__atomic_compare_exchange_n(&page->used, &used, total, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	return true;
}

void card_recount(struct card *card)
{
	struct card_shared *shared = card_shared(card->page);
	slot_counts *counts;

	if (!__atomic_load_n(&shared->recount, __ATOMIC_SEQ_CST))
		return;
	counts = malloc(2 * sizeof(*counts));
	for (int try = 0; counts && try < RECOUNT_TRIES; try++) {
		if (try_recount(card, counts[0], counts[1]))
			break;
	}
	free(counts);
}

uint64_t card_count(const struct card *card)
{
	uint64_t total = 0;
	bool alive[SIMCARD_MAX_SLOTS];

	for (unsigned slot = 0; slot < SIMCARD_MAX_SLOTS; slot++)
		alive[slot] = __atomic_load_n(&card->page->slot[slot].taken, __ATOMIC_ACQUIRE) && card_owner(card, slot, NULL) == CARD_ALIVE;
	for (uint64_t frame = 0; frame < card_frames(card->page); frame++) {
		unsigned owner = __atomic_load_n(&card->page->frame[frame], __ATOMIC_RELAXED);

		if (owner > 0 && owner <= SIMCARD_MAX_SLOTS && alive[owner - 1])
			total += SIMCARD_FRAME;
	}
	return total;
}
