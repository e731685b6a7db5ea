/* SPDX-License-Identifier: Apache-2.0
 *
 * Which batches have ended, and what they took. One thread at a time looks; who comes meanwhile
 * does without.
 */
#include "lease_inside.h"
#include "zz_generated_hooks.h"

/* So long past its estimate, a batch that has not begun waits for something else than the
 * card, */
#define BLOCKED_NS 5000000u
/* and one of which nobody knows whether it has begun is taken to. */
#define UNSURE_NS 20000000u
/* Batches of functions that were timed often are timed now and then. */
#define WELL_KNOWN 16u
#define TIMED_EVERY 4u

/* ---- under the meter's lock --------------------------------------------------------- */

/* link is the batch's place. */
static void batch_unlink(struct meter *meter, struct batch **link)
{
	struct batch *batch = *link;

	*link = batch->next;
	if (meter->last == &batch->next)
		meter->last = link;
	__atomic_store_n(&meter->batches, meter->batches - 1, __ATOMIC_RELAXED);
}

static void batch_put_back(struct meter *meter, struct batch *batch)
{
	if (!batch->excluded)
		meter_add(meter, -(int64_t)batch->ns);
	batch->next = meter->unused;
	meter->unused = batch;
}

static void exclude(struct meter *meter, CUstream stream, uint64_t now)
{
	struct blocked *place = &meter->blocked[0];

	for (size_t i = 0; i < sizeof(meter->blocked) / sizeof(meter->blocked[0]); i++) {
		if (meter->blocked[i].stream == stream) {
			place = &meter->blocked[i];
			break;
		}
		if (meter->blocked[i].seen < place->seen)
			place = &meter->blocked[i];
	}
	*place = (struct blocked){ .stream = stream, .seen = now };
	__atomic_store_n(&meter->blocked_seen, now, __ATOMIC_RELAXED);
	for (struct batch *batch = meter->first; batch; batch = batch->next)
		if (batch->stream == stream && !batch->excluded) {
			batch->excluded = true;
			meter_add(meter, -(int64_t)batch->ns);
		}
}

/* ---- what has ended ---------------------------------------------------------------------- */

static bool is_due(const struct batch *batch)
{
	static uint32_t batches;
	uint32_t number = __atomic_add_fetch(&batches, 1, __ATOMIC_RELAXED);

	for (uint32_t i = 0; i < batch->count; i++)
		if (__atomic_load_n(&batch->use[i].cost->samples, __ATOMIC_RELAXED) < WELL_KNOWN)
			return true;
	return batch->alone || number % TIMED_EVERY == 0;
}

static bool between(CUevent from, CUevent to, double *ns)
{
	float ms;

	if (!from || !to || real_cuEventElapsedTime(&ms, from, to) != CUDA_SUCCESS)
		return false;
	*ns = (double)ms * 1e6;
	return true;
}

/* On the card's line of time the batch took from its start, or from the end of the one before,
 * whichever was later. Returns ns; what cannot be told is as it was estimated. */
static uint64_t measure(struct batch *batch)
{
	struct pool *pool = batch->pool;
	double start = -1, end = 0, took;
	bool based = between(pool->base, batch->end, &end);

	/* The one before on another stream ended later. */
	if (based && end <= 0)
		return 0;
	if (batch->start) {
		if (based && !between(pool->base, batch->start, &start))
			return batch->ns;
		if ((!based || start >= 0) && !between(batch->start, batch->end, &end))
			return batch->ns;
	} else if (!based || !batch->follows) {
		return batch->ns;
	}
	took = end;
	if (took < 1 || took > 1e12)
		return batch->ns;
	cost_learn(batch->use, batch->count, (uint64_t)took, batch->alone && (batch->start || batch->follows));
	return (uint64_t)took;
}

/* The batch has ended, and is in nobody's hands but ours. */
static uint64_t settle(struct batch *batch)
{
	struct pool *pool = batch->pool;
	uint64_t took = is_due(batch) ? measure(batch) : batch->ns;

	if (took != 0) {
		CUevent base = pool->base;

		pool->base = batch->end;
		batch->end = base;
	}
	pool_give(pool, batch->start);
	pool_give(pool, batch->end);
	return took;
}

static bool is_pending(const struct pass *pass, CUstream stream)
{
	for (size_t i = 0; i < pass->count; i++)
		if (pass->pending[i] == stream)
			return true;
	return false;
}

static CUresult ask(const struct batch *batch, CUevent event, bool stranger)
{
	CUcontext popped;
	CUresult result;

	if (stranger && real_cuCtxPushCurrent_v2(batch->pool->owner.context) != CUDA_SUCCESS)
		return CUDA_ERROR_INVALID_CONTEXT;
	result = real_cuEventQuery(event);
	if (stranger)
		real_cuCtxPopCurrent_v2(&popped);
	return result;
}

