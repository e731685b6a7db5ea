/* SPDX-License-Identifier: Apache-2.0
 *
 * How much is in flight on a card: batches behind which an event was recorded, in the order in
 * which they were; and who waits until it is little enough.
 */
#include "lease_inside.h"

/* A short launch waits no longer for what runs on another stream; less, where that was what it
 * waited for, which is seen from that it ended soon. */
#define COURTESY_NS 5000000u
#define LEAST_COURTESY_NS 50000u
#define SOON_NS 500000u
#define SHORTEST_NAP_NS 20000u
#define LONGEST_NAP_NS 1000000u

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
		uint64_t since = batch_began(meter, batch);
		uint64_t ran = now > since ? now - since : 0;

		outlook->left = meter->outstanding - (ran < batch->ns ? ran : batch->ns);
		outlook->overdue = batch_overdue(meter, batch, now);
		outlook->poor = is_known_poorly(batch);
		outlook->stream = batch->stream;
		outlook->recorded = batch->recorded;
	}
	outlook->guessed = meter->until > now;
	if (outlook->guessed)
		outlook->left += meter->until - now;
	lock_give(&meter->lock);
}

/* Who has long kernels and launches beside them gains nothing, as those do
 * not end by it. */
void courtesy_judge(struct meter *meter, uint64_t end)
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
			courtesy_judge(meter, UINT64_MAX);
		meter->courted = courtesy ? outlook->recorded : 0;
		meter->lenient = now;
	}
	lock_give(&meter->lock);
	return over;
}

/* The oldest are looked at, as those of a stream that is held up are: there may be very many. */
bool flight_is_deep(struct meter *meter, CUstream stream)
{
	uint32_t looked = 0, count = 0;

	if (__atomic_load_n(&meter->batches, __ATOMIC_RELAXED) < DEEP)
		return false;
	lock_take(&meter->lock);
	for (const struct batch *batch = meter->first; batch && count < DEEP && looked < 8 * DEEP; batch = batch->next, looked++)
		count += batch->stream == stream;
	lock_give(&meter->lock);
	return count >= DEEP;
}

/* Whether a launch on that stream may be recorded, or need not be by itself. */
static bool has_depth(struct meter *meter, CUstream stream)
{
	return !flight_is_deep(meter, stream) || stream_is_held_up(meter, stream);
}

/* How long to wait before another look. */
static uint64_t nap_for(struct meter *meter, const struct outlook *outlook, uint64_t target)
{
	uint64_t longest = outlook->poor || outlook->overdue ? meter_watchful(meter) : LONGEST_NAP_NS;
	uint64_t nap = outlook->overdue ? SHORTEST_NAP_NS + outlook->overdue / 8 : outlook->left > target ? outlook->left - target : 0;

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
		flight_retire(meter, &pass, false);
		now = now_ns();
		look(meter, now, &outlook);
		if ((outlook.left <= waiter->target && !(waiter->crowded && outlook.overdue) && has_depth(meter, waiter->stream)) ||
		    is_patience_over(meter, &outlook, waiter, now))
			return true;
		if (meter_view(meter, &word, &left) == VIEW_CLOSED)
			return false;
		nap_precisely_ns(nap_for(meter, &outlook, waiter->target));
	}
}

bool flight_admit(struct meter *meter, CUstream stream, uint64_t ns)
{
	uint64_t window = meter_window(meter), lead = window < CROWDED_NS ? 0 : window / 2;
	struct waiter waiter = { .stream = stream, .target = ns + lead < window ? window - ns : lead, .is_short = ns <= window, .crowded = window < CROWDED_NS };
	bool admitted;

	if (__atomic_load_n(&meter->outstanding, __ATOMIC_RELAXED) <= waiter.target && has_depth(meter, stream))
		return true;
	waiter.since = now_ns();
	__atomic_add_fetch(&meter->admitting, 1, __ATOMIC_RELAXED);
	admitted = admit(meter, &waiter);
	__atomic_sub_fetch(&meter->admitting, 1, __ATOMIC_RELAXED);
	return admitted;
}

bool flight_is_over(struct meter *meter, struct forecast *forecast)
{
	struct outlook outlook;
	struct pass pass;
	uint64_t now;
	bool looked = flight_retire(meter, &pass, true);

	now = now_ns();
	look(meter, now, &outlook);
	*forecast = (struct forecast){ .ends = now + outlook.left, .poor = outlook.poor };
	return looked && !pass.running && !outlook.guessed;
}
