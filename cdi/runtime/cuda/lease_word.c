/* SPDX-License-Identifier: Apache-2.0
 *
 * The lease word, who waits for it, and what the demand page says.
 */
#include "lease_inside.h"

/* A waiter looks whether everything is still as it was. */
#define SLICE_NS 100000000u
/* The same where it waits for one of several words. */
#define SLICE_OF_SEVERAL_NS 1000000u
/* No waiter takes longer from one look to the next, unless the process is stopped. */
#define LONGEST_LOOK_NS 1000000000u

/* ---- what the demand page says ------------------------------------------------------- */

/* Under the lease's lock; the warden reads without. */
static void set(uint32_t *word, uint32_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

/* The page that was written; NULL: there is none. */
static const struct tranche_demand *write_page(struct lease *lease)
{
	struct tranche_demand *page = session_demand(lease->share);

	if (!page)
		return NULL;
	__atomic_store_n(&page->waiting, lease->waiting, __ATOMIC_RELAXED);
	__atomic_store_n(&page->waited, lease->waited, __ATOMIC_RELAXED);
	__atomic_store_n(&page->used, __atomic_load_n(&lease->meter->used, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
	__atomic_store_n(&page->drained, lease->drained, __ATOMIC_SEQ_CST);
	__atomic_store_n(&page->wants, lease->wants, __ATOMIC_SEQ_CST);
	return page;
}

/* The same, before the bell is rung. What is in a page for which nobody rang is not said: another
 * arbiter's page may be written by who does not know that it is new. */
static void say(struct lease *lease)
{
	__atomic_store_n(&lease->said, write_page(lease), __ATOMIC_RELAXED);
}

/* Under the lease's lock: with nothing to say launches pass quickly. */
static void let_pass(struct lease *lease, uint32_t word)
{
	bool quick = lease->wants && !__atomic_load_n(&lease->still, __ATOMIC_RELAXED) && (word & TRANCHE_LEASE_STATE) == TRANCHE_LEASE_OPEN;

	/* Of several leases of a card all have to be looked at. */
	quick &= lease->meter->leases == 1;
	__atomic_store_n(&lease->pass, quick ? word : 0, __ATOMIC_RELEASE);
}

static void want(struct lease *lease)
{
	uint32_t word = session_lease(lease->share);
	bool news;

	/* Mostly all is said. A closed word may be 0. */
	if (word != 0 && word == __atomic_load_n(&lease->pass, __ATOMIC_ACQUIRE) &&
	    __atomic_load_n(&lease->said, __ATOMIC_RELAXED) == session_demand(lease->share))
		return;
	lock_take(&lease->lock);
	word = session_lease(lease->share);
	news = !lease->wants || lease->said != session_demand(lease->share);
	if (!lease->wants && (word & TRANCHE_LEASE_STATE) == TRANCHE_LEASE_CLOSED)
		set(&lease->drained, word); /* nothing was in flight */
	set(&lease->wants, 1);
	if (news)
		say(lease);
	let_pass(lease, word);
	lock_give(&lease->lock);
	if (news)
		session_ring(lease->share);
}

static void meter_want(struct meter *meter)
{
	for (size_t i = 0; i < meter->leases; i++)
		want(&meter->lease[i]);
}

bool meter_is_wanted(const struct meter *meter)
{
	bool wanted = true;

	for (size_t i = 0; i < meter->leases; i++)
		wanted &= __atomic_load_n(&meter->lease[i].wants, __ATOMIC_ACQUIRE) != 0;
	return wanted;
}

void meter_tell(struct meter *meter, uint64_t ends)
{
	for (size_t i = 0; i < meter->leases; i++) {
		struct tranche_demand *page = session_demand(meter->lease[i].share);

		if (!page)
			continue;
		__atomic_store_n(&page->ends, ends, __ATOMIC_RELAXED);
		__atomic_store_n(&page->used, __atomic_load_n(&meter->used, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
	}
}

bool lease_take_back(struct lease *lease, const struct census *census)
{
	struct census now;
	bool taken;

	lock_take(&lease->lock);
	taken = lease->wants && lease->waiting == 0 && __atomic_load_n(&lease->meter->admitting, __ATOMIC_RELAXED) == 0;
	if (taken) {
		set(&lease->wants, 0);
		let_pass(lease, 0);
		now = census_take(lease->meter, census->since);
		taken = now.launches == census->launches && !now.inside;
		set(&lease->wants, !taken);
		if (taken)
			say(lease);
	}
	lock_give(&lease->lock);
	if (taken)
		session_ring(lease->share);
	return taken;
}

void lease_drained(struct lease *lease, uint32_t word)
{
	lock_take(&lease->lock);
	set(&lease->drained, word);
	say(lease);
	lock_give(&lease->lock);
	session_ring(lease->share);
}

void lease_say_again(struct lease *lease)
{
	bool news;

	lock_take(&lease->lock);
	news = lease->said && lease->said != session_demand(lease->share);
	if (news)
		say(lease);
	lock_give(&lease->lock);
	if (news)
		session_ring(lease->share);
}

/* ---- what the word says --------------------------------------------------------------- */

static enum lease_view view_alone(const struct tranche_grant *grant, uint64_t now, uint64_t *left)
{
	uint64_t period = __atomic_load_n(&grant->alone_period, __ATOMIC_RELAXED);
	uint64_t start = __atomic_load_n(&grant->alone_start, __ATOMIC_RELAXED);
	uint64_t length = __atomic_load_n(&grant->alone_length, __ATOMIC_RELAXED);
	uint64_t at;

	*left = SLICE_NS;
	if (period == 0)
		return VIEW_CLOSED;
	/* Since the turn began, or would have. */
	at = (now % period + period - start % period) % period;
	if (at < length) {
		*left = length - at;
		return VIEW_OPEN;
	}
	*left = period - at;
	return VIEW_CLOSED;
}

/* Whether the arbiter is where it was when it was found to stand still. Whoever has changed a lease since, or
 * follows another, has moved, and need not show itself before somebody waits again. */
static bool stands_still(struct lease *lease, const struct tranche_grant *grant)
{
	const struct tranche_grant *still = __atomic_load_n(&lease->still, __ATOMIC_ACQUIRE);

	if (!still)
		return false;
	if (still == grant && __atomic_load_n(&grant->beat, __ATOMIC_RELAXED) == __atomic_load_n(&lease->beat, __ATOMIC_RELAXED))
		return true;
	__atomic_store_n(&lease->still, NULL, __ATOMIC_RELAXED);
	return false;
}

enum lease_view lease_view(struct lease *lease, uint32_t *word, uint64_t *left)
{
	const struct tranche_grant *grant = session_grant(lease->share);
	bool still = stands_still(lease, grant);
	uint32_t state;

	*word = __atomic_load_n(&grant->lease, __ATOMIC_ACQUIRE);
	*left = SLICE_NS;
	state = *word & TRANCHE_LEASE_STATE;
	if (state == TRANCHE_LEASE_FREE)
		return VIEW_FREE;
	if (still || session_alone(lease->share))
		return view_alone(grant, now_ns(), left);
	return state == TRANCHE_LEASE_OPEN ? VIEW_OPEN : VIEW_CLOSED;
}

enum lease_view meter_view(struct meter *meter, uint32_t *word, uint64_t *left)
{
	enum lease_view best = lease_view(&meter->lease[0], word, left);

	for (size_t i = 1; i < meter->leases; i++) {
		uint64_t other_left;
		uint32_t other_word;
		enum lease_view view = lease_view(&meter->lease[i], &other_word, &other_left);

		if (view > best) {
			best = view;
			*word = other_word;
		}
		if (*left > SLICE_OF_SEVERAL_NS)
			*left = SLICE_OF_SEVERAL_NS;
	}
	return best;
}

/* ---- waiting ------------------------------------------------------------------------------ */

static void wait_begins(struct meter *meter)
{
	uint64_t now = now_ns();

	for (size_t i = 0; i < meter->leases; i++) {
		struct lease *lease = &meter->lease[i];

		lock_take(&lease->lock);
		if (lease->waiting == 0)
			lease->waits_since = now;
		set(&lease->waiting, lease->waiting + 1);
		write_page(lease);
		lock_give(&lease->lock);
	}
	meter_want(meter);
}

static void wait_ends(struct meter *meter)
{
	uint64_t now = now_ns();

	for (size_t i = 0; i < meter->leases; i++) {
		struct lease *lease = &meter->lease[i];

		lock_take(&lease->lock);
		set(&lease->waiting, lease->waiting - 1);
		if (lease->waiting == 0)
			lease->waited += now - lease->waits_since;
		write_page(lease);
		lock_give(&lease->lock);
	}
}

void lease_check_beat(struct lease *lease, uint64_t since)
{
	const struct tranche_grant *grant = session_grant(lease->share);
	uint64_t beat = __atomic_load_n(&grant->beat, __ATOMIC_RELAXED), now = now_ns(), heard = beat;
	uint64_t heeded;

	/* Another one has only just heard that it is waited for. */
	if (__atomic_load_n(&lease->heeded, __ATOMIC_ACQUIRE) != grant) {
		__atomic_store_n(&lease->heeded_since, now, __ATOMIC_RELAXED);
		__atomic_store_n(&lease->heeded, grant, __ATOMIC_RELEASE);
	}
	heeded = __atomic_load_n(&lease->heeded_since, __ATOMIC_RELAXED);
	if (heard < since)
		heard = since;
	if (heard < heeded)
		heard = heeded;
	if (now < heard + TRANCHE_BEAT_LOST_NS || __atomic_load_n(&lease->still, __ATOMIC_RELAXED))
		return;
	lock_take(&lease->lock);
	__atomic_store_n(&lease->beat, beat, __ATOMIC_RELAXED);
	lease->lasted = 0;
	lease->looked = now;
	__atomic_store_n(&lease->still, grant, __ATOMIC_RELEASE);
	let_pass(lease, 0);
	lock_give(&lease->lock);
}

/* Whether it has stood still for so long that launches are refused. */
static bool is_given_up(struct lease *lease)
{
	uint64_t passed;
	bool given_up;

	if (!__atomic_load_n(&lease->still, __ATOMIC_RELAXED))
		return false;
	lock_take(&lease->lock);
	passed = now_ns() - lease->looked;
	/* Whoever was stopped, or launched nothing, has not waited in the meantime. */
	lease->lasted += passed < LONGEST_LOOK_NS ? passed : LONGEST_LOOK_NS;
	lease->looked += passed;
	given_up = lease->lasted >= SESSION_DEADLINE_NS;
	lock_give(&lease->lock);
	return given_up;
}

static CUresult refusal(struct meter *meter)
{
	CUresult result = session_closed() ? CUDA_ERROR_SYSTEM_NOT_READY : card_refusal(meter->card);

	for (size_t i = 0; i < meter->leases && result == CUDA_SUCCESS; i++) {
		struct lease *lease = &meter->lease[i];

		if (!is_given_up(lease))
			continue;
		session_say("share %s: tranche-arbiter has not moved for %llu s; launches are refused until it does", lease->share->key,
			    SESSION_DEADLINE_NS / 1000000000ull);
		/* It has no other reason to move. */
		want(lease);
		result = CUDA_ERROR_SYSTEM_NOT_READY;
	}
	return result;
}

static CUresult await(struct meter *meter, enum lease_view *view, uint32_t *word)
{
	struct lease *first = &meter->lease[0];
	bool waits = false;
	CUresult result;
	uint64_t left, since = 0;

	for (;;) {
		const struct tranche_grant *grant = session_grant(first->share);
		uint32_t seen = __atomic_load_n(&grant->lease, __ATOMIC_ACQUIRE);

		*view = meter_view(meter, word, &left);
		result = refusal(meter);
		if (*view != VIEW_CLOSED || result != CUDA_SUCCESS)
			break;
		if (!waits) {
			waits = true;
			since = now_ns();
			wardens_start(meter);
			wait_begins(meter);
			continue;
		}
		word_wait(&grant->lease, seen, left);
		for (size_t i = 0; i < meter->leases; i++)
			lease_check_beat(&meter->lease[i], since);
	}
	if (waits)
		wait_ends(meter);
	return result;
}

CUresult meter_await(struct meter *meter, enum lease_view *view, uint32_t *word)
{
	CUresult result = await(meter, view, word);

	if (result != CUDA_SUCCESS || *view == VIEW_FREE)
		return result;
	wardens_start(meter);
	meter_want(meter);
	return CUDA_SUCCESS;
}
