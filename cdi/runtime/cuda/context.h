/* SPDX-License-Identifier: Apache-2.0
 *
 * Contexts: which card each is on, and which of several that had the same handle one
 * after the other an allocation belongs to.
 */
#ifndef TRANCHE_CONTEXT_H
#define TRANCHE_CONTEXT_H

#include "card.h"

/* Who holds an allocation. Handles are used again, generations are not. */
struct owner {
	CUcontext context; /* NULL: memory that no context holds */
	uint64_t generation;
};

/* The calling thread's context. Errors are the driver's. */
CUresult context_current(struct card **card, struct owner *owner);

/* The card of a context, not necessarily the current one; NULL: it is none. */
struct card *context_card(CUcontext context);

/* How many contexts the process has. */
extern uint32_t contexts_alive __attribute__((visibility("hidden")));
void context_count(struct card *card, int more);

/* A context was made. */
void context_register(CUcontext context, struct card *card);

/* A context is about to be destroyed. What is allocated from now on under this
 * handle belongs to another. */
struct owner context_retire(CUcontext context, struct card **card);
/* It was not destroyed after all. */
void context_revive(struct owner owner, struct card *card);

/* A release of the primary context that may be the last, announced by primary_ending, waits
 * until no thread but own relies on the context being there: made anew by one of them it
 * would be charged only afterwards. Each tells first and looks then, so one sees the other. */
void primary_await_retaining(struct card *card, uint32_t own);

/* Makes sure that the arbiter of the card's shares can be asked, for a process that
 * has no liaison yet. */
CUresult card_connect(struct card *card);

/* What a call is expected to need besides what it names. */
struct estimate {
	struct hold hold;
	uint64_t before; /* what was held besides, before the call */
};

CUresult estimate_take(struct estimate *estimate, struct card *card, uint64_t bytes);
/* The call failed: gives the estimate back. */
void estimate_give(struct estimate *estimate);
/* The call has been made: measures what it took. CUDA_ERROR_OUT_OF_MEMORY: more than was
 * estimated, and more than there is room for; CUDA_ERROR_SYSTEM_NOT_READY: nobody can
 * measure it. In both cases the caller undoes it. */
CUresult estimate_settle(struct estimate *estimate, struct card *card);

#endif
