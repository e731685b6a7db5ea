/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that launch, and what they have launched and not recorded.
 */
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lease_inside.h"

/* Records of threads are never freed: one that has ended leaves its own to another. */
static struct thread *threads;
static pthread_key_t key;
static uint32_t key_made;
static struct lock making;

__thread struct thread *thread_self;

static void leave(void *gone)
{
	struct thread *thread = gone;

	/* Its streams may be gone: what it launched is known by its estimate. */
	for (uint32_t i = 0; i < thread->tallies; i++)
		if (thread->tally[i].word != 0)
			flight_guess(&thread->tally[i]);
	__atomic_store_n(&thread->tallies, 0, __ATOMIC_RELAXED);
	thread_self = NULL;
	__atomic_store_n(&thread->inside, NULL, __ATOMIC_RELAXED);
	__atomic_store_n(&thread->taken, 0, __ATOMIC_RELEASE);
}

static struct thread *join(void)
{
	struct thread *thread = __atomic_load_n(&threads, __ATOMIC_ACQUIRE);
	uint32_t none = 0;

	for (; thread; thread = thread->next, none = 0)
		if (__atomic_compare_exchange_n(&thread->taken, &none, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			break;
	if (!thread) {
		thread = calloc(1, sizeof(*thread));
		if (!thread)
			return NULL;
		thread->taken = 1;
		thread->next = __atomic_load_n(&threads, __ATOMIC_ACQUIRE);
		while (!__atomic_compare_exchange_n(&threads, &thread->next, thread, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			;
	}
	lock_take(&making);
	if (!key_made)
		key_made = pthread_key_create(&key, leave) == 0;
	lock_give(&making);
	if (key_made)
		pthread_setspecific(key, thread);
	__atomic_store_n(&thread->last, &thread->tally[0], __ATOMIC_RELAXED);
	thread->watched = WATCHED;
	for (size_t i = 0; i < STREAMS; i++)
		thread->tally[i].last = &thread->tally[i].place[0];
	thread_self = thread;
	return thread;
}

struct thread *thread_mine(void)
{
	return thread_self ? thread_self : join();
}

/* Threads look at the word without a fence: that is ours to pay for. */
static void fence_all(void)
{
	static uint32_t registered;

	if (!__atomic_load_n(&registered, __ATOMIC_RELAXED)) {
		syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0);
		__atomic_store_n(&registered, 1, __ATOMIC_RELAXED);
	}
	/* Where that is not allowed, what is seen is older by what a store takes to arrive. */
	syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0);
}

/* Whether the thread is at the gate, and not in a launch that waits, in a full queue, behind what is held up: that
 * takes no time of the card. What it belongs to is known before the thread is inside. */
static bool is_inside(const struct thread *thread, struct meter *meter, uint64_t since)
{
	const struct meter *inside = __atomic_load_n(&thread->inside, __ATOMIC_ACQUIRE);
	const struct tally *tally;

	if (inside != meter)
		return inside == &meter_any;
	tally = __atomic_load_n(&thread->last, __ATOMIC_RELAXED);
	return !stream_was_blocked(meter, __atomic_load_n(&tally->stream, __ATOMIC_RELAXED), since);
}

/* What of the tally may be at work on the card. */
static uint32_t pending_of(const struct tally *tally, struct meter *meter, uint64_t since)
{
	if (__atomic_load_n(&tally->meter, __ATOMIC_RELAXED) != meter)
		return 0;
	if (__atomic_load_n(&tally->together, __ATOMIC_RELAXED) != 0 &&
	    stream_was_blocked(meter, __atomic_load_n(&tally->stream, __ATOMIC_RELAXED), since))
		return 0;
	return __atomic_load_n(&tally->pending, __ATOMIC_ACQUIRE);
}

struct census census_take(struct meter *meter, uint64_t since)
{
	struct census census = { .since = since };

	fence_all();
	for (struct thread *thread = __atomic_load_n(&threads, __ATOMIC_ACQUIRE); thread; thread = thread->next) {
		census.inside |= is_inside(thread, meter, since);
		census.launches += __atomic_load_n(&thread->launches, __ATOMIC_RELAXED);
		for (uint32_t i = 0; i < __atomic_load_n(&thread->tallies, __ATOMIC_RELAXED); i++)
			census.ns += pending_of(&thread->tally[i], meter, since);
	}
	return census;
}
