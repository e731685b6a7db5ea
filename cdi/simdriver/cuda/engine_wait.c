/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting for work: each thread that waits works out when what it waits for can
 * be done at the earliest, sleeps until then and looks.
 */
#include <limits.h>
#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine_state.h"

/* Sleeping is not worth it for less, and the kernel wakes a sleeper later by about that much. */
#define SPIN (15u * 1000)
/* A bound, in case that all else fails. */
#define LOOK_EVERY (20u * 1000 * 1000)
/* A full queue is left alone until this much of it, or of time, is gone. */
#define ROOM (QUEUE_DEPTH / 8)
#define ROOM_AFTER (1000u * 1000)

static uint32_t changes; /* atomic; a futex */
static unsigned waiters;

void waiters_wake(void)
{
	if (waiters == 0)
		return;
	__atomic_fetch_add(&changes, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &changes, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* ---- how long at least ----------------------------------------------------- */

uint64_t work_now(const struct queue *queue)
{
	const struct engine *engine = queue->engine;
	uint64_t done = queue->work_done;
	if (engine->current == queue)
		done += queue_current(queue)->nanoseconds - engine->remaining;
	return done;
}

static uint64_t engine_bound(const struct engine *engine)
{
	return engine->current && engine->holds ? engine->at + engine->remaining : NEVER;
}

uint64_t turn_bound(const struct engine *engine)
{
	uint64_t end = engine->wants && !engine->holds ? turns_last(engine->card).end : 0;
	return end == NEVER ? 0 : end;
}

uint64_t queue_bound(const struct queue *queue, uint64_t position, uint64_t now)
{
	uint64_t head = queue_head(queue);
	if (head >= position)
		return now;
	const struct command *command = queue_current(queue);
	uint64_t least = 0;
	if (command->kind == COMMAND_JOB) {
		if (queue->job_state == JOB_PENDING)
			return NEVER;
		if (queue->job_state == JOB_DONE)
			least = queue->job_end;
	} else if (command->kind == COMMAND_WAIT) {
		const struct moment *moment = queue_moment(queue, command);
		if (moment && !moment_done(moment) && moment->queue && moment->queue != queue)
			least = moment_bound(moment, now);
	}
	if (least == NEVER)
		return NEVER;
	least = later(least, turn_bound(queue->engine));
	uint64_t bound = later(now, least) + (queue_command(queue, position - 1)->work - work_now(queue));
	/* Nothing of its own is left to do: something else on the card is in its way. */
	return bound > now ? bound : engine_bound(queue->engine);
}

uint64_t moment_bound(const struct moment *moment, uint64_t now)
{
	const struct queue *queue = moment->queue;
	uint64_t left = moment->work - work_now(queue);
	return left ? later(now, turn_bound(queue->engine)) + left : engine_bound(queue->engine);
}

/* ---- sleeping -------------------------------------------------------------- */

static void pause_until(uint64_t until)
{
	while (clock_now() < until)
		__builtin_ia32_pause();
}

/* Under the lock, which is left meanwhile. Until then, or the next change. */
static void sleep_until(uint64_t until, uint64_t now)
{
	uint32_t seen = __atomic_load_n(&changes, __ATOMIC_SEQ_CST);
	until = earlier(until, now + LOOK_EVERY);
	if (until <= now + SPIN) {
		timeline_leave();
		pause_until(until);
		timeline_enter();
		return;
	}
	waiters++;
	timeline_leave();
	if (until > now + 2 * SPIN)
		until -= SPIN;
	struct timespec time = {.tv_sec = (time_t)(until / 1000000000), .tv_nsec = (long)(until % 1000000000)};
	/* The kernel wakes ordinary threads 50 microseconds late. */
	int slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
	prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
	syscall(SYS_futex, &changes, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, seen, &time, NULL, FUTEX_BITSET_MATCH_ANY);
	if (slack > 0)
		prctl(PR_SET_TIMERSLACK, slack, 0, 0, 0);
	timeline_enter();
	waiters--;
}

/* ---- what is waited for ------------------------------------------------------- */

bool queue_done(struct queue *queue, uint64_t position)
{
	if (queue_head(queue) >= position)
		return true;
	timeline_enter();
	timeline_look();
	bool done = queue_head(queue) >= position;
	timeline_leave();
	return done;
}

void queue_wait(struct queue *queue, uint64_t position)
{
	if (queue_head(queue) >= position)
		return;
	timeline_enter();
	for (;;) {
		timeline_look();
		if (queue_head(queue) >= position)
			break;
		uint64_t now = clock_now();
		sleep_until(queue_bound(queue, position, now), now);
	}
	timeline_leave();
}

void queue_wait_room(struct queue *queue)
{
	timeline_enter();
	for (;;) {
		timeline_look();
		uint64_t head = queue_head(queue), now = clock_now();
		if (queue_tail(queue) - head < QUEUE_DEPTH)
			break;
		uint64_t enough = earlier(queue_bound(queue, head + ROOM, now), now + ROOM_AFTER);
		sleep_until(later(queue_bound(queue, head + 1, now), enough), now);
	}
	timeline_leave();
}

void moment_wait(struct moment *moment)
{
	if (moment_done(moment))
		return;
	timeline_enter();
	for (;;) {
		timeline_look();
		if (moment_done(moment))
			break;
		uint64_t now = clock_now();
		sleep_until(moment_bound(moment, now), now);
	}
	timeline_leave();
}

/* ---- marks ------------------------------------------------------------------ */

uint64_t engine_mark(struct CUstream_st *stream)
{
	return mark_make(stream->queue, queue_tail(stream->queue));
}

bool engine_mark_done(uint64_t mark)
{
	struct queue *queue = queue_by_number(mark_number(mark));
	if (mark_passed(queue, mark))
		return true;
	timeline_enter();
	timeline_look();
	timeline_leave();
	return mark_passed(queue, mark);
}

CUresult engine_stream_wait_mark(struct CUstream_st *stream, uint64_t mark)
{
	struct queue *queue = queue_by_number(mark_number(mark));
	if (queue == stream->queue || mark_passed(queue, mark))
		return CUDA_SUCCESS;
	return queue_submit(stream->queue, (struct command){.kind = COMMAND_MARK, .payload = (void *)(uintptr_t)mark});
}
