/* SPDX-License-Identifier: Apache-2.0
 *
 * What processes did on the card in the last seconds, from its log of runs.
 */
#include "sim.h"

#include <time.h>

static uint64_t load(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static uint64_t now(clockid_t which)
{
	struct timespec t;

	clock_gettime(which, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t history_overlap(const struct simcard_run *run, uint64_t from, uint64_t to)
{
	uint64_t start = run->start > from ? run->start : from;
	uint64_t end = run->end < to ? run->end : to;

	return end > start ? end - start : 0;
}

unsigned history_percent(uint64_t part, uint64_t whole)
{
	uint64_t percent = whole ? (100 * part + whole / 2) / whole : 0;

	return percent < 100 ? (unsigned)percent : 100;
}

/* The number that the log's entry for run i has in its word `what` once it is written. */
static uint32_t number(uint64_t i)
{
	return (uint32_t)(i / SIMCARD_LOG) & 0xffffff;
}

/* Copies run i; false when it is not written yet, or is overwritten. */
static bool read_run(const struct simcard *page, uint64_t i, struct simcard_run *run)
{
	const struct simcard_run *entry = &page->log[i % SIMCARD_LOG];
	uint32_t what = __atomic_load_n(&entry->what, __ATOMIC_ACQUIRE);

	run->start = load(&entry->start);
	run->end = load(&entry->end);
	run->slot = __atomic_load_n(&entry->slot, __ATOMIC_ACQUIRE);
	run->what = __atomic_load_n(&entry->what, __ATOMIC_ACQUIRE);
	return what == run->what && (what & 0xff) && what >> 8 == number(i) && run->slot < SIMCARD_MAX_SLOTS && run->end > run->start;
}

void history_visit(const struct card *card, void (*visit)(const struct simcard_run *run, void *argument), void *argument)
{
	const struct simcard *page = card->page;
	uint64_t next = load(&page->log_next);

	for (uint64_t i = next > SIMCARD_LOG ? next - SIMCARD_LOG : 0; i < next; i++) {
		struct simcard_run run;

		if (read_run(page, i, &run) && (run.what & 0xff) == SIMCARD_KERNELS && run.start >= load(&page->slot[run.slot].started))
			visit(&run, argument);
	}
}

struct history history_now(const struct card *card)
{
	uint64_t wall = now(CLOCK_REALTIME), monotonic = now(CLOCK_MONOTONIC);
	uint64_t next = load(&card->page->log_next);
	struct history h = { .newest = (wall - HISTORY_DELAY) / HISTORY_PERIOD * HISTORY_PERIOD };
	struct simcard_run oldest;

	h.monotonic = monotonic - (wall - h.newest);
	h.remembered = h.monotonic > HISTORY_LENGTH ? h.monotonic - HISTORY_LENGTH : 0;
	if (next > SIMCARD_LOG && read_run(card->page, next - SIMCARD_LOG, &oldest) && oldest.end > h.remembered)
		h.remembered = oldest.end;
	return h;
}
