/* SPDX-License-Identifier: Apache-2.0
 *
 * What is in struct simcard's part for the memory half: what a frame is held
 * for, and the objects that several processes share.
 *
 * An object is a set of frames that left its maker's hands: exported, opened
 * by IPC, or in an open file descriptor. Each process that uses it has its
 * bit among the holders; the frames belong to one of them, in the table of frames. When that one
 * lets go, or is found dead, the frames go to the next.
 */
#ifndef TRANCHE_SIM_CARD_SHARED_H
#define TRANCHE_SIM_CARD_SHARED_H

#include <assert.h>
#include <stdint.h>

#include "simcard.h"

#define CARD_MAX_OBJECTS 8192u
/* A frame's tag: the number of its object plus one, and its place in it. */
#define CARD_TAG_BITS 17u

struct card_object {
	uint64_t id; /* unique on the card, 0: not in use */
	uint64_t frames;
	uint64_t kind;    /* enum card_object_kind */
	uint64_t info[5]; /* the maker's */
	uint64_t holders[SIMCARD_MAX_SLOTS / 64];
};

struct card_shared {
	/* Not 0 since somebody died, or was found dead, while used and held were
	 * changed: they have to be counted anew. */
	uint64_t recount;
	uint64_t next_id;
	uint64_t objects; /* no object with this or a higher number is in use */
	uint64_t slots;   /* no slot with this or a higher number was ever taken */
	uint64_t reserved[4];
	uint32_t tag[SIMCARD_MAX_FRAMES];
	uint8_t kind[SIMCARD_MAX_FRAMES];
	struct card_object object[CARD_MAX_OBJECTS];
};

static_assert(sizeof(struct card_shared) <= sizeof(((struct simcard *)0)->shared), "too much is shared");
static_assert(SIMCARD_MAX_FRAMES <= 1u << CARD_TAG_BITS, "a place needs more bits");
static_assert(CARD_MAX_OBJECTS < 1u << (32 - CARD_TAG_BITS), "an object's number needs more bits");

static inline struct card_shared *card_shared(struct simcard *page)
{
	return (struct card_shared *)(void *)page->shared;
}

/* Bytes of pids that are locked, besides those of the slots. */
enum {
	/* A slot is being taken: keeps two copies of the library in one process apart. */
	CARD_LOCK_TAKE = SIMCARD_MAX_SLOTS,
	/* Objects are being changed. */
	CARD_LOCK_OBJECTS = 2 * SIMCARD_MAX_SLOTS,
};

/* The byte of the file card that a descriptor of object 0 locks, followed by those of the
 * others; beyond its content. */
#define CARD_LOCK_DESCRIPTORS (1ull << 40)

/* The word of struct simcard_slot.reserved that is odd while the slot's process
 * changes the table of frames. */
#define CARD_SLOT_WORK 0

#endif
