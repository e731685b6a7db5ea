/* SPDX-License-Identifier: Apache-2.0
 *
 * What is in flight on a card: batches behind which an event was recorded, in the order in
 * which they were. One thread at a time looks which have ended; who comes meanwhile does
 * without.
 */
#include "lease_inside.h"
#include "zz_generated_hooks.h"

/* So long past its estimate, a batch that has not begun waits for something else than the
 * card, */
#define BLOCKED_NS 5000000u
/* one of which nobody knows whether it has begun is taken to, */
#define UNSURE_NS 20000000u
/* and one that runs may wait for what is yet to be launched. */
#define PATIENCE_NS 100000000u
/* A short launch waits no longer for what runs on another stream; less, where that was what it
 * waited for, which is seen from that it ended soon. */
#define COURTESY_NS 5000000u
#define LEAST_COURTESY_NS 50000u
#define SOON_NS 500000u
/* So long a stream is not waited for that has waited for something else. */
#define EXCLUDED_NS 100000000u
#define SHORTEST_NAP_NS 20000u
#define LONGEST_NAP_NS 1000000u
/* A window that is shared by several processes. */
#define CROWDED_NS 500000u
/* Where it is not known well when what is in flight ends. */
#define WATCHFUL_NAP_NS 50000u
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
		if (meter->blocked[i].until < place->until)
			place = &meter->blocked[i];
	}
	*place = (struct blocked){ .stream = stream, .until = now + EXCLUDED_NS };
	__atomic_store_n(&meter->blocked_until, place->until, __ATOMIC_RELAXED);
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

struct pass {
	CUstream pending[16];
	size_t count;
	bool running; /* something is in flight that does not wait for something else */
};

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

/* When the batch began, if nothing is before it now; under the meter's lock. */
static uint64_t begun_at(const struct meter *meter, const struct batch *batch)
{
	return batch->recorded > meter->latest ? batch->recorded : meter->latest;
}

/* By how much it has passed its estimate. */
static uint64_t overdue(const struct meter *meter, const struct batch *batch, uint64_t now)
{
	uint64_t due = begun_at(meter, batch) + batch->ns;

	return now > due ? now - due : 0;
}

/* The batch has not ended. Whether that is because its stream waits for something else: then no
 * batch of that stream counts, also none that came since. A single launch has begun when its start
 * has ended; of several one may have to wait. */
static bool is_held_up(struct meter *meter, struct batch *batch, bool first, bool stranger)
{
	uint64_t now = now_ns(), late;
	bool begun, sure, held_up;

	lock_take(&meter->lock);
	if (first && !batch->excluded)
		batch->seen = now;
	late = overdue(meter, batch, now);
	lock_give(&meter->lock);
	if (!batch->excluded && (!first || late < BLOCKED_NS))
		return false;
	begun = !batch->start || ask(batch, batch->start, stranger) != CUDA_ERROR_NOT_READY;
	sure = batch->start && (batch->alone || !begun);
	if (batch->excluded)
		held_up = !begun || (!sure && now >= batch->recorded + batch->ns + PATIENCE_NS);
	else
		held_up = sure ? !begun : late >= UNSURE_NS;
	if (held_up) {
		lock_take(&meter->lock);
		exclude(meter, batch->stream, now);
		lock_give(&meter->lock);
	}
	return !begun || (held_up && !sure && now >= batch->recorded + batch->ns + PATIENCE_NS);
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
	uint64_t end = begun_at(meter, batch) + took;

	if (end < batch->seen)
		end = batch->seen;
	return end < now ? end : now;
}

/* Under the meter's lock, for a launch that went although there was no room: what it was let go for
 * ended then; UINT64_MAX: not yet. Who has long kernels and launches beside them gains nothing, as those do
 * not end by it. */
