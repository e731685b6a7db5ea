/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that several processes share, see shared.h. Callers hold the lock
 * that serialises claims (card.h).
 */
#ifndef TRANCHE_SIM_CARD_OBJECTS_H
#define TRANCHE_SIM_CARD_OBJECTS_H

#include "card.h"
#include "shared.h"

enum card_object_kind {
	CARD_OBJECT_VMM,  /* an allocation of cuMemCreate */
	CARD_OBJECT_IPC,  /* frames of linear memory, opened by an IPC handle */
	CARD_OBJECT_POOL, /* a pool itself; no frames */
	CARD_OBJECT_POOL_FRAMES,
	CARD_OBJECT_MULTICAST, /* no frames */
};

/* Which object, as it is told to other processes. */
struct card_reference {
	uint64_t id;
	uint32_t number;
};

/* Makes an object of frames that this process holds, with it as the only holder.
 * -ENOSPC: there are too many. */
int card_object_make(struct card *card, enum card_object_kind kind, const uint32_t *frames, uint64_t count, const uint64_t info[5],
		     struct card_reference *reference);

/* Looks an object up; -ENOENT: it is gone. Does not hold it. */
int card_object_look(const struct card *card, struct card_reference reference, struct card_object *object);

/* Becomes a holder (again: no change). frames gets object.frames entries. -ENOENT: it is
 * gone. */
int card_object_hold(struct card *card, struct card_reference reference, uint32_t *frames);

/* Is no longer a holder. The frames go to another one, or come free; the caller has
 * unmapped them. Memory that an exported descriptor keeps stays with this process until card_sweep finds the descriptor
 * closed. */
void card_object_drop(struct card *card, struct card_reference reference);

/* A new descriptor that keeps the object alive. */
int card_object_export(struct card *card, struct card_reference reference);

/* What a descriptor stands for. -EBADF: it is not of this card, or no export. */
int card_object_import(const struct card *card, int fd, struct card_reference *reference);

/* Frees what only descriptors kept that are closed now. Returns the number of frames. */
uint64_t card_sweep(struct card *card);

#endif
