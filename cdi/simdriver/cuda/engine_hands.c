/* SPDX-License-Identifier: Apache-2.0
 *
 * The threads that carry out what takes the host's time: copies of more than a
 * few pages, and the program's host functions.
 */
#include <sys/prctl.h>

#include "engine_state.h"

_Thread_local bool in_callback;

struct hand_state {
	enum hand hand;
	bool running;
	pthread_cond_t work;
	struct queue *first, *last;
};

static struct hand_state hands[] = {
	[HAND_COPY] = {.hand = HAND_COPY, .work = PTHREAD_COND_INITIALIZER},
	[HAND_HOST] = {.hand = HAND_HOST, .work = PTHREAD_COND_INITIALIZER},
};

static struct queue *hand_take(struct hand_state *state)
{
	struct queue *queue = state->first;
	if (queue) {
		state->first = queue->job_next;
		if (!state->first)
			state->last = NULL;
	}
	return queue;
}

/* Carries out the job of a queue. Under the lock, which is left meanwhile. */
static void carry_out(struct queue *queue, enum hand hand)
{
	struct job *job = queue_current(queue)->payload;
	timeline_leave();
	job->run(job);
	timeline_enter();
	/* It cannot be over before it is done. */
	queue->job_end = later(queue->job_end, clock_now());
	if (hand == HAND_COPY)
		queue->engine->copies_end = later(queue->engine->copies_end, queue->job_end);
	queue->job_state = JOB_DONE;
}

static void *run_hand(void *argument)
{
	struct hand_state *state = argument;
	in_callback = state->hand == HAND_HOST;
	prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
	timeline_enter();
	for (;;) {
		struct queue *queue = hand_take(state);
		if (!queue) {
			pthread_cond_wait(&state->work, &timeline_lock);
			continue;
		}
		carry_out(queue, state->hand);
		timeline_look();
		waiters_wake(); /* when it will be over is known now */
	}
	return NULL;
}

void hands_start(struct queue *queue, enum hand hand)
{
	struct hand_state *state = &hands[hand];
	queue->job_next = NULL;
	if (state->last)
		state->last->job_next = queue;
	else
		state->first = queue;
	state->last = queue;
	pthread_cond_signal(&state->work);
}

CUresult hands_ready(enum hand hand)
{
	struct hand_state *state = &hands[hand];
	if (hand == HAND_NONE || __atomic_load_n(&state->running, __ATOMIC_ACQUIRE))
		return CUDA_SUCCESS;
	timeline_enter();
	CUresult result = state->running ? CUDA_SUCCESS : start_thread(run_hand, state);
	__atomic_store_n(&state->running, result == CUDA_SUCCESS, __ATOMIC_RELEASE);
	timeline_leave();
	return result;
}