uint64_t batch_overdue(const struct meter *meter, const struct batch *batch, uint64_t now)
{
	uint64_t due = batch_began(meter, batch) + batch->ns;

	return now > due ? now - due : 0;
}

/* The batch has not ended. Whether that is because its stream waits for something else: then no
 * batch of that stream counts, also none that came since. A single launch has begun when its start
 * has ended; of several one may have to wait. */
static bool is_held_up(struct meter *meter, struct batch *batch, bool first, bool stranger)
{
	uint64_t now = now_ns(), late, patience;
	bool begun, sure, held_up;

	lock_take(&meter->lock);
	if (first && !batch->excluded)
		batch->seen = now;
	late = batch_overdue(meter, batch, now);
	lock_give(&meter->lock);
	if (!batch->excluded && (!first || late < BLOCKED_NS))
		return false;
	begun = !batch->start || ask(batch, batch->start, stranger) != CUDA_ERROR_NOT_READY;
	sure = batch->start && (batch->alone || !begun);
	if (batch->excluded && batch->start && begun && batch->begun == 0)
		batch->begun = now;
	patience = (batch->begun ? batch->begun : batch->recorded) + batch->ns + PATIENCE_NS;
	if (batch->excluded)
		held_up = !begun || (!sure && now >= patience);
	else
		held_up = sure ? !begun : late >= UNSURE_NS;
	if (held_up) {
		lock_take(&meter->lock);
		exclude(meter, batch->stream, now);
		lock_give(&meter->lock);
	}
	return !begun || (held_up && !sure && now >= patience);
}

/* Whether the batch has ended; if not, its stream is noted. */
static bool has_ended(struct meter *meter, struct batch *batch, struct pass *pass, bool stranger)
{
	bool first = !pass->running;

	if (is_pending(pass, batch->stream))
		return false;
	if (ask(batch, batch->end, stranger) != CUDA_ERROR_NOT_READY)
		return true;
	if (pass->count < sizeof(pass->pending) / sizeof(pass->pending[0]))
		pass->pending[pass->count++] = batch->stream;
	if (!is_held_up(meter, batch, first, stranger))
		pass->running = true;
	return false;
}

/* When a batch ended that is only now seen to have, under the meter's lock: since it began it took
 * so long, and it was last seen to run. */
static uint64_t ended_at(const struct meter *meter, const struct batch *batch, uint64_t took, uint64_t now)
{
	uint64_t end = batch_began(meter, batch) + took;

	if (end < batch->seen)
		end = batch->seen;
	return end < now ? end : now;
}

/* Puts the batch where it belongs among those that have ended: what ran on several streams at once is
 * divided rightly only in the order in which it ended, which may not be that of recording. */
static void sort_in(struct batch **ended, struct batch *batch)
{
	double at = 0;

	between(batch->pool->base, batch->end, &at);
	batch->at = at;
	while (*ended && ((*ended)->pool != batch->pool || (*ended)->at <= at))
		ended = &(*ended)->next;
	batch->next = *ended;
	*ended = batch;
}

/* Takes those out that have ended, in that order. */
static struct batch *take_ended(struct meter *meter, struct pass *pass, bool stranger)
{
	struct batch **link = &meter->first, *batch, *ended = NULL;

	for (;;) {
		lock_take(&meter->lock);
		batch = *link;
		lock_give(&meter->lock);
		if (!batch)
			return ended;
		if (!has_ended(meter, batch, pass, stranger)) {
			link = &batch->next;
			continue;
		}
		lock_take(&meter->lock);
		batch_unlink(meter, link);
		lock_give(&meter->lock);
		sort_in(&ended, batch);
	}
}

/* Only who retires, or is alone at the events, takes batches out; others append. */
bool flight_retire(struct meter *meter, struct pass *pass, bool stranger)
{
	struct batch *ended, *batch;
	CUstreamCaptureMode mode;
	uint64_t used = 0, took, now = now_ns();

	*pass = (struct pass){ .count = 0 };
	if (!lock_try(&meter->retiring))
		return false;
	events_enter();
	mode = capture_relax();
	ended = take_ended(meter, pass, stranger);
	while ((batch = ended)) {
		ended = batch->next;
		took = settle(batch);
		used += took;
		lock_take(&meter->lock);
		meter->latest = ended_at(meter, batch, took, now);
		if (batch->recorded == meter->courted)
			courtesy_judge(meter, meter->latest);
		batch_put_back(meter, batch);
		lock_give(&meter->lock);
	}
	capture_restore(mode);
	events_leave();
	lock_give(&meter->retiring);
	__atomic_add_fetch(&meter->used, used, __ATOMIC_RELAXED);
	return true;
}

void flight_forget(struct meter *meter)
{
	struct batch **link = &meter->first;

	lock_take(&meter->lock);
	while (*link) {
		struct batch *batch = *link;

		if (batch->pool->owner.context) {
			link = &batch->next;
			continue;
		}
		batch_unlink(meter, link);
		batch_put_back(meter, batch);
	}
	lock_give(&meter->lock);
}
