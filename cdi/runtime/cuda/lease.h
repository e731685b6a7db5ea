/* SPDX-License-Identifier: Apache-2.0
 *
 * The compute gate: work is given to a card only while the share's lease says so
 * (tranche_grant.lease), and what is in flight stays bounded, so that the lease can be
 * handed over soon.
 *
 *   FREE    one load, and nothing else.
 *   OPEN    Work is tallied, by thread and stream, until about a tenth of a millisecond of it
 *           has come together, or less where a thread has many streams: a batch, behind which an
 *           event is recorded. So it is known what has ended, and what functions take. Who opens
 *           a batch, or makes a long launch, waits until all that is in flight is expected to
 *           take no more than tranche_grant.window; a long launch goes half a window before the
 *           one before it ends. Never for ever: what the card waits for may be yet to be launched.
 *           It also waits where many batches of its stream have not ended: records take room of the
 *           stream's queue. Of a stream that is held up many launches are one batch.
 *   CLOSED  A launch waits for the word's futex.
 *
 * For each share with a lease there is a thread (the warden), from the first launch on that is
 * not free. It says in the demand page when nothing is in flight, after the lease was closed, and
 * that the card is not wanted any more, while others wait for it.
 *
 * Nothing is gated or recorded in a stream that is being captured, nor in a child of fork. Events
 * are recorded only within a launch, on the stream of that launch, by the thread that makes
 * it: any other stream may be gone. The calling thread's context and errno do not change.
 */
#ifndef TRANCHE_LEASE_H
#define TRANCHE_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "context.h"
#include "cuda.h"

struct around;
struct tally;
struct meter;

/* What is about to be given to the card. */
struct work {
	const void *what; /* a function, an executable graph, or the address that stands for a kind of copy */
	uint32_t shape;   /* what else its time depends on: the logarithm of its blocks */
	uint32_t units;   /* a launch is one; of copies LEASE_UNIT bytes are */
	CUstream stream;  /* never NULL: lease_stream */
};

#define LEASE_UNIT_SHIFT 16

/* NULL is one of two streams: for functions whose names end so it is the thread's own. */
static inline CUstream lease_stream(CUstream stream, bool per_thread)
{
	if (stream)
		return stream;
	return per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

static inline uint32_t lease_shape(uint64_t blocks)
{
	return blocks > 1 ? 64 - (uint32_t)__builtin_clzll(blocks - 1) : 0;
}

/* Whether nothing is to be looked at: every lease is free, nothing is refused, and every
 * arbiter is there. */
static inline bool lease_is_free(void)
{
	uint32_t states = TRANCHE_LEASE_FREE, trouble = session_trouble();

	for (size_t i = 0; i < session_count(); i++) {
		states &= session_lease(session_share(i));
		trouble |= session_flags(session_share(i));
	}
	return (states & TRANCHE_LEASE_FREE) != 0 && trouble == 0;
}

/* Before a launch. True: it is one more of an open batch, and may be made. No system call, no
 * lock, no clock. */
bool lease_is_one_more(struct around *around, const struct work *work);
/* Otherwise; may wait. Other than CUDA_SUCCESS: the launch is refused. Where around->inside is set
 * lease_end follows, after the launch or what prevented it. */
CUresult lease_begin(struct around *around, const struct work *work);
void lease_end(struct around *around);

/* The same for a launch on several cards at once. launched: whether it was made. */
CUresult lease_begin_many(struct around *around, const CUDA_LAUNCH_PARAMS *list, unsigned int count);
void lease_end_many(struct around *around, bool launched);

/* This thread is about to wait for what it launched in that stream: it is known when that ends. */
void lease_synchronizes(CUstream stream);

/* What this thread launched in that context, NULL: in the current one, has ended: all, or what is in
 * that stream. */
void lease_synchronized(CUcontext context, CUstream stream);

/* A context is about to end, or has ended: none of its events is touched from now on. */
void lease_forget(CUcontext context);

/* Around the driver's call that ends a context, before lease_forget: the driver waits for what runs there,
 * and until then the thread counts as one that launches. */
void lease_begin_ending(struct card *card);
void lease_end_ending(void);

/* Captures that have begun and not ended. */
extern uint32_t lease_captures __attribute__((visibility("hidden")));

#endif
