/* SPDX-License-Identifier: Apache-2.0
 *
 * How the processes that use one card take turns on it.
 *
 * The card's memory has a list of turns, of which the last 32 are kept. A
 * turn says who has the card from when on, and ends where the next one starts.
 * Turns are only ever added, by one compare-and-swap, so a process may be
 * killed or stopped at any instant: whoever looks next goes on from the last
 * turn. A turn that is bounded ends after one time slice and anybody may add its
 * successor, starting at that very time however late it is noticed; an open
 * one lasts until its holder has nothing more to do, or somebody else wants
 * the card. The hardware keeps running while a process is stopped, and so does
 * its turn.
 *
 * All functions may be called by any thread; none blocks but turns_wait.
 */
#ifndef TRANCHE_SIM_TURNS_H
#define TRANCHE_SIM_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#include "card/card.h"

#define TURNS_NEVER UINT64_MAX

struct turn {
	uint64_t number;
	uint64_t start;
	uint64_t end; /* TURNS_NEVER while it is open and the last */
	int slot;     /* who has the card, -1: it is idle */
	bool last;    /* nothing came after it yet */
};

/* Forgets what a process that had this slot earlier left. */
void turns_join(struct card *card, uint64_t now);

struct turn turns_last(const struct card *card);
/* The first turn from number on that still is known. */
struct turn turns_get(const struct card *card, uint64_t number);

/* Says that this process has work for the card, or none. */
void turns_want(struct card *card, bool want, uint64_t now);

/* Adds what has to come after turn: it is over, or the card is idle and
 * wanted since `since`, or others want it and it is still open. Returns whether there
 * is another last turn now. For a process that wants the card. */
bool turns_pass(struct card *card, const struct turn *turn, uint64_t since, uint64_t now);
/* Ends this process's turn, which is the last, early. */
void turns_release(struct card *card, const struct turn *turn, uint64_t end, uint64_t now);
/* Who comes after the holder of turn, -1: nobody wants the card. */
int turns_next(struct card *card, const struct turn *turn, uint64_t now);

/* A value to wait on, until it is another, until somebody calls turns_wake for
 * this process, or until a time of CLOCK_MONOTONIC. May return early. */
uint32_t turns_signal(const struct card *card);
void turns_wait(struct card *card, uint32_t seen, uint64_t until);
void turns_wake(struct card *card, int slot);

#endif
