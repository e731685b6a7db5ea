/* SPDX-License-Identifier: Apache-2.0
 *
 * Working out what happened up to now.
 */
#include <stdlib.h>

#include "engine_state.h"

/* Runs are written to the card's log when they are this long, or end. */
#define LOG_EVERY (1000u * 1000)

struct command *queue_current(const struct queue *queue)
{
	uint64_t head = queue_head(queue);
	if (head == queue_tail(queue))
		return NULL;
	struct command *command = queue_command(queue, head);
	if (command->kind != COMMAND_GRAPH)
		return command;
	struct graph_run *run = command->payload;
	return run->next < run->program->count ? &run->program->command[run->next] : command;
}

/* ---- the log --------------------------------------------------------------- */

static void log_flush(struct engine *engine, struct stretch *stretch, enum simcard_what what)
{
	struct simcard *page = engine->card->page;
	if (stretch->start == stretch->end)
		return;
	uint64_t index = __atomic_fetch_add(&page->log_next, 1, __ATOMIC_ACQ_REL);
	struct simcard_run *run = &page->log[index % SIMCARD_LOG];
	__atomic_store_n(&run->what, 0, __ATOMIC_SEQ_CST); /* neither the old run nor the new one */
	__atomic_store_n(&run->start, stretch->start, __ATOMIC_RELAXED);
	__atomic_store_n(&run->end, stretch->end, __ATOMIC_RELAXED);
	__atomic_store_n(&run->slot, (uint32_t)engine->card->slot, __ATOMIC_RELAXED);
	__atomic_store_n(&run->what, (uint32_t)(index / SIMCARD_LOG) << 8 | what, __ATOMIC_RELEASE);
	stretch->start = stretch->end;
}

static void log_add(struct engine *engine, struct stretch *stretch, enum simcard_what what, uint64_t start, uint64_t end)
{
	if (start == end)
		return;
	if (start != stretch->end) {
		log_flush(engine, stretch, what);
		stretch->start = start;
	}
	stretch->end = end;
}

static void log_kernel(struct engine *engine, uint64_t start, uint64_t end)
{
	struct simcard_slot *slot = &engine->card->page->slot[engine->card->slot];
	if (start == end)
		return;
	log_add(engine, &engine->kernels, SIMCARD_KERNELS, start, end);
	__atomic_store_n(&slot->busy, slot->busy + (end - start), __ATOMIC_RELAXED);
	__atomic_store_n(&slot->last_busy, end, __ATOMIC_RELEASE);
}

/* ---- what takes no time on the card ------------------------------------------ */

/* Whether the command of this order in queue has to wait for other, and how long. */
static bool ordered_after(const struct queue *other, uint64_t order, uint64_t *start)
{
	uint64_t head = queue_head(other);
	if (head != queue_tail(other) && queue_command(other, head)->order < order)
		return true;
	*start = later(*start, other->ready);
	return false;
}

/* When the first command of the queue may start: after the one before it, and
 * as the legacy default stream and the blocking streams of a context follow each other. */
static uint64_t start_time(const struct queue *queue)
{
	const struct command *command = queue_command(queue, queue_head(queue));
	const struct engine_context *context = queue->context;
	uint64_t start = later(queue->ready, command->stamp);
	if (!queue->blocking)
		return start;
	const struct queue *legacy = context->legacy->queue;
	if (queue != legacy)
		return ordered_after(legacy, command->order, &start) ? NEVER : start;
	for (const struct queue *other = queue->engine->queues; other; other = other->next)
		if (other->context == context && other->blocking && other != queue && ordered_after(other, command->order, &start))
			return NEVER;
	return start;
}

