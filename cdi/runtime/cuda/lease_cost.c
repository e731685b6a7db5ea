/* SPDX-License-Identifier: Apache-2.0
 *
 * What work takes, learned from batches. They tell too much where the card was idle in
 * between, so a batch of several launches that took much longer than it should have is
 * not believed: the next launches are timed one by one.
 */
#include <stdlib.h>

#include "lease_inside.h"

#define BUCKETS 1024u
/* Executable graphs come and go: from here on work shares estimates. */
#define MOST 16384u
#define CAREFUL_FEW 4u
#define CAREFUL_FIRST 8u
#define CAREFUL_LONG 32u
#define NOISE_NS 20000u

static struct cost *buckets[BUCKETS];
static uint32_t known;
static struct lock lock;

static struct cost *find(struct cost *cost, const void *what, uint32_t shape)
{
	while (cost && (cost->what != what || cost->shape != shape))
		cost = cost->next;
	return cost;
}

struct cost *cost_of(const void *what, uint32_t shape)
{
	struct cost **bucket = &buckets[(((uintptr_t)what >> 4) * 31 + shape) * 0x9e3779b1u % BUCKETS];
	struct cost *cost = find(__atomic_load_n(bucket, __ATOMIC_ACQUIRE), what, shape);

	if (cost)
		return cost;
	lock_take(&lock);
	cost = find(*bucket, what, shape);
	if (!cost && known >= MOST)
		cost = *bucket;
	if (!cost)
		cost = calloc(1, sizeof(*cost));
	if (cost && !cost->what) {
		cost->what = what;
		cost->shape = shape;
		cost->next = *bucket;
		known++;
		__atomic_store_n(bucket, cost, __ATOMIC_RELEASE);
	}
	lock_give(&lock);
	return cost;
}

/* Several threads may learn at once: an estimate that is lost is no loss. */
static uint32_t get(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static void set(uint32_t *word, uint32_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

bool cost_is_unknown(const struct cost *cost)
{
	return get(&cost->samples) == 0 || get(&cost->careful) != 0;
}

void cost_was_careful(struct cost *cost)
{
	uint32_t careful = get(&cost->careful);

	if (careful != 0)
		set(&cost->careful, careful - 1);
}

static void be_careful(struct cost *cost, uint32_t launches)
{
	if (get(&cost->careful) < launches)
		set(&cost->careful, launches);
}

void cost_was_guessed(struct cost *cost)
{
	be_careful(cost, 1);
}

static void learn(struct cost *cost, uint64_t sample, bool alone)
{
	uint64_t before = get(&cost->ns), samples = get(&cost->samples);

	if (sample > UINT32_MAX)
		sample = UINT32_MAX;
	if (samples == 0) {
		set(&cost->ns, (uint32_t)sample);
		be_careful(cost, CAREFUL_FIRST);
	} else if (!alone && sample > 2 * before + NOISE_NS) {
		uint32_t doubts = get(&cost->doubts) + 1;

		set(&cost->doubts, doubts);
		/* Ever more rarely, where it is always idleness. */
		if ((doubts & (doubts - 1)) == 0)
			be_careful(cost, CAREFUL_FEW);
		return;
	} else if (sample > 2 * before + NOISE_NS || 2 * sample + NOISE_NS < before) {
		be_careful(cost, CAREFUL_LONG);
		set(&cost->ns, (uint32_t)((before + sample) / 2));
	} else {
		set(&cost->ns, (uint32_t)((3 * before + sample) / 4));
	}
	if (samples < UINT32_MAX)
		set(&cost->samples, (uint32_t)samples + 1);
}

void cost_learn(const struct use *uses, size_t count, uint64_t ns, bool alone)
{
	uint64_t expected = 0;

	for (size_t i = 0; i < count; i++)
		expected += (uint64_t)uses[i].ns * uses[i].units;
	for (size_t i = 0; i < count; i++) {
		uint64_t sample = ns / uses[i].units;

		/* What is shared by several is shared as it was expected. */
		if (count > 1)
			sample = expected ? (uint64_t)((double)ns * uses[i].ns / (double)expected) : ns;
		learn(uses[i].cost, sample, alone);
	}
}
