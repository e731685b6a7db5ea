/* SPDX-License-Identifier: Apache-2.0
 *
 * Wardens: one thread for each share that has a lease. It sleeps until the word changes, but while
 * others wait for the card, or the lease was closed and something is in flight.
 */
#include <errno.h>
#include <sys/prctl.h>

#include "lease_inside.h"

/* While nothing is to be done. The grant may be replaced just before it sleeps on it. */
#define LOOK_NS 1000000000u
/* While others wait and this process does not. */
#define NOW_AND_THEN_NS 5000000u
#define SHORTEST_NS 20000u
/* A promise is kept that is wrong by no more, */
#define LATE_NS (2 * TRANCHE_LEASE_LEAD_NS)
/* and taken back where it is wrong by more than one of the hardware's turns: the last of a kernel may
 * wait for one of the next share's, and has had its time then. */
#define OVERRUN_NS 2500000u
/* After so many that were not kept the next ones are as rare as they get. */
#define MOST_BROKEN 6u

/* What a warden knows from its last look. */
struct watch {
	struct lease *lease;
	struct census census;
	uint64_t quiet;    /* since when there were no more, and nothing recorded was in flight */
	uint64_t contended; /* since when others wait; 0: they do not */
	uint64_t promised; /* when nothing will be in flight, as was said before it was so; 0: nothing was said */
	bool missed;       /* and it was not so */
	uint32_t broken;   /* promises of late, less those that were kept */
	uint32_t wary;     /* so many turns nothing is promised */
};

/* Whether nothing is in flight; if not, when nothing will be, as estimated. */
static bool is_idle(struct watch *watch, struct forecast *forecast)
{
	struct meter *meter = watch->lease->meter;
	uint32_t endings = __atomic_load_n(&meter->endings, __ATOMIC_SEQ_CST);
	struct census census = census_take(meter, NOBODY_IS_HELD_UP), again;
	uint64_t began = now_ns(), now;
	bool over = flight_is_over(meter, forecast);

	/* What was in flight may have been forgotten while it runs. */
	over &= __atomic_load_n(&meter->endings, __ATOMIC_SEQ_CST) == endings;
	/* Who launches on a stream that was just seen to be held up waits with it, as does what is not recorded there. */
	if ((census.inside || census.ns != 0) && over) {
		again = census_take(meter, began);
		again.inside |= again.launches != census.launches;
		census = again;
	}
	now = now_ns();
	if (census.launches != watch->census.launches || census.inside || !over)
		watch->quiet = now;
	watch->census = census;
	over &= !census.inside && now >= watch->quiet + census.ns;
	if (forecast->ends < watch->quiet + census.ns)
		forecast->ends = watch->quiet + census.ns;
	meter_tell(meter, over ? 0 : forecast->ends);
	return over;
}

static uint64_t nap_until(uint64_t ends, uint64_t longest)
{
	uint64_t now = now_ns();
	uint64_t nap = ends > now ? ends - now : 0;

	if (nap < SHORTEST_NS)
		return SHORTEST_NS;
	return nap < longest ? nap : longest;
}

/* Takes wants back when the card was not used for long enough. */
static bool let_go(struct watch *watch, bool idle)
{
	return idle && now_ns() >= watch->quiet + TRANCHE_LEASE_IDLE_NS && lease_take_back(watch->lease, &watch->census);
}

/* Says that nothing will be in flight shortly before it is so: the card would be idle until the next
 * share's work comes. */
static void promise(struct watch *watch, uint32_t word, uint64_t ends)
{
	uint64_t now = now_ns();

	/* What is overdue ends at a time that nobody knows. */
	if (watch->wary != 0 || watch->census.inside || ends <= now || ends > now + TRANCHE_LEASE_LEAD_NS)
		return;
	watch->promised = ends;
	lease_drained(watch->lease, word);
}

/* Estimates may be wrong. What runs on beside the next share's work is not charged until the promise
 * is taken back: after one that was not kept some turns are handed over late rather than early. */
static void judge_promise(struct watch *watch, bool idle)
{
	uint64_t now = now_ns(), late = now > watch->promised ? now - watch->promised : 0;

	if (watch->promised == 0)
		return;
	if (idle) {
		watch->broken -= !watch->missed && watch->broken != 0;
	} else if (late > LATE_NS && !watch->missed) {
		watch->missed = true;
		watch->broken += watch->broken < MOST_BROKEN;
		watch->wary = 1u << watch->broken;
		return;
	} else if (late <= OVERRUN_NS) {
		return;
	} else {
		lease_drained(watch->lease, TRANCHE_LEASE_OPEN);
	}
	watch->promised = 0;
	watch->missed = false;
}