/* The current command ended: the next one's turn. */
static void retire(struct queue *queue, uint64_t end)
{
	uint64_t head = queue_head(queue);
	struct command *first = queue_command(queue, head);
	struct command *command = queue_current(queue);
	queue->ready = later(queue->ready, end);
	queue->value = 0;
	queue->job_state = JOB_NONE;
	if (command->kind == COMMAND_KERNEL)
		queue->work_done += command->nanoseconds;
	if (first->kind == COMMAND_GRAPH) {
		struct graph_run *run = first->payload;
		if (++run->next < run->program->count)
			return;
	}
	command_drop(first);
	__atomic_store_n(&queue->head, head + 1, __ATOMIC_RELEASE);
}

static bool value_matches(const CUstreamBatchMemOpParams *operation)
{
	unsigned flags = operation->waitValue.flags & ~(unsigned)CU_STREAM_WAIT_VALUE_FLUSH;
	if (operation->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64) {
		uint64_t value = __atomic_load_n((uint64_t *)(uintptr_t)operation->waitValue.address, __ATOMIC_ACQUIRE);
		uint64_t wanted = operation->waitValue.value64;
		return flags == CU_STREAM_WAIT_VALUE_GEQ ? (int64_t)(value - wanted) >= 0 :
		       flags == CU_STREAM_WAIT_VALUE_EQ ? value == wanted :
		       flags == CU_STREAM_WAIT_VALUE_AND ? (value & wanted) != 0 : ~(value | wanted) != 0;
	}
	uint32_t value = __atomic_load_n((uint32_t *)(uintptr_t)operation->waitValue.address, __ATOMIC_ACQUIRE);
	uint32_t wanted = operation->waitValue.value;
	return flags == CU_STREAM_WAIT_VALUE_GEQ ? (int32_t)(value - wanted) >= 0 :
	       flags == CU_STREAM_WAIT_VALUE_EQ ? value == wanted :
	       flags == CU_STREAM_WAIT_VALUE_AND ? (value & wanted) != 0 : ~(value | wanted) != 0;
}

/* Whether all operations are done. */
static bool run_values(struct queue *queue, const struct values *values, uint64_t now, uint64_t *end)
{
	bool waited = queue->job_state == JOB_PENDING;
	for (; queue->value < values->count; queue->value++) {
		const CUstreamBatchMemOpParams *operation = &values->operation[queue->value];
		switch (operation->operation) {
		case CU_STREAM_MEM_OP_WRITE_VALUE_32:
			__atomic_store_n((uint32_t *)(uintptr_t)operation->writeValue.address, operation->writeValue.value, __ATOMIC_SEQ_CST);
			break;
		case CU_STREAM_MEM_OP_WRITE_VALUE_64:
			__atomic_store_n((uint64_t *)(uintptr_t)operation->writeValue.address, operation->writeValue.value64, __ATOMIC_SEQ_CST);
			break;
		case CU_STREAM_MEM_OP_WAIT_VALUE_32:
		case CU_STREAM_MEM_OP_WAIT_VALUE_64:
			if (queue->context->closing || value_matches(operation))
				break;
			queue->job_state = JOB_PENDING;
			return false;
		default: /* fences */
			break;
		}
	}
	/* Who had to wait for a value does not know when it came. */
	*end = waited ? now : queue->start;
	return true;
}

/* Whether the job is done by now. */
static bool run_job(struct queue *queue, struct job *job, uint64_t now, uint64_t *end)
{
	struct engine *engine = queue->engine;
	bool copies = job->hand == HAND_COPY || job->nanoseconds;
	if (queue->job_state == JOB_NONE) {
		queue->job_start = queue->start;
		if (copies) {
			queue->job_start = later(queue->job_start, engine->copies_end);
			engine->copies_end = queue->job_start + job->nanoseconds;
		}
		queue->job_end = queue->job_start + job->nanoseconds;
		if (job->hand == HAND_NONE) {
			job->run(job);
			queue->job_state = JOB_DONE;
		} else {
			queue->job_state = JOB_PENDING;
			hands_start(queue, job->hand);
		}
	}
	*end = queue->job_end;
	if (queue->job_state != JOB_DONE || *end > now)
		return false;
	if (copies)
		log_add(engine, &engine->copies, SIMCARD_COPIES, queue->job_start, *end);
	return true;
}

