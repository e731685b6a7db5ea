/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches are recorded: within a launch, on its stream, by the thread that makes it.
 */
#include <stdlib.h>

#include "lease_inside.h"
#include "zz_generated_hooks.h"

/* So long a stream is not waited for that has waited for something else, and so long it is suspected. */
#define EXCLUDED_NS 100000000u
#define SUSPECTED_NS 10000000000ull

bool stream_was_blocked(struct meter *meter, CUstream stream, uint64_t since)
{
	bool blocked = false;

	if (__atomic_load_n(&meter->blocked_seen, __ATOMIC_RELAXED) < since)
		return false;
	lock_take(&meter->lock);
	for (size_t i = 0; i < sizeof(meter->blocked) / sizeof(meter->blocked[0]); i++)
		blocked |= meter->blocked[i].stream == stream && meter->blocked[i].seen >= since;
	lock_give(&meter->lock);
	return blocked;
}

static bool is_blocked(struct meter *meter, CUstream stream, uint64_t within)
{
	uint64_t now;

	if (__atomic_load_n(&meter->blocked_seen, __ATOMIC_RELAXED) == 0)
		return false;
	now = now_ns();
	return stream_was_blocked(meter, stream, now > within ? now - within : 1);
}

bool stream_is_held_up(struct meter *meter, CUstream stream)
{
	return is_blocked(meter, stream, EXCLUDED_NS);
}

/* An event that is recorded now; NULL where there can be none. */
static CUevent record(struct tally *tally)
{
	CUstreamCaptureMode mode;
	CUevent event = NULL;
	struct pool *pool;

	if (!tally->pool)
		tally->pool = pool_of(&tally->owner);
	pool = tally->pool;
	if (!pool || !pool_enter(pool, &tally->owner))
		return NULL;
	mode = capture_relax();
	if (!capture_is_on(tally->stream))
		event = pool_take(pool);
	if (event && real_cuEventRecord(event, tally->stream) != CUDA_SUCCESS) {
		pool_give(pool, event);
		event = NULL;
	}
	capture_restore(mode);
	pool_leave(pool);
	return event;
}

static struct batch *batch_new(struct meter *meter)
{
	struct batch *batch;

	lock_take(&meter->lock);
	batch = meter->unused;
	if (batch)
		meter->unused = batch->next;
	lock_give(&meter->lock);
	return batch ? batch : malloc(sizeof(*batch));
}

static uint64_t fill_in(struct batch *batch, const struct tally *tally)
{
	uint64_t ns = 0;

	batch->count = 0;
	for (size_t i = 0; i < USES; i++) {
		const struct use *use = &tally->place[i].use;

		if (use->units == 0)
			continue;
		batch->use[batch->count++] = *use;
		ns += (uint64_t)use->ns * use->units;
	}
	return ns;
}

static void empty(struct tally *tally)
{
	for (size_t i = 0; i < USES; i++)
		tally->place[i].use.units = 0;
	tally->start = NULL;
	tally->alone = false;
	__atomic_store_n(&tally->together, 0, __ATOMIC_RELAXED);
	tally->word = 0;
	tally->fill = 0;
	__atomic_store_n(&tally->pending, 0, __ATOMIC_RELEASE);
}

/* A batch that nothing is before has a start of its own; so has one on a stream that may wait.
 * So has the first on a stream after a time in which nothing was tallied: what was launched then
 * is before it. */
void flight_open(struct tally *tally)
{
	struct meter *meter = tally->meter;
	uint32_t frees = __atomic_load_n(&meter->frees, __ATOMIC_RELAXED);
	bool backlog = tally->frees != frees;

	tally->follows = !backlog && __atomic_load_n(&meter->outstanding, __ATOMIC_RELAXED) != 0;
	tally->start = NULL;
	tally->frees = frees;
	if (tally->alone || !tally->follows || is_blocked(meter, tally->stream, SUSPECTED_NS))
		tally->start = record(tally);
}

void flight_close(struct tally *tally)
{
	struct meter *meter = tally->meter;
	struct batch *batch = batch_new(meter);
	CUevent end = batch ? record(tally) : NULL;
	struct pool *pool = tally->pool;
	uint64_t now = now_ns();
	bool blocked = stream_is_held_up(meter, tally->stream);

	if (!end || !pool || !pool_enter(pool, &tally->owner)) {
		free(batch);
		flight_guess(tally);
		return;
	}
	batch->next = NULL;
	batch->pool = pool;
	batch->stream = tally->stream;
	batch->start = tally->start;
	batch->end = end;
	batch->recorded = now;
	batch->seen = 0;
	batch->begun = 0;
	batch->follows = tally->follows;
	batch->alone = tally->alone;
	batch->excluded = blocked;
	batch->ns = fill_in(batch, tally);
	lock_take(&meter->lock);
	*meter->last = batch;
	meter->last = &batch->next;
	__atomic_store_n(&meter->batches, meter->batches + 1, __ATOMIC_RELAXED);
	if (!blocked)
		meter_add(meter, (int64_t)batch->ns);
	lock_give(&meter->lock);
	pool_leave(pool);
	empty(tally);
}

void flight_guess(struct tally *tally)
{
	struct meter *meter = tally->meter;
	struct pool *pool = tally->start ? tally->pool : NULL;
	uint64_t now = now_ns();

	if (pool && pool_enter(pool, &tally->owner)) {
		pool_give(pool, tally->start);
		pool_leave(pool);
	}
	for (size_t i = 0; i < USES; i++)
		if (tally->place[i].use.units != 0)
			cost_was_guessed(tally->place[i].use.cost);
	lock_take(&meter->lock);
	if (tally->pending != 0 && meter->until < now + meter->outstanding)
		meter->until = now + meter->outstanding;
	meter->until += tally->pending;
	lock_give(&meter->lock);
	empty(tally);
}
