/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the engine itself share.
 */
#ifndef TRANCHE_SIM_ENGINE_STATE_H
#define TRANCHE_SIM_ENGINE_STATE_H

#include "timeline.h"

/* Of this process; only ever added to. Under the lock. */
extern struct engine *engines;

/* Marks: the number of a queue and a position in it. */
enum { MARK_BITS = 40 };

static inline uint64_t mark_make(const struct queue *queue, uint64_t position)
{
	return queue->number << MARK_BITS | position;
}

static inline uint64_t mark_number(uint64_t mark)
{
	return mark >> MARK_BITS;
}

static inline uint64_t mark_position(uint64_t mark)
{
	return mark & ((1ull << MARK_BITS) - 1);
}

/* Without looking at the time. Positions go on when a queue is used again. */
static inline bool mark_passed(const struct queue *queue, uint64_t mark)
{
	return !queue || queue_head(queue) >= mark_position(mark);
}

/* Nanoseconds of kernels that the queue has had on the card. Under the lock. */
uint64_t work_now(const struct queue *queue);
/* While others have the card: when the next one gets it; else 0. Under the lock. */
uint64_t turn_bound(const struct engine *engine);
/* When the queue can have done the commands before position at the earliest,
 * as far as is known now; NEVER: something else has to happen first. Under the lock. */
uint64_t queue_bound(const struct queue *queue, uint64_t position, uint64_t now);
uint64_t moment_bound(const struct moment *moment, uint64_t now);

#endif