struct moment *queue_moment(const struct queue *queue, const struct command *command)
{
	const struct command *first = queue_command(queue, queue_head(queue));
	if (first == command)
		return command->payload;
	return ((struct graph_run *)first->payload)->moment[command->nanoseconds];
}

/* Whether the current command, which is no kernel and may start, is over. */
static bool finish(struct queue *queue, const struct command *command, uint64_t now, uint64_t *end)
{
	struct moment *moment;
	struct queue *other;
	uint64_t mark;

	*end = queue->start;
	switch ((enum command_kind)command->kind) {
	case COMMAND_RECORD:
		moment = queue_moment(queue, command);
		moment->time = queue->start;
		__atomic_store_n(&moment->done, 1, __ATOMIC_RELEASE);
		return true;
	case COMMAND_WAIT:
		moment = queue_moment(queue, command);
		if (moment && !moment_done(moment))
			return queue->context->closing;
		*end = later(queue->start, moment ? moment->time : 0);
		return true;
	case COMMAND_MARK:
		mark = (uint64_t)(uintptr_t)command->payload;
		other = queue_by_number(mark_number(mark));
		if (!mark_passed(other, mark))
			return queue->context->closing;
		*end = later(queue->start, other->ready);
		return true;
	case COMMAND_JOB:
		return run_job(queue, command->payload, now, end);
	case COMMAND_VALUES:
		return run_values(queue, command->payload, now, end);
	case COMMAND_EMPTY:
	case COMMAND_GRAPH: /* without commands */
	case COMMAND_KERNEL:
		break;
	}
	return true;
}

static bool settle(struct queue *queue, uint64_t now)
{
	bool progress = false;
	const struct command *command;
	while ((command = queue_current(queue))) {
		uint64_t end;
		queue->start = start_time(queue);
		if (queue->start > now || command->kind == COMMAND_KERNEL || !finish(queue, command, now, &end))
			break;
		retire(queue, end);
		progress = true;
	}
	return progress;
}

/* ---- kernels --------------------------------------------------------------- */

static bool candidate(const struct queue *queue, uint64_t by)
{
	const struct command *command = queue_current(queue);
	return command && command->kind == COMMAND_KERNEL && queue->start <= by;
}

/* Among those that are ready by then: the most urgent, and of these who waited longest since it had the card. */
static struct queue *choose(const struct engine *engine, uint64_t by)
{
	struct queue *best = NULL;
	for (struct queue *queue = engine->queues; queue; queue = queue->next)
		if (candidate(queue, by) && (!best || queue->priority < best->priority ||
					     (queue->priority == best->priority && queue->served < best->served)))
			best = queue;
	return best;
}

/* When the first kernel that is ready by now became ready; NEVER: none is. */
static uint64_t first_ready(const struct engine *engine, uint64_t now)
{
	uint64_t first = NEVER;
	for (const struct queue *queue = engine->queues; queue; queue = queue->next)
		if (candidate(queue, now))
			first = earlier(first, queue->start);
	return first;
}

static void want(struct engine *engine, bool wants, uint64_t now)
{
	if (wants || engine->wants)
		turns_want(engine->card, wants, now);
	engine->wants = wants;
}

/* Finds the first turn of ours in which something can run from `from` on. False: it is somebody else's turn. */
static bool take_turn(struct engine *engine, uint64_t from, uint64_t now)
{
	want(engine, true, now);
	for (;;) {
		struct turn turn = turns_get(engine->card, engine->turn);
		engine->turn = turn.number;
		engine->held = turn;
		engine->holds = turn.slot == engine->card->slot && turn.end > later(from, turn.start);
		if (engine->holds)
			return true;
		if (!turn.last)
			engine->turn++;
		else if (!turns_pass(engine->card, &turn, from, now))
			return false;
	}
}

