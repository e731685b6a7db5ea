/* SPDX-License-Identifier: Apache-2.0
 *
 * Locks on futexes, and the clock. Not pthread's: these are zero when they are new,
 * need no symbol that a C library of 2012 lacks, and wait with a deadline of
 * CLOCK_MONOTONIC. Held for a few instructions, or around the exchange with the
 * arbiter; never across a call of the driver.
 */
#ifndef TRANCHE_SYNC_H
#define TRANCHE_SYNC_H

#include <stdbool.h>
#include <stdint.h>

/* 0 free, 1 held, 2 held and somebody may wait. */
struct lock {
	uint32_t word;
};

void lock_wait(struct lock *lock);
bool lock_wait_until(struct lock *lock, uint64_t deadline);
void lock_wake(struct lock *lock);

static inline bool lock_try(struct lock *lock)
{
	uint32_t free_word = 0;

	return __atomic_compare_exchange_n(&lock->word, &free_word, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static inline void lock_take(struct lock *lock)
{
	if (!lock_try(lock))
		lock_wait(lock);
}

/* False: the deadline has passed, the lock is not held. */
static inline bool lock_take_until(struct lock *lock, uint64_t deadline)
{
	return lock_try(lock) || lock_wait_until(lock, deadline);
}

static inline void lock_give(struct lock *lock)
{
	if (__atomic_exchange_n(&lock->word, 0, __ATOMIC_RELEASE) == 2)
		lock_wake(lock);
}

/* Many may be inside, or one alone. Who is alone is rare and quick, so the many
 * give way to it by yielding the processor. */
struct gate {
	uint32_t word; /* those inside; the top bit: somebody is or wants to be alone */
};

#define GATE_ALONE 0x80000000u

void gate_enter_slowly(struct gate *gate);
void gate_enter_alone(struct gate *gate);

static inline void gate_enter(struct gate *gate)
{
	if (__atomic_add_fetch(&gate->word, 1, __ATOMIC_ACQUIRE) & GATE_ALONE)
		gate_enter_slowly(gate);
}

static inline void gate_leave(struct gate *gate)
{
	__atomic_sub_fetch(&gate->word, 1, __ATOMIC_RELEASE);
}

static inline void gate_leave_alone(struct gate *gate)
{
	__atomic_and_fetch(&gate->word, ~GATE_ALONE, __ATOMIC_RELEASE);
}

/* Nanoseconds of CLOCK_MONOTONIC. */
uint64_t now_ns(void);

/* Sleeps about that long, or less where a signal comes. As all waits here it is no point of cancellation. */
void nap_ns(uint64_t ns);
/* The same without the kernel's slack, for who waits for less than a millisecond. */
void nap_precisely_ns(uint64_t ns);

/* No cancellation of the calling thread in between: what it holds, or counts in, nobody would give back. It is
 * cancelled after, where it comes to a point at which it may be. Returns what is to be restored. */
int cancel_defer(void);
void cancel_restore(int state);

/* Words in pages that other processes have too, which may be mapped for reading only. Waits
 * while the word has this value, at most ns. May return early. */
void word_wait(const uint32_t *word, uint32_t value, uint64_t ns);
void word_wake(const uint32_t *word);

#endif
