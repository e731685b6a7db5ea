/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches at the gate, and their tallies.
 */
#include "lease.h"

#include <errno.h>

#include "around.h"
#include "lease_inside.h"
#include "zz_generated_hooks.h"

/* A batch of that many ns is counted no further. */
#define FULL 1000000000u

static struct meter meters[CARD_MAX];
static struct lock making;

/* ---- cards -------------------------------------------------------------------------- */

static void make(struct meter *meter, struct card *card)
{
	for (size_t i = 0; i < card->shares; i++)
		meter->lease[i] = (struct lease){ .share = card->share[i], .meter = meter };
	meter->last = &meter->first;
	meter->leases = card->shares;
	meter->frees = 1;
	__atomic_store_n(&meter->card, card, __ATOMIC_RELEASE);
}

struct meter *meter_of(struct card *card)
{
	struct meter *meter = &meters[card - card_at(0)];

	if (card->shares == 0)
		return NULL;
	if (__atomic_load_n(&meter->card, __ATOMIC_ACQUIRE))
		return meter;
	lock_take(&making);
	if (!meter->card)
		make(meter, card);
	lock_give(&making);
	return meter;
}

uint64_t meter_window(const struct meter *meter)
{
	uint64_t window = UINT64_MAX;

	for (size_t i = 0; i < meter->leases; i++) {
		const struct lease *lease = &meter->lease[i];
		uint64_t ns = __atomic_load_n(&session_grant(lease->share)->window, __ATOMIC_RELAXED);

		/* Nobody takes a wide one back from who goes on by the timetable, beside whoever has come. */
		if (ns > WINDOW_NS && (session_alone(lease->share) || __atomic_load_n(&lease->still, __ATOMIC_RELAXED)))
			ns = WINDOW_NS;
		if (ns != 0 && ns < window)
			window = ns;
	}
	return window == UINT64_MAX ? WINDOW_NS : window;
}

uint64_t meter_watchful(const struct meter *meter)
{
	return meter_window(meter) < CROWDED_NS ? 50000 : 20000;
}

/* ---- tallies -------------------------------------------------------------------------- */

static inline bool same_context(const struct tally *tally)
{
	CUcontext context;

	if (__atomic_load_n(&contexts_alive, __ATOMIC_RELAXED) <= 1)
		return true;
	return real_cuCtxGetCurrent(&context) == CUDA_SUCCESS && context == tally->owner.context;
}

void lease_synchronizes(CUstream stream)
{
	int saved = errno, cancel = cancel_defer();

	for (uint32_t i = 0; thread_self && i < thread_self->tallies; i++) {
		struct tally *tally = &thread_self->tally[i];

		if (tally->word != 0 && tally->stream == stream && same_context(tally) && !capture_is_on(stream))
			flight_close(tally);
	}
	cancel_restore(cancel);
	errno = saved;
}

void lease_synchronized(CUcontext context, CUstream stream)
{
	for (uint32_t i = 0; thread_self && i < thread_self->tallies; i++) {
		struct tally *tally = &thread_self->tally[i];

		if (tally->pending != 0 && (!stream || tally->stream == stream) &&
		    (context ? tally->owner.context == context : same_context(tally)))
			__atomic_store_n(&tally->pending, 0, __ATOMIC_RELAXED);
	}
}

static inline void count(struct thread *thread, struct tally *tally, struct place *place, uint32_t units)
{
	uint64_t weight = (uint64_t)place->weight * units;

	place->use.units += units;
	tally->fill = (uint32_t)(tally->fill + weight < FULL ? tally->fill + weight : FULL);
	__atomic_store_n(&tally->pending, (uint32_t)(tally->pending + weight < FULL ? tally->pending + weight : FULL), __ATOMIC_RELAXED);
	__atomic_store_n(&thread->launches, thread->launches + 1, __ATOMIC_RELAXED);
}

/* Whether nothing has changed since the batch was opened. */
static bool still_passes(const struct tally *tally)
{
	const struct lease *lease = &tally->meter->lease[0];

	return __atomic_load_n(&lease->pass, __ATOMIC_ACQUIRE) == tally->word && session_lease(lease->share) == tally->word &&
	       (session_trouble() | session_flags(lease->share)) == 0 && __atomic_load_n(&lease_captures, __ATOMIC_RELAXED) == 0;
}

bool lease_is_one_more(struct around *around, const struct work *work)
{
	struct thread *thread = thread_self;
	struct tally *tally;
	struct place *place;

	if (!thread)
		return false;
	tally = thread->last;
	place = tally->last;
	if (tally->word == 0 || tally->stream != work->stream || place->what != work->what || place->shape != work->shape)
		return false;
	if (tally->alone || tally->together || tally->fill + place->weight >= tally->budget || work->units != 1 || !same_context(tally))
		return false;
	be_inside(thread, tally->meter);
	if (!still_passes(tally)) {
		be_inside(thread, NULL);
		return false;
	}
	count(thread, tally, place, 1);
	around->inside = &thread->inside;
	around->tally = NULL;
	return true;
}

