/* SPDX-License-Identifier: Apache-2.0 */
#include "sync.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000ull

static void futex_wait(uint32_t *word, uint32_t value, uint64_t ns)
{
	struct timespec left = { .tv_sec = (time_t)(ns / SECOND), .tv_nsec = (long)(ns % SECOND) };

	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &left, NULL, 0);
}

static bool wait_until(struct lock *lock, uint64_t deadline)
{
	for (int spin = 0; spin < 100; spin++) {
		if (lock_try(lock))
			return true;
		__builtin_ia32_pause();
	}
	while (__atomic_exchange_n(&lock->word, 2, __ATOMIC_ACQUIRE) != 0) {
		uint64_t ns = SECOND;

		if (deadline != UINT64_MAX) {
			uint64_t now = now_ns();

			if (now >= deadline)
				return false;
			ns = deadline - now;
		}
		futex_wait(&lock->word, 2, ns);
	}
	return true;
}

void lock_wait(struct lock *lock)
{
	int saved = errno;

	wait_until(lock, UINT64_MAX);
	errno = saved;
}

bool lock_wait_until(struct lock *lock, uint64_t deadline)
{
	int saved = errno;
	bool held = wait_until(lock, deadline);

	errno = saved;
	return held;
}

void lock_wake(struct lock *lock)
{
	int saved = errno;

	syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	errno = saved;
}

/* The caller counted itself in although somebody is alone. */
void gate_enter_slowly(struct gate *gate)
{
	do {
		gate_leave(gate);
		while (__atomic_load_n(&gate->word, __ATOMIC_RELAXED) & GATE_ALONE)
			sched_yield();
	} while (__atomic_add_fetch(&gate->word, 1, __ATOMIC_ACQUIRE) & GATE_ALONE);
}

void gate_enter_alone(struct gate *gate)
{
	while (__atomic_fetch_or(&gate->word, GATE_ALONE, __ATOMIC_ACQUIRE) & GATE_ALONE)
		sched_yield();
	while (__atomic_load_n(&gate->word, __ATOMIC_ACQUIRE) != GATE_ALONE)
		sched_yield();
}

uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

void nap_ns(uint64_t ns)
{
	struct timespec left = { .tv_sec = (time_t)(ns / SECOND), .tv_nsec = (long)(ns % SECOND) };
	int saved = errno;

	syscall(SYS_nanosleep, &left, NULL);
	errno = saved;
}

int cancel_defer(void)
{
	int state = PTHREAD_CANCEL_ENABLE;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	return state;
}

void cancel_restore(int state)
{
	pthread_setcancelstate(state, &state);
}

void nap_precisely_ns(uint64_t ns)
{
	int saved = errno;
	int slack = prctl(PR_GET_TIMERSLACK);

	if (slack > 1)
		prctl(PR_SET_TIMERSLACK, 1);
	nap_ns(ns);
	if (slack > 1)
		prctl(PR_SET_TIMERSLACK, (unsigned long)slack);
	errno = saved;
}

void word_wait(const uint32_t *word, uint32_t value, uint64_t ns)
{
	struct timespec left = { .tv_sec = (time_t)(ns / SECOND), .tv_nsec = (long)(ns % SECOND) };
	int saved = errno;

	syscall(SYS_futex, word, FUTEX_WAIT, value, &left, NULL, 0);
	errno = saved;
}

void word_wake(const uint32_t *word)
{
	int saved = errno;

	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	errno = saved;
}
