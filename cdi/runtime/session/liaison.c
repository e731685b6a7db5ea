/* SPDX-License-Identifier: Apache-2.0 */
#include "line.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

/* A program that closes all its descriptors wakes nobody: look that often. */
#define LOOK_MS 1000
#define FIRST_NAP_NS 2000000ull
#define LONGEST_NAP_NS 500000000ull
/* One attempt to attach again. */
#define ATTEMPT_NS 1000000000ull
/* An attempt and a nap take no longer, unless the process is stopped. */
#define LONGEST_STEP_NS (ATTEMPT_NS + LONGEST_NAP_NS)
#define STACK_SIZE (256u << 10)

uint32_t session_trouble_word;

static struct lock starting;
static bool started;

/* Waits until a connection ends, at most LOOK_MS. Without the lines: a
 * descriptor that changes under it makes it return early or late, no more. */
static void wait_for_end(void)
{
	struct pollfd pollers[SESSION_MAX_SHARES];
	size_t count = session_count();

	for (size_t i = 0; i < count; i++) {
		pollers[i].fd = __atomic_load_n(&session_share(i)->fd, __ATOMIC_RELAXED);
		pollers[i].events = 0;
	}
	poll(pollers, count, LOOK_MS);
}

/* How long there was no arbiter. */
struct absence {
	uint64_t last; /* when it was counted */
	uint64_t ns;
	uint32_t lines; /* that any thread had made by then */
};

static void count_time(struct absence *absence)
{
	uint64_t now = now_ns(), passed = now - absence->last;
	uint32_t lines = __atomic_load_n(&line_count, __ATOMIC_RELAXED);

	/* A process that was stopped has not waited in the meantime. */
	absence->ns += passed < LONGEST_STEP_NS ? passed : LONGEST_STEP_NS;
	if (lines != absence->lines)
		absence->ns = 0;
	absence->lines = lines;
	absence->last = now;
}

/* Refuses launches, where that is due. */
static void give_up(const struct absence *absence, const struct session_share *missing, const struct line_why *why)
{
	if (absence->ns < SESSION_DEADLINE_NS || session_closed())
		return;
	__atomic_or_fetch(&session_trouble_word, SESSION_CLOSED, __ATOMIC_RELAXED);
	session_say("share %s: %s for %llu s; launches are refused until that ends: see that tranche-arbiter runs on this node", missing->key,
		    why->text, SESSION_DEADLINE_NS / 1000000000ull);
}

/* Whether all connections stand. */
static bool restore_all(struct absence *absence)
{
	struct line_why why = { .text = "" };
	bool all = true;

	for (size_t i = 0; i < session_count(); i++) {
		struct session_share *share = session_share(i);
		bool stands = line_restore(share, ATTEMPT_NS, true, &why);

		count_time(absence);
		if (!stands)
			give_up(absence, share, &why);
		all &= stands;
	}
	return all;
}

static void attach_again(void)
{
	struct absence absence = { .last = now_ns(), .lines = __atomic_load_n(&line_count, __ATOMIC_RELAXED) };
	uint64_t nap = FIRST_NAP_NS;

	while (!restore_all(&absence)) {
		nap_ns(nap);
		if (nap < LONGEST_NAP_NS)
			nap *= 2;
	}
	__atomic_store_n(&session_trouble_word, 0, __ATOMIC_RELAXED);
}

static void *liaise(void *unused)
{
	(void)unused;
	prctl(PR_SET_NAME, "tranche-liaison");
	for (;;) {
		wait_for_end();
		attach_again();
		for (size_t i = 0; i < session_count(); i++)
			session_settle(session_share(i));
	}
	return NULL;
}

bool thread_start(void *(*run)(void *), void *argument)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;
	int error;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, STACK_SIZE);
	error = pthread_create(&thread, &attributes, run, argument);
	pthread_attr_destroy(&attributes);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return error == 0;
}

bool session_has_liaison(void)
{
	return __atomic_load_n(&started, __ATOMIC_ACQUIRE);
}

bool session_start_liaison(void)
{
	int saved = errno;
	bool runs = session_has_liaison();

	if (runs)
		return true;
	lock_take(&starting);
	runs = started || thread_start(liaise, NULL);
	__atomic_store_n(&started, runs, __ATOMIC_RELEASE);
	lock_give(&starting);
	errno = saved;
	return runs;
}