static struct tally *tally_of(struct thread *thread, const struct owner *owner, CUstream stream)
{
	struct tally *tally;

	for (size_t i = 0; i < thread->tallies; i++) {
		tally = &thread->tally[i];
		if (tally->stream == stream && tally->owner.context == owner->context && tally->owner.generation == owner->generation)
			return tally;
	}
	if (thread->tallies < STREAMS) {
		tally = &thread->tally[thread->tallies];
		__atomic_store_n(&thread->tallies, thread->tallies + 1, __ATOMIC_RELAXED);
	} else {
		tally = &thread->tally[thread->turn++ % STREAMS];
		thread->watched = WATCHED;
	}
	if (tally->word != 0)
		flight_guess(tally);
	__atomic_store_n(&tally->stream, stream, __ATOMIC_RELAXED);
	tally->owner = *owner;
	tally->pool = NULL;
	tally->frees = 0;
	return tally;
}

/* NULL: there is no memory, or no room for another function. */
static struct place *place_of(struct tally *tally, const struct work *work)
{
	struct place *unused = NULL;

	for (size_t i = 0; i < USES; i++) {
		struct place *place = &tally->place[i];

		if (place->what == work->what && place->shape == work->shape)
			return place;
		if (place->use.units == 0)
			unused = place;
	}
	if (unused) {
		unused->use.cost = cost_of(work->what, work->shape);
		unused->what = unused->use.cost ? work->what : NULL;
		unused->shape = work->shape;
	}
	return unused && unused->what ? unused : NULL;
}

/* Takes the estimate for what is launched from now on, if nothing of it is in the batch, which may have
 * so much. */
static void estimate(struct place *place, uint32_t most)
{
	uint32_t floor = most / BATCH_LAUNCHES;

	if (place->use.units != 0)
		return;
	place->use.ns = (uint32_t)cost_ns(place->use.cost, 1);
	place->weight = place->use.ns > floor ? place->use.ns : floor;
}

/* On how many other streams the thread launches on that card. What was launched under another lease has
 * ended, or is hardly anything: what kernels take that have grown is learned from the next one. */
static uint32_t count_others(struct thread *thread, const struct tally *than, const struct meter *meter, uint32_t word)
{
	uint32_t others = 0;

	for (uint32_t i = 0; i < thread->tallies; i++) {
		struct tally *tally = &thread->tally[i];

		if (tally == than || tally->meter != meter)
			continue;
		if (tally->word != 0 && tally->word != word && tally->together == 0)
			flight_guess(tally);
		others += tally->word != 0 || thread->batches - tally->number < LAST_BATCHES;
	}
	return others;
}

static void begin_batch(struct thread *thread, struct tally *tally, struct meter *meter, uint32_t word, uint32_t most, bool alone)
{
	uint32_t streams = count_others(thread, tally, meter, word) + 1;

	if (thread->watched)
		most = 0;
	else if (streams > BATCHES_TALLIED)
		most = most * BATCHES_TALLIED / streams;
	__atomic_store_n(&tally->meter, meter, __ATOMIC_RELAXED);
	tally->word = word;
	tally->budget = most;
	tally->alone = alone;
	tally->number = thread->batches++;
	flight_open(tally);
}

/* Whether what is launched on the stream now is recorded together: it is held up, and has a lot before it. */
static bool is_together(struct meter *meter, CUstream stream)
{
	return stream_is_held_up(meter, stream) && flight_is_deep(meter, stream);
}

/* Ends the batch that is open, if the launch cannot be part of it. */
static void end_batch(struct tally *tally, struct meter *meter, uint32_t word)
{
	if (tally->word == 0)
		return;
	/* What was launched under another lease has ended, or is hardly anything. */
	if (tally->word != word && tally->together == 0)
		flight_guess(tally);
	else if (tally->word != word || (tally->together != 0 && !is_together(meter, tally->stream)))
		flight_close(tally);
}

/* After a launch was counted: whether the batch ends with it. */
static bool is_full(struct tally *tally)
{
	if (tally->together == 0)
		return tally->alone || tally->fill >= tally->budget;
	__atomic_store_n(&tally->together, tally->together - 1, __ATOMIC_RELAXED);
	return tally->together == 0;
}

/* How long a batch may be: a stream may have DEEP of them in flight, which is to be all of a long window, and a
 * short one is to have several. */
static uint32_t batch_ns(uint64_t window)
{
	uint64_t ns = window / DEEP > BATCH_NS ? window / DEEP : BATCH_NS;

	return (uint32_t)(window / 8 < ns ? window / 8 : ns);
}