/* Gives the card back: there is nothing to do on it. */
static void leave_turn(struct engine *engine, uint64_t now)
{
	engine->holds = false;
	log_flush(engine, &engine->kernels, SIMCARD_KERNELS);
	if (!engine->wants)
		return;
	want(engine, false, now);
	struct turn turn = turns_last(engine->card);
	if (turn.slot == engine->card->slot)
		turns_release(engine->card, &turn, engine->at, now);
}

/* Puts the next kernel on the card. */
static bool start_kernel(struct engine *engine, uint64_t now)
{
	uint64_t first = first_ready(engine, now);
	if (first == NEVER) {
		leave_turn(engine, now);
		return false;
	}
	uint64_t from = later(first, engine->at);
	if (!take_turn(engine, from, now))
		return false;
	from = later(from, engine->held.start);
	if (from > now)
		return false;
	struct queue *queue = choose(engine, from);
	queue->served = ++engine->served;
	engine->current = queue;
	engine->remaining = queue_current(queue)->nanoseconds;
	engine->at = from;
	struct simcard_slot *slot = &engine->card->page->slot[engine->card->slot];
	__atomic_store_n(&slot->launches, slot->launches + 1, __ATOMIC_RELAXED);
	return true;
}

/* Goes on with the kernel on the card. True: it ended. */
static bool run_kernel(struct engine *engine, uint64_t now)
{
	while (take_turn(engine, engine->at, now)) {
		uint64_t start = later(engine->at, engine->held.start);
		uint64_t until = earlier(engine->held.end, now);
		if (start > until)
			return false;
		uint64_t end = start + earlier(engine->remaining, until - start);
		log_kernel(engine, start, end);
		engine->remaining -= end - start;
		engine->at = end;
		if (engine->remaining == 0) {
			struct queue *queue = engine->current;
			engine->current = NULL;
			retire(queue, end);
			return true;
		}
		if (end == now)
			return false;
	}
	return false;
}

/* ---- all together ------------------------------------------------------------ */

/* Queues whose streams are gone and whose commands are done. */
static void close_orphans(struct engine *engine)
{
	for (struct queue *queue = engine->queues, *next; queue; queue = next) {
		next = queue->next;
		if (queue->orphan && !queue_current(queue))
			queue_close(queue);
	}
}

static bool advance(struct engine *engine, uint64_t now)
{
	bool progress = false;
	for (bool more = true; more; progress |= more) {
		more = false;
		for (struct queue *queue = engine->queues; queue; queue = queue->next)
			more |= settle(queue, now);
		if (engine->current)
			more |= run_kernel(engine, now);
		else
			more |= start_kernel(engine, now);
	}
	if (engine->kernels.end - engine->kernels.start >= LOG_EVERY)
		log_flush(engine, &engine->kernels, SIMCARD_KERNELS);
	if (now - engine->copies.start >= LOG_EVERY)
		log_flush(engine, &engine->copies, SIMCARD_COPIES);
	return progress;
}

static bool is_quiet(const struct engine *engine)
{
	for (const struct queue *queue = engine->queues; queue; queue = queue->next)
		if (queue_head(queue) != queue_tail(queue))
			return false;
	return true;
}

bool timeline_advance(uint64_t now)
{
	bool any = false;
	for (bool progress = true; progress; any |= progress) {
		progress = false;
		for (struct engine *engine = engines; engine; engine = engine->next)
			progress |= advance(engine, now);
	}
	for (struct engine *engine = engines; engine; engine = engine->next) {
		close_orphans(engine);
		/* Said first, then looked at: queue_submit does it the other way round. */
		__atomic_store_n(&engine->quiet, 1, __ATOMIC_SEQ_CST);
		if (!is_quiet(engine))
			__atomic_store_n(&engine->quiet, 0, __ATOMIC_SEQ_CST);
	}
	return any;
}