static uint64_t under_closed(struct watch *watch, uint32_t word)
{
	struct lease *lease = watch->lease;
	struct forecast forecast;
	bool idle, said;

	if (!__atomic_load_n(&lease->wants, __ATOMIC_RELAXED))
		return LOOK_NS;
	idle = is_idle(watch, &forecast);
	judge_promise(watch, idle);
	said = __atomic_load_n(&lease->drained, __ATOMIC_RELAXED) == word;
	if (!idle && !said)
		promise(watch, word, forecast.ends);
	else if (!idle && !watch->census.inside && watch->promised == 0)
		watch->promised = now_ns(); /* it was said by an estimate */
	if (!idle && watch->promised != 0)
		return TRANCHE_LEASE_LEAD_NS;
	if (!idle)
		return nap_until(forecast.ends - (watch->wary ? 0 : TRANCHE_LEASE_LEAD_NS), forecast.poor ? meter_watchful(lease->meter) : TRANCHE_LEASE_IDLE_NS);
	if (!said) {
		watch->wary -= watch->wary != 0;
		lease_drained(lease, word);
	}
	if (let_go(watch, idle))
		return LOOK_NS;
	/* What is tallied has ended as estimated. It may be recorded yet, and then it is known. */
	if (__atomic_load_n(&lease->waiting, __ATOMIC_RELAXED) != 0)
		return watch->census.ns == 0 ? LOOK_NS : NOW_AND_THEN_NS;
	return TRANCHE_LEASE_IDLE_NS;
}

static uint64_t under_contention(struct watch *watch)
{
	struct lease *lease = watch->lease;
	struct forecast forecast;

	if (watch->contended == 0)
		watch->contended = now_ns();
	if (!__atomic_load_n(&lease->wants, __ATOMIC_RELAXED))
		return NOW_AND_THEN_NS;
	lease_check_beat(lease, watch->contended);
	return let_go(watch, is_idle(watch, &forecast)) ? NOW_AND_THEN_NS : TRANCHE_LEASE_IDLE_NS;
}

static void *watch_over(void *argument)
{
	struct watch watch = { .lease = argument };

	prctl(PR_SET_NAME, "tranche-warden");
	prctl(PR_SET_TIMERSLACK, 1);
	capture_relax();
	for (;;) {
		const struct tranche_grant *grant = session_grant(watch.lease->share);
		uint32_t word = __atomic_load_n(&grant->lease, __ATOMIC_ACQUIRE);
		uint64_t nap = LOOK_NS;
		bool open = (word & TRANCHE_LEASE_STATE) == TRANCHE_LEASE_OPEN;

		lease_say_again(watch.lease);
		if ((word & TRANCHE_LEASE_STATE) != TRANCHE_LEASE_CLOSED)
			watch.promised = watch.missed = 0;
		if (!open || !(word & TRANCHE_LEASE_CONTENDED))
			watch.contended = 0;
		if ((word & TRANCHE_LEASE_STATE) == TRANCHE_LEASE_FREE)
			__atomic_add_fetch(&watch.lease->meter->frees, 1, __ATOMIC_RELAXED);
		else if ((word & TRANCHE_LEASE_STATE) == TRANCHE_LEASE_CLOSED)
			nap = under_closed(&watch, word);
		else if (open && (word & TRANCHE_LEASE_CONTENDED))
			nap = under_contention(&watch);
		/* Replaced meanwhile: its waiters were woken before this one was. */
		if (grant == session_grant(watch.lease->share))
			word_wait(&grant->lease, word, nap);
	}
	return NULL;
}

/* Where the system has no thread now the next launch asks again. */
void wardens_start(struct meter *meter)
{
	for (size_t i = 0; i < meter->leases; i++) {
		struct lease *lease = &meter->lease[i];

		if (__atomic_load_n(&lease->watched, __ATOMIC_ACQUIRE))
			continue;
		if (__atomic_exchange_n(&lease->watched, 1, __ATOMIC_ACQ_REL) == 0 && !thread_start(watch_over, lease))
			__atomic_store_n(&lease->watched, 0, __ATOMIC_RELEASE);
	}
}