/* Makes the launch part of a batch. False: the lease is no longer open. */
static bool enlist(struct thread *thread, struct meter *meter, const struct owner *owner, const struct work *work, uint32_t word,
		   struct around *around)
{
	struct tally *tally = tally_of(thread, owner, work->stream);
	uint64_t window = meter_window(meter), ns;
	uint32_t most = batch_ns(window);
	uint64_t left;
	uint32_t now;
	struct place *place;
	bool alone;

	end_batch(tally, meter, word);
	place = place_of(tally, work);
	if (!place && tally->word != 0) {
		flight_close(tally);
		place = place_of(tally, work);
	}
	if (!place)
		return true;
	estimate(place, most);
	alone = cost_is_unknown(place->use.cost);
	ns = alone && place->use.ns == 0 ? window : (uint64_t)place->use.ns * work->units;
	alone |= ns >= most;
	if (alone && tally->word != 0 && tally->together == 0)
		flight_close(tally);
	if (tally->word == 0 && !flight_admit(meter, work->stream, ns))
		return false;
	__atomic_store_n(&thread->last, tally, __ATOMIC_RELAXED);
	be_inside(thread, meter);
	if (meter_view(meter, &now, &left) == VIEW_CLOSED || now != word || !meter_is_wanted(meter)) {
		be_inside(thread, NULL);
		return false;
	}
	if (tally->word == 0) {
		estimate(place, most);
		if (is_together(meter, work->stream))
			__atomic_store_n(&tally->together, TOGETHER, __ATOMIC_RELAXED);
		cost_was_careful(place->use.cost);
		begin_batch(thread, tally, meter, word, most, alone && tally->together == 0);
	}
	if (place->use.ns == 0 && place->use.units == 0 && alone)
		place->use.ns = (uint32_t)(ns < UINT32_MAX ? ns : UINT32_MAX) / work->units;
	if (tally->together != 0 && place->weight < place->use.ns)
		place->weight = place->use.ns;
	if (thread->watched)
		thread->watched--;
	count(thread, tally, place, work->units);
	tally->last = place;
	around->inside = &thread->inside;
	around->tally = is_full(tally) ? tally : NULL;
	return true;
}

void tally_late(struct thread *thread, struct meter *meter, const struct owner *owner, const struct work *work, uint32_t word)
{
	struct tally *tally = tally_of(thread, owner, work->stream);
	uint32_t frees = __atomic_load_n(&meter->frees, __ATOMIC_RELAXED);
	struct place *place;

	if (tally->word != 0)
		flight_close(tally);
	place = place_of(tally, work);
	if (!place)
		return;
	estimate(place, BATCH_NS);
	if (place->use.ns == 0)
		place->use.ns = WINDOW_NS;
	__atomic_store_n(&tally->meter, meter, __ATOMIC_RELAXED);
	tally->word = word;
	tally->alone = true;
	tally->follows = tally->frees == frees && __atomic_load_n(&meter->outstanding, __ATOMIC_RELAXED) != 0;
	tally->frees = frees;
	count(thread, tally, place, 1);
	flight_close(tally);
}

/* ---- at the gate ----------------------------------------------------------------------- */

static CUresult pass(struct around *around, const struct work *work, struct meter *meter, const struct owner *owner)
{
	struct thread *thread = thread_mine();
	enum lease_view view;
	uint32_t word;
	CUresult result;

	do {
		struct tally *tally = thread ? thread->last : NULL;

		/* Who waits for the lease says first what he has in flight. */
		if (tally && tally->word != 0 && tally->stream == work->stream && meter_view(meter, &word, &(uint64_t){ 0 }) == VIEW_CLOSED &&
		    same_context(tally))
			flight_close(tally);
		result = meter_await(meter, &view, &word);
		if (result != CUDA_SUCCESS || view == VIEW_FREE)
			return result;
	} while (thread && !enlist(thread, meter, owner, work, word, around));
	return CUDA_SUCCESS;
}

CUresult lease_begin(struct around *around, const struct work *work)
{
	struct meter *meter;
	struct owner owner;
	struct card *card;
	int saved = errno, cancel;
	CUresult result;

	if (session_state() != SESSION_OPEN || capture_is_on(work->stream))
		return CUDA_SUCCESS;
	/* Without a context the driver says what is wrong. */
	if (context_current(&card, &owner) != CUDA_SUCCESS || !(meter = meter_of(card)))
		return CUDA_SUCCESS;
	cancel = cancel_defer();
	result = pass(around, work, meter, &owner);
	cancel_restore(cancel);
	errno = saved;
	return result;
}

void lease_end(struct around *around)
{
	int saved = errno, cancel = cancel_defer();

	if (around->tally)
		flight_close(around->tally);
	__atomic_store_n(around->inside, NULL, __ATOMIC_RELEASE);
	cancel_restore(cancel);
	errno = saved;
}
