/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger.h"

#include <sched.h>

/* Between any two accesses; tests let others run there. */
#ifndef LEDGER_STEP
#define LEDGER_STEP() ((void)0)
#endif

/* How long a reservation tries again that met others' pending, and how long one
 * does that met calls in flight whose amounts may yet turn out smaller. */
#define PENDING_PATIENCE_NS 2000000000ull
#define INFLIGHT_PATIENCE_NS 2000000ull

/* Amounts move between slots when a process dies, or memory passes to another one: more
 * moves during one look only a forged ledger has. */
#define LOOK_TRIES 1000

/* What one look at all slots says. */
struct sums {
	uint64_t pending;  /* of all, the reader's own included */
	uint64_t held;     /* committed, reserve and implicit */
	uint32_t inflight; /* calls */
	bool lowest;       /* no slot below the reader's has pending */
};

enum outcome { FITS, FULL, CONTENDED, INFLIGHT };

/* Sums that would wrap around are as good as endless: a slot may say anything. */
static uint64_t plus(uint64_t a, uint64_t b)
{
	uint64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static void sum(const struct session_share *share, struct tranche_ledger *ledger, struct sums *sums)
{
	const struct tranche_slot *own = session_slot(share);
	uint32_t slots = session_slots(share);

	*sums = (struct sums){ .lowest = true };
	for (uint32_t i = 0; i < slots; i++) {
		struct tranche_slot *slot = &ledger->slot[i];
		/* This order: what moves from one word to the next during the
		 * look is seen in one of them, or in both. */
		uint64_t pending = __atomic_load_n(&slot->pending, __ATOMIC_SEQ_CST);
		LEDGER_STEP();
		uint64_t committed = __atomic_load_n(&slot->committed, __ATOMIC_SEQ_CST);
		LEDGER_STEP();
		uint64_t reserve = __atomic_load_n(&slot->reserve, __ATOMIC_SEQ_CST);
		uint64_t implicit = __atomic_load_n(&slot->implicit, __ATOMIC_SEQ_CST);

		sums->pending = plus(sums->pending, pending);
		sums->held = plus(sums->held, plus(committed, plus(reserve, implicit)));
		/* An estimate is in flight too: it turns into less, or for an instant is in
		 * reserve and in implicit. */
		sums->inflight += __atomic_load_n(&slot->inflight, __ATOMIC_RELAXED) + (reserve != 0);
		if (pending != 0 && slot < own)
			sums->lowest = false;
	}
}

static void look(const struct session_share *share, struct sums *sums)
{
	struct tranche_ledger *ledger = session_ledger(share);
	uint32_t moves, after = __atomic_load_n(&ledger->moves, __ATOMIC_SEQ_CST);

	for (int tries = 0; tries < LOOK_TRIES; tries++) {
		moves = after;
		sum(share, ledger, sums);
		LEDGER_STEP();
		after = __atomic_load_n(&ledger->moves, __ATOMIC_SEQ_CST);
		if (after == moves)
			return;
	}
	/* Somebody of the share scribbles: it is full. */
	sums->held = UINT64_MAX;
}

static enum outcome judge(const struct sums *sums, uint64_t limit, uint64_t bytes, uint32_t own_inflight)
{
	if (plus(sums->pending, sums->held) <= limit)
		return FITS;
	if (plus(sums->held, bytes) <= limit)
		return CONTENDED;
	return sums->inflight > own_inflight ? INFLIGHT : FULL;
}

static void accept(struct tranche_slot *slot, struct session_share *share, enum ledger_column column, uint64_t bytes)
{
	if (column == LEDGER_COMMITTED) {
		__atomic_add_fetch(&slot->committed, bytes, __ATOMIC_SEQ_CST);
	} else {
		__atomic_add_fetch(&share->estimates, bytes, __ATOMIC_RELAXED);
		__atomic_add_fetch(&slot->reserve, bytes, __ATOMIC_SEQ_CST);
	}
	LEDGER_STEP();
	__atomic_sub_fetch(&slot->pending, bytes, __ATOMIC_SEQ_CST);
}

/* One attempt, inside the gate. With stay, pending stays in place while this is the
 * lowest slot that has some, and the attempt goes on, for a while. */
static enum outcome attempt(struct session_share *share, enum ledger_column column, uint64_t bytes, bool stay)
{
	struct tranche_slot *slot = session_slot(share);
	uint32_t own_inflight = column == LEDGER_COMMITTED ? 1 : 0;
	enum outcome outcome = CONTENDED;
	struct sums sums;

	__atomic_add_fetch(&slot->pending, bytes, __ATOMIC_SEQ_CST);
	LEDGER_STEP();
	for (int i = 0; i < (stay ? 1000 : 1); i++) {
		look(share, &sums);
		outcome = judge(&sums, session_limit(share), bytes, own_inflight);
		LEDGER_STEP();
		if (outcome == FITS) {
			accept(slot, share, column, bytes);
			return FITS;
		}
		if (outcome != CONTENDED || !sums.lowest || __atomic_load_n(&share->gate.word, __ATOMIC_RELAXED) & GATE_ALONE)
			break;
		if (stay)
			sched_yield();
	}
	__atomic_sub_fetch(&slot->pending, bytes, __ATOMIC_SEQ_CST);
	return outcome;
}

static enum outcome attempt_again(struct session_share *share, enum ledger_column column, uint64_t bytes, enum outcome outcome)
{
	uint64_t start = now_ns();
	uint64_t nap = 1000;

	lock_take(&share->turn);
	for (;;) {
		uint64_t patience = outcome == CONTENDED ? PENDING_PATIENCE_NS : INFLIGHT_PATIENCE_NS;

		gate_enter(&share->gate);
		outcome = attempt(share, column, bytes, true);
		gate_leave(&share->gate);
		if (outcome == FITS || outcome == FULL || now_ns() - start > patience)
			break;
		nap_ns(nap);
		if (nap < 200000)
			nap *= 2;
	}
	lock_give(&share->turn);
	return outcome;
}

bool ledger_take(struct session_share *share, enum ledger_column column, uint64_t bytes)
{
	enum outcome outcome;

	gate_enter(&share->gate);
	outcome = attempt(share, column, bytes, false);
	gate_leave(&share->gate);
	if (outcome == CONTENDED || outcome == INFLIGHT)
		outcome = attempt_again(share, column, bytes, outcome);
	return outcome == FITS;
}

void ledger_begin(struct session_share *share)
{
	gate_enter(&share->gate);
	__atomic_add_fetch(&session_slot(share)->inflight, 1, __ATOMIC_SEQ_CST);
	gate_leave(&share->gate);
}

void ledger_end(struct session_share *share)
{
	struct tranche_slot *slot;

	gate_enter(&share->gate);
	slot = session_slot(share);
	__atomic_add_fetch(&slot->changes, 1, __ATOMIC_SEQ_CST);
	__atomic_sub_fetch(&slot->inflight, 1, __ATOMIC_SEQ_CST);
	gate_leave(&share->gate);
}

void ledger_give(struct session_share *share, uint64_t bytes)
{
	gate_enter(&share->gate);
	__atomic_sub_fetch(&session_slot(share)->committed, bytes, __ATOMIC_SEQ_CST);
	gate_leave(&share->gate);
}

void ledger_admit(struct session_share *share, uint64_t bytes)
{
	gate_enter(&share->gate);
	__atomic_add_fetch(&session_slot(share)->committed, bytes, __ATOMIC_SEQ_CST);
	gate_leave(&share->gate);
}

void ledger_unreserve(struct session_share *share, uint64_t bytes)
{
	gate_enter(&share->gate);
	__atomic_sub_fetch(&session_slot(share)->reserve, bytes, __ATOMIC_SEQ_CST);
	__atomic_sub_fetch(&share->estimates, bytes, __ATOMIC_RELAXED);
	gate_leave(&share->gate);
}

void ledger_export(struct session_share *share, uint64_t bytes)
{
	gate_enter(&share->gate);
	__atomic_add_fetch(&session_slot(share)->exported, bytes, __ATOMIC_SEQ_CST);
	gate_leave(&share->gate);
}

void ledger_unexport(struct session_share *share, uint64_t bytes)
{
	gate_enter(&share->gate);
	__atomic_sub_fetch(&session_slot(share)->exported, bytes, __ATOMIC_SEQ_CST);
	gate_leave(&share->gate);
}

bool ledger_has_others(const struct session_share *share)
{
	const struct tranche_ledger *ledger = session_ledger(share);
	const struct tranche_slot *own = session_slot(share);
	uint32_t slots = session_slots(share);

	for (uint32_t i = 0; i < slots; i++)
		if (&ledger->slot[i] != own && __atomic_load_n(&ledger->slot[i].attached, __ATOMIC_RELAXED) != 0)
			return true;
	return false;
}

uint32_t ledger_moves(const struct session_share *share)
{
	return __atomic_load_n(&session_ledger(share)->moves, __ATOMIC_SEQ_CST);
}

void ledger_doubt(struct session_share *share, uint64_t bytes)
{
	struct tranche_slot *slot;

	gate_enter(&share->gate);
	slot = session_slot(share);
	__atomic_add_fetch(&share->estimates, bytes, __ATOMIC_RELAXED);
	/* Readers read committed first, so they see it in one of the two. */
	__atomic_add_fetch(&slot->reserve, bytes, __ATOMIC_SEQ_CST);
	__atomic_sub_fetch(&slot->committed, bytes, __ATOMIC_SEQ_CST);
	gate_leave(&share->gate);
}

uint64_t ledger_charge(const struct session_share *share)
{
	struct sums sums;

	look(share, &sums);
	return sums.held;
}
