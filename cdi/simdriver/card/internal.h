/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the files of this directory.
 */
#ifndef TRANCHE_SIM_CARD_INTERNAL_H
#define TRANCHE_SIM_CARD_INTERNAL_H

#include "card.h"
#include "shared.h"

/* fcntl of one byte's lock; negative errno. */
int card_lock(int fd, int command, short type, off_t byte);

/* Clears a slot if its process is dead: frees its frames or hands them over to
 * who else has them, then frees the slot. Returns how many frames came free. */
uint64_t card_reap_slot(struct card *card, unsigned slot);

/* Frees what a dead process held; *left: frames that an open descriptor keeps. */
uint64_t card_free_frames(struct card *card, unsigned slot, bool *left);

/* A slot's process changes the table of frames between these two; without a
 * slot only the card's changes are counted. */
void card_begin(struct card *card);
void card_end(struct card *card);

/* Raises a word that only grows. */
void card_raise(uint64_t *word, uint64_t value);

/* Zeroes the content of count frames from first on. */
void card_punch(const struct card *card, uint32_t first, uint64_t count);

/* Adds to what a slot holds; frames may be negative. */
void card_account(struct simcard *page, unsigned slot, unsigned kind, int64_t frames);

/* Takes frames off what is used, before they come free. */
void card_unuse(struct simcard *page, uint64_t frames);

/* Counts used and held anew where they may be off, if nobody changes them just now. */
void card_recount(struct card *card);

#endif
