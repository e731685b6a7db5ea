/* SPDX-License-Identifier: Apache-2.0
 *
 * Engines, and the worker thread of each, which looks when nobody else does.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine_state.h"

/* The card's truth is at most this old while it is busy. */
#define PUBLISH_EVERY (2u * 1000 * 1000)
/* How late a soft time may be. */
#define SOFTNESS (250u * 1000)
/* How often the worker wakes up once there is nothing to do, before it sleeps until it
 * is woken: whoever launches and waits in a loop need not wake it each time. */
#define LINGERS 8
/* How often a value in memory is looked at that a stream waits for: the longer it has waited, the less often. */
#define POLL_FIRST (50u * 1000)
#define POLL_LAST (1000u * 1000)
/* Who waits for the card shows that it is alive more often than turns.c asks. */
#define SHOW_EVERY (3u * 1000 * 1000)

pthread_mutex_t timeline_lock = PTHREAD_MUTEX_INITIALIZER;
struct engine *engines;

struct engine *engine_of(struct sim_device *device)
{
	if (device->engine)
		return device->engine;
	struct engine *engine = calloc(1, sizeof(*engine));
	if (!engine)
		return NULL;
	uint64_t now = clock_now();
	engine->device = device;
	engine->card = &device->card;
	engine->quiet = 1;
	engine->wake_at = NEVER;
	turns_join(engine->card, now);
	engine->turn = turns_last(engine->card).number;
	engine->next = engines;
	engines = engine;
	device->engine = engine;
	return engine;
}

/* ---- when to look -------------------------------------------------------------- */

struct plan {
	uint64_t hard;
	uint64_t outstanding; /* nanoseconds of kernels in all queues */
	bool blocked;         /* a slow command is behind something else than kernels of its queue */
};

/* Position of the first slow command from the head on. */
static uint64_t first_slow(struct queue *queue, uint64_t head, uint64_t tail)
{
	queue->scanned = later(queue->scanned, head);
	while (queue->scanned < tail && !queue_command(queue, queue->scanned)->slow)
		queue->scanned++;
	return queue->scanned;
}

static uint64_t poll_after(const struct queue *queue, uint64_t now)
{
	uint64_t waited = queue->start < now ? now - queue->start : 0;
	return earlier(later(waited / 8, POLL_FIRST), POLL_LAST);
}

static void plan_queue(struct queue *queue, uint64_t now, struct plan *plan)
{
	uint64_t head = queue_head(queue), tail = queue_tail(queue);
	if (head == tail)
		return;
	uint64_t done = work_now(queue);
	plan->outstanding += queue_command(queue, tail - 1)->work - done;

	const struct command *command = queue_current(queue);
	if (queue->start > now && queue->start != NEVER)
		plan->hard = earlier(plan->hard, queue->start);
	if (command->kind == COMMAND_JOB && queue->job_state == JOB_DONE) {
		plan->hard = earlier(plan->hard, queue->job_end);
		return;
	}
	if (command->kind == COMMAND_JOB && queue->job_state == JOB_PENDING)
		return; /* whoever carries it out looks afterwards */
	if (command->kind == COMMAND_VALUES)
		plan->hard = earlier(plan->hard, now + poll_after(queue, now));

	uint64_t slow = first_slow(queue, head, tail);
	if (slow == tail)
		return;
	const struct command *first = queue_command(queue, slow);
	if (command->kind == COMMAND_KERNEL && slow != head && queue->start != NEVER)
		plan->hard = earlier(plan->hard, later(now, turn_bound(queue->engine)) + (first->work - first->nanoseconds - done));
	else
		plan->blocked = true;
	/* On another card, whose worker does not know that somebody waits here. */
	const struct moment *moment = command->kind == COMMAND_WAIT ? queue_moment(queue, command) : NULL;
	if (moment && !moment_done(moment) && moment->queue && moment->queue->engine != queue->engine)
		plan->hard = earlier(plan->hard, later(moment_bound(moment, now), now + POLL_FIRST));
}

/* The worker's part of taking turns, while a kernel waits for its turn. */
static uint64_t plan_turn(struct engine *engine, uint64_t now)
{
	struct turn turn = turns_last(engine->card);
	uint64_t until = turn.end;
	/* Not our turn next: only if those who are next fail. */
	if (until != NEVER && turns_next(engine->card, &turn, now) != engine->card->slot)
		until += engine->card->page->time_slice / 2;
	return earlier(until, now + SHOW_EVERY);
}

void timeline_plan(struct engine *engine, uint64_t now, uint64_t *hard, uint64_t *soft)
{
	struct plan plan = {.hard = NEVER};
	for (struct queue *queue = engine->queues; queue; queue = queue->next)
		plan_queue(queue, now, &plan);
	*soft = NEVER;
	if (engine->wants && !engine->holds)
		plan.hard = earlier(plan.hard, plan_turn(engine, now));
	else if (engine->current) {
		uint64_t drained = now + plan.outstanding;
		if (plan.blocked)
			plan.hard = earlier(plan.hard, engine->at + engine->remaining);
		*soft = earlier(drained, now + PUBLISH_EVERY);
		/* Others wait for the card. */
		if (engine->held.end != NEVER)
			plan.hard = earlier(plan.hard, earlier(drained, engine->held.end));
	}
	*hard = plan.hard;
}

/* ---- looking --------------------------------------------------------------- */

static void see_that_worker_looks(struct engine *engine, uint64_t now)
{
	uint64_t hard, soft;
	timeline_plan(engine, now, &hard, &soft);
	if (soft != NEVER)
		hard = earlier(hard, soft + SOFTNESS);
	if (hard >= engine->wake_at)
		return;
	engine->wake_at = hard;
	turns_wake(engine->card, engine->card->slot);
}

void timeline_look(void)
{
	uint64_t now = clock_now();
	bool progress = timeline_advance(now);
	for (struct engine *engine = engines; engine; engine = engine->next)
		see_that_worker_looks(engine, now);
	/* Not whenever somebody looks: those who wait would wake each other for ever. */
	if (progress)
		waiters_wake();
}

static void *work(void *argument)
{
	struct engine *engine = argument;
	int idle = 0;

	prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
	pthread_setname_np(pthread_self(), "cuda-engine");
	/* A busy machine should not make the card slow; where that is not allowed, it has to be as it is. */
	setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), -10);
	timeline_enter();
	for (;;) {
		uint64_t hard, soft;
		uint32_t seen = turns_signal(engine->card);
		engine->wake_at = 0; /* awake */
		timeline_look();
		uint64_t now = clock_now();
		timeline_plan(engine, now, &hard, &soft);
		uint64_t until = earlier(hard, soft);
		if (until != NEVER)
			idle = 0;
		else if (idle++ < LINGERS)
			until = now + SOFTNESS;
		engine->wake_at = until;
		timeline_leave();
		turns_wait(engine->card, seen, until);
		timeline_enter();
	}
	return NULL;
}

CUresult start_thread(void *(*run)(void *), void *argument)
{
	pthread_attr_t attributes;
	pthread_t thread;
	sigset_t all, old;

	/* The program's signals are not for us. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	int failed = pthread_create(&thread, &attributes, run, argument);
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return failed ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

CUresult engine_ready(struct engine *engine)
{
	CUresult result = CUDA_SUCCESS;
	timeline_enter();
	if (!engine->worker) {
		result = start_thread(work, engine);
		__atomic_store_n(&engine->worker, result == CUDA_SUCCESS, __ATOMIC_RELEASE);
	}
	timeline_leave();
	return result;
}

void engine_kick(void)
{
	timeline_enter();
	timeline_look();
	timeline_leave();
}