static void judge_courtesy(struct meter *meter, uint64_t end)
{
	bool helped = end >= meter->lenient && end - meter->lenient < SOON_NS;

	if (helped && meter->courtesy > LEAST_COURTESY_NS)
		meter->courtesy /= 2;
	else if (!helped && meter->courtesy < COURTESY_NS)
		meter->courtesy *= 2;
	if (meter->courtesy > COURTESY_NS)
		meter->courtesy = COURTESY_NS;
	meter->courted = 0;
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

/* Takes all batches out that have ended. stranger: the thread has no context of its own. False:
 * another thread is at it. Only who retires, or is alone at the events, takes batches out; others append. */
static bool retire(struct meter *meter, struct pass *pass, bool stranger)
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
			judge_courtesy(meter, meter->latest);
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

/* ---- how much it is ------------------------------------------------------------------------ */

/* What is known of it without asking the driver. */
struct outlook {
	uint64_t left;    /* ns, as estimated */
	bool guessed;     /* something that was never recorded may be in flight */
	bool poor;        /* what the first takes is not known well */
	uint64_t overdue; /* by how much the first has passed its estimate */
	CUstream stream;  /* of the first; NULL: there is none */
	uint64_t recorded; /* the first */
	uint64_t courtesy; /* so long a short launch waits for it */
};

static bool is_known_poorly(const struct batch *batch)
{
	for (uint32_t i = 0; i < batch->count; i++)
		if (cost_is_unknown(batch->use[i].cost))
			return true;
	return false;
}

static void look(struct meter *meter, uint64_t now, struct outlook *outlook)
{
	struct batch *batch;

	*outlook = (struct outlook){ .left = 0 };
	lock_take(&meter->lock);
	if (meter->courtesy == 0)
		meter->courtesy = COURTESY_NS;
	outlook->courtesy = meter->courtesy;
	for (batch = meter->first; batch && batch->excluded; batch = batch->next)
		;
	if (batch) {
		uint64_t since = begun_at(meter, batch);
		uint64_t ran = now > since ? now - since : 0;

		outlook->left = meter->outstanding - (ran < batch->ns ? ran : batch->ns);
		outlook->overdue = overdue(meter, batch, now);
		outlook->poor = is_known_poorly(batch);
		outlook->stream = batch->stream;
		outlook->recorded = batch->recorded;
	}
	outlook->guessed = meter->until > now;
	if (outlook->guessed)
		outlook->left += meter->until - now;
	lock_give(&meter->lock);
}

/* A launch that waits for room. */
struct waiter {
	CUstream stream;
	uint64_t since;
	uint64_t target; /* what may be left */
	bool crowded;    /* other processes of the share have work in flight: what is overdue waits for theirs */
	bool is_short;
};

/* What runs may wait for what is yet to be launched: one launch goes, at times. Any of them where it
 * is long overdue; and before, for what was held up once is expected to take as long again, a
 * short one on another stream. */
static bool is_patience_over(struct meter *meter, const struct outlook *outlook, const struct waiter *waiter, uint64_t now)
{
	bool courtesy = waiter->is_short && waiter->stream && outlook->stream && outlook->stream != waiter->stream;
	uint64_t pause = courtesy ? outlook->courtesy : PATIENCE_NS;
	bool over;

	if (outlook->overdue <= PATIENCE_NS && !(courtesy && now - waiter->since > pause))
		return false;
	lock_take(&meter->lock);
	over = now > meter->lenient && now - meter->lenient > pause;
	if (over) {
		if (courtesy && meter->courted == outlook->recorded)
			judge_courtesy(meter, UINT64_MAX);
		meter->courted = courtesy ? outlook->recorded : 0;
		meter->lenient = now;
	}
	lock_give(&meter->lock);
	return over;
}

/* How long to wait before another look. */
static uint64_t nap_for(const struct outlook *outlook, uint64_t target)
{
	uint64_t longest = outlook->poor || outlook->overdue ? WATCHFUL_NAP_NS : LONGEST_NAP_NS;
	uint64_t nap = outlook->overdue ? SHORTEST_NAP_NS + outlook->overdue / 8 : outlook->left - target;

	/* Whose turn comes by courtesy does not sleep through it. */
	if (longest > outlook->courtesy)
		longest = outlook->courtesy;
	if (nap < SHORTEST_NAP_NS)
		return SHORTEST_NAP_NS;
	return nap < longest ? nap : longest;
}

static bool admit(struct meter *meter, const struct waiter *waiter)
{
	struct outlook outlook;
	struct pass pass;
	uint64_t now, left;
	uint32_t word;

	for (;;) {
		retire(meter, &pass, false);
		now = now_ns();
		look(meter, now, &outlook);
		if ((outlook.left <= waiter->target && !(waiter->crowded && outlook.overdue)) || is_patience_over(meter, &outlook, waiter, now))
			return true;
		if (meter_view(meter, &word, &left) == VIEW_CLOSED)
			return false;
		nap_precisely_ns(nap_for(&outlook, waiter->target));
	}
}

bool flight_admit(struct meter *meter, CUstream stream, uint64_t ns)
{
	uint64_t window = meter_window(meter), lead = window < CROWDED_NS ? 0 : window / 2;
	struct waiter waiter = { .stream = stream, .target = ns + lead < window ? window - ns : lead, .is_short = ns <= window, .crowded = window < CROWDED_NS };
	bool admitted;

	if (__atomic_load_n(&meter->outstanding, __ATOMIC_RELAXED) <= waiter.target)
		return true;
	waiter.since = now_ns();
	__atomic_add_fetch(&meter->admitting, 1, __ATOMIC_RELAXED);
	admitted = admit(meter, &waiter);
	__atomic_sub_fetch(&meter->admitting, 1, __ATOMIC_RELAXED);
	return admitted;
}

bool flight_is_over(struct meter *meter, uint64_t *ends)
{
	struct outlook outlook;
	struct pass pass;
	uint64_t now;
	bool looked = retire(meter, &pass, true);

	now = now_ns();
	look(meter, now, &outlook);
	*ends = now + outlook.left;
	return looked && !pass.running && !outlook.guessed;
}
