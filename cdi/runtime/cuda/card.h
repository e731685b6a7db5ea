/* SPDX-License-Identifier: Apache-2.0
 *
 * Cards as the driver numbers them, with the shares that the process has of
 * each, and what is taken from those shares for one purpose (struct hold).
 */
#ifndef TRANCHE_CARD_H
#define TRANCHE_CARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda.h"
#include "../session/ledger.h"
#include "../session/session.h"

/* The unit in which drivers hold memory, and in which it is charged. */
#define FRAME (2ull << 20)
#define CARD_MAX 64
/* Shares of one card in one container. */
#define CARD_SHARES 8
#define CARD_LIMITS (CU_LIMIT_MALLOC_HEAP_SIZE + 1)

struct card {
	CUdevice device;
	size_t shares; /* 0: visible, but not for this container */
	struct session_share *share[CARD_SHARES];
	uint32_t primary_refs;     /* retained and not released */
	uint32_t primary_starting; /* calls that are making the primary context */
	uint32_t primary_retaining; /* calls that retain it without having taken room */
	uint32_t primary_ending;   /* calls that release or reset it, and may end it */
	uint32_t primary_counted;  /* it is one of contexts */
	uint64_t primary_ends;     /* such calls that have returned */
	CUcontext primary;         /* its handle, as last seen */
	uint32_t contexts;         /* made, not destroyed */
	uint64_t limit_default[CARD_LIMITS]; /* of contexts, by enum CUlimit: stack, printf, heap */

	/* While memory is in doubt that the driver no longer holds for this process: what was
	 * measured before, besides. */
	uint32_t doubtful;
	uint64_t doubt_base;
	uint64_t measured_at;
	uint32_t moves; /* in its shares' ledgers, when room was last looked for */

	/* What was exported and is in doubt. */
	uint64_t given_up;
	uint32_t entangled; /* what the process holds may have descriptors of which it is not known */
};

/* Bytes taken from the shares of a card. */
struct hold {
	struct card *card;
	uint64_t bytes;
	uint64_t *parts; /* by share, where it is not all of one */
	uint32_t share;  /* otherwise: which */
};

/* Finds all cards; once, after the driver was initialised. */
CUresult cards_find(void);

/* NULL: no such device, or cards_find has not succeeded in this process. */
struct card *card_of(CUdevice device);
size_t card_count(void);
struct card *card_at(size_t i);

/* CUDA_SUCCESS where the process may use CUDA: cuInit succeeded, and not in a parent. */
CUresult cards_ready(void);

/* True: launches have to look closer, because the arbiter is gone or said no. */
static inline bool cards_refuse(void)
{
	uint32_t flags = 0;

	for (size_t i = 0; i < session_count(); i++)
		flags |= session_flags(session_share(i));
	return session_closed() || flags != 0;
}

/* Why the share, or the card, takes no more work, or CUDA_SUCCESS. */
CUresult share_refusal(const struct session_share *share);
CUresult card_refusal(const struct card *card);

/* Around calls of the driver that change what is committed on the card. */
void card_begin(struct card *card);
void card_end(struct card *card);

/* Sum of the limits; TRANCHE_NO_LIMIT where one has none. */
uint64_t card_limit(const struct card *card);
/* What all processes of the shares hold together. */
uint64_t card_charge(const struct card *card);
/* Whether that is above the limits, and not only for the instant in which somebody's
 * estimate is settled and counted twice. */
bool card_stays_above(const struct card *card);
/* What this process holds on the card besides what it asked for, as last measured. */
uint64_t card_implicit(const struct card *card);

/* Takes bytes from one share, or from several. CUDA_ERROR_OUT_OF_MEMORY: there is
 * not enough; other errors: the card may not be used. LEDGER_COMMITTED needs card_begin. */
CUresult hold_take(struct hold *hold, struct card *card, enum ledger_column column, uint64_t bytes);
/* Makes a committed hold keep bytes, fewer than before or (without asking) more. Needs
 * card_begin. */
void hold_keep(struct hold *hold, uint64_t bytes);
/* Takes one share's bytes out of the hold, without a change to the ledger; where the hold has
 * too few, more are admitted. Returns which share's. */
uint32_t hold_carve(struct hold *hold, uint64_t bytes);
/* Adds what hold_carve took out. */
void hold_join(struct hold *hold, struct card *card, uint32_t share, uint64_t bytes);
/* Moves bytes of a hold into part, which is empty. */
void hold_split(struct hold *hold, uint64_t bytes, struct hold *part);
/* Moves all of other, of the same card, into the hold. */
void hold_merge(struct hold *hold, struct hold *other);
/* Gives an estimate back. */
void hold_unreserve(struct hold *hold);
/* Measures the card, and settles the hold, which is an estimate. */
enum session_measured hold_measure(struct hold *hold, struct card *card, bool everybody);
/* Measures a card once more that is in doubt, unless that was done less than interval ns
 * ago. True: less is held now. */
bool card_look_again(struct card *card, uint64_t interval);
/* Has the arbiter see what processes that have ended still hold of the card, where there are
 * others than this one. True: there are, or were at the last look, and it is worth trying again. */
bool card_look_at_ended(struct card *card);
/* Whether any card is in doubt; one load. */
bool cards_in_doubt(void);
/* base is what was held besides before the memory that is in doubt. */
void card_begin_doubt(struct card *card, uint64_t base);
/* As card_implicit, without what is in doubt. */
uint64_t card_undoubted(const struct card *card);
/* A measurement was tried, which may end the doubt. given_up was in doubt before it. */
void card_measured(struct card *card, bool measured, uint64_t given_up);
/* Turns a committed hold into an estimate, which may prove to be nothing, now or
 * later. exported: there may be descriptors of it. Needs card_begin. */
void hold_doubt(struct hold *hold, bool exported);

/* Before there may be a descriptor of so much of what is charged: it is told to the arbiter,
 * who keeps what the card still holds of it when the process has ended. */
void card_export(struct card *card, uint64_t bytes);
void card_unexport(struct card *card, uint64_t bytes);
/* The same for all that the process holds, for good, where it is not known how much it is. */
void card_entangle(struct card *card);
void cards_entangle(void);
/* Forgets a hold that is settled. */
void hold_drop(struct hold *hold);

/* Rounds up to whole frames; saturates. */
static inline uint64_t frames_of(uint64_t bytes)
{
	return bytes > UINT64_MAX - FRAME ? UINT64_MAX : (bytes + FRAME - 1) / FRAME * FRAME;
}

/* The driver may call its own exported functions. What it asks for so is part of
 * the call that is on its way already. */
bool guard_enter(void); /* false: inside already */
void guard_leave(void);

#endif
