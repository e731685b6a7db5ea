/* SPDX-License-Identifier: Apache-2.0
 *
 * Queues and what is in them.
 */
#include <stdlib.h>
#include <string.h>

#include "timeline.h"

/* ---- moments --------------------------------------------------------------- */

struct moment *moment_new(void)
{
	struct moment *moment = calloc(1, sizeof(*moment));
	if (moment)
		moment->references = 1;
	return moment;
}

struct moment *moment_get(struct moment *moment)
{
	if (moment)
		__atomic_fetch_add(&moment->references, 1, __ATOMIC_RELAXED);
	return moment;
}

void moment_put(struct moment *moment)
{
	if (moment && __atomic_sub_fetch(&moment->references, 1, __ATOMIC_ACQ_REL) == 0)
		free(moment);
}

bool moment_done(const struct moment *moment)
{
	return __atomic_load_n(&moment->done, __ATOMIC_ACQUIRE) != 0;
}

/* ---- commands -------------------------------------------------------------- */

void program_put(struct program *program)
{
	if (!program || __atomic_sub_fetch(&program->references, 1, __ATOMIC_ACQ_REL) != 0)
		return;
	for (unsigned i = 0; i < program->count; i++)
		command_drop(&program->command[i]);
	free(program);
}

static void graph_run_drop(struct graph_run *run)
{
	for (unsigned i = 0; i < run->program->moments; i++)
		moment_put(run->moment[i]);
	program_put(run->program);
	free(run);
}

void command_drop(struct command *command)
{
	void *payload = command->payload;
	command->payload = NULL;
	if (!payload)
		return;
	switch ((enum command_kind)command->kind) {
	case COMMAND_RECORD:
	case COMMAND_WAIT:
		moment_put(payload);
		break;
	case COMMAND_JOB:
		((struct job *)payload)->drop(payload);
		break;
	case COMMAND_VALUES:
		free(payload);
		break;
	case COMMAND_GRAPH:
		graph_run_drop(payload);
		break;
	case COMMAND_EMPTY:
	case COMMAND_KERNEL:
	case COMMAND_MARK:
		break;
	}
}

/* ---- queues ---------------------------------------------------------------- */

/* Queues by number. Chunks are never freed, so that a mark can be looked up
 * without the lock. */
enum { CHUNK = 256, CHUNKS = 4096 };
static struct queue *chunk[CHUNKS];
static uint64_t queues;
static struct queue *unused;

struct queue *queue_by_number(uint64_t number)
{
	if (number == 0 || number > (uint64_t)CHUNK * CHUNKS)
		return NULL;
	struct queue *first = __atomic_load_n(&chunk[(number - 1) / CHUNK], __ATOMIC_ACQUIRE);
	return first ? &first[(number - 1) % CHUNK] : NULL;
}

static struct queue *queue_new(void)
{
	if (queues == (uint64_t)CHUNK * CHUNKS)
		return NULL;
	if (queues % CHUNK == 0) {
		struct queue *first = aligned_alloc(64, sizeof(struct queue) * CHUNK);
		if (!first)
			return NULL;
		memset(first, 0, sizeof(struct queue) * CHUNK);
		__atomic_store_n(&chunk[queues / CHUNK], first, __ATOMIC_RELEASE);
	}
	struct queue *queue = &chunk[queues / CHUNK][queues % CHUNK];
	queue->ring = calloc(QUEUE_RING, sizeof(struct command));
	if (!queue->ring)
		return NULL;
	queue->number = ++queues;
	pthread_mutex_init(&queue->lock, NULL);
	return queue;
}

struct queue *queue_open(struct engine_context *context, bool blocking, int priority)
{
	struct queue *queue = unused;
	if (queue)
		unused = queue->next;
	else
		queue = queue_new();
	if (!queue)
		return NULL;
	queue->engine = context->engine;
	queue->context = context;
	queue->blocking = blocking;
	queue->priority = priority;
	queue->orphan = false;
	queue->ready = 0;
	queue->served = 0;
	queue->next = context->engine->queues;
	context->engine->queues = queue;
	return queue;
}

void queue_close(struct queue *queue)
{
	queue->orphan = true;
	struct queue **link = &queue->engine->queues;
	while (*link != queue)
		link = &(*link)->next;
	if (queue_head(queue) != queue_tail(queue))
		return; /* what looks closes it again when it is empty */
	*link = queue->next;
	queue->next = unused;
	unused = queue;
}

/* Whether the engine's worker has to know of the command before it would look by itself. */
static bool pressing(const struct engine *engine, const struct command *command)
{
	return command->slow || __atomic_load_n(&engine->quiet, __ATOMIC_SEQ_CST);
}

/* Moments know where they are recorded before anybody can wait for them. */
static void place_moments(struct queue *queue, const struct command *command)
{
	const struct graph_run *run = command->payload;
	struct moment *moment = command->payload;
	if (command->kind == COMMAND_RECORD) {
		moment->queue = queue;
		moment->work = command->work;
	}
	if (command->kind != COMMAND_GRAPH)
		return;
	for (unsigned i = 0; i < run->program->count; i++) {
		const struct command *inner = &run->program->command[i];
		if (inner->kind != COMMAND_RECORD)
			continue;
		moment = run->moment[inner->nanoseconds];
		moment->queue = queue;
		moment->work = command->work;
	}
}

static CUresult prepare(struct queue *queue, const struct command *command)
{
	CUresult result = CUDA_SUCCESS;
	if (!__atomic_load_n(&queue->engine->worker, __ATOMIC_ACQUIRE))
		result = engine_ready(queue->engine);
	if (command->kind == COMMAND_JOB && result == CUDA_SUCCESS)
		result = hands_ready(((struct job *)command->payload)->hand);
	const struct graph_run *run = command->payload;
	for (unsigned i = 0; command->kind == COMMAND_GRAPH && run->program->slow && result == CUDA_SUCCESS && i < run->program->count; i++)
		if (run->program->command[i].kind == COMMAND_JOB)
			result = hands_ready(((struct job *)run->program->command[i].payload)->hand);
	return result;
}

CUresult queue_submit(struct queue *queue, struct command command)
{
	CUresult result = prepare(queue, &command);
	if (result != CUDA_SUCCESS) {
		command_drop(&command);
		return result;
	}
	uint64_t room = command.kind == COMMAND_MARK ? QUEUE_RING : QUEUE_DEPTH;
	for (;;) {
		pthread_mutex_lock(&queue->lock);
		uint64_t tail = queue->tail;
		if (SIM_LIKELY(tail - queue_head(queue) < room)) {
			command.order = __atomic_fetch_add(&queue->context->order, 1, __ATOMIC_RELAXED);
			command.stamp = clock_now();
			command.work = queue->work += command.nanoseconds;
			place_moments(queue, &command);
			*queue_command(queue, tail) = command;
			/* Before the question whether the engine is quiet: who finds
			 * it quiet says so first and then looks at the tails again. */
			__atomic_store_n(&queue->tail, tail + 1, __ATOMIC_SEQ_CST);
			pthread_mutex_unlock(&queue->lock);
			break;
		}
		pthread_mutex_unlock(&queue->lock);
		if (command.kind == COMMAND_MARK)
			return CUDA_ERROR_OUT_OF_MEMORY;
		queue_wait_room(queue);
	}
	if (pressing(queue->engine, &command))
		engine_kick();
	return CUDA_SUCCESS;
}
