/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that the driver takes and gives back on its own account, for a pool or for the
 * graphs on a card, and of which it says how much it has in reserve. It is charged by
 * that. Before a call that may let a reservoir grow, room is taken for the growth;
 * afterwards reservoir_settle asks the driver and charges what it says.
 *
 * Drivers give back what a pool has above its release threshold whenever something is
 * synchronised, in calls that may wait for long. A measurement in between would take
 * what is charged and no longer there for something else that is not. So the driver is
 * told an endless threshold, and what the program wants is done here, after
 * synchronisation, by trimming.
 */
#ifndef TRANCHE_RESERVOIR_H
#define TRANCHE_RESERVOIR_H

#include "card.h"

struct reservoir {
	struct reservoir *next;
	CUmemoryPool pool; /* NULL: the card's graphs */
	struct card *card; /* NULL: known not to be memory of a card, or another process's */
	struct lock lock;
	struct hold hold;
	/* Answers of the driver are numbered as they are asked for, and one that was
	 * asked for before the latest that was used is not used. */
	uint64_t asked;
	uint64_t used;
	uint64_t trims;
	uint64_t trimming;   /* calls that trim now */
	uint64_t relaunches; /* launches on their way that rely on memory which is there */
	uint64_t users;    /* of this structure; the list is one */
	uint64_t live;     /* allocations that are not freed */
	uint64_t threshold; /* of a pool, as the program set it */
	bool exported;
	bool destroyed;
	bool counted; /* among those that are charged with something */
};

/* The pool's; a default one's is made at first sight. NULL: nothing is known of it, and
 * nothing charged. The caller puts it back. */
struct reservoir *reservoir_of_pool(CUmemoryPool pool);
/* The same for a pool that is allocated from, which may be another library's: its card is
 * the current one then. Errors are the driver's, where it knows no such pool. */
CUresult reservoir_to_grow(CUmemoryPool pool, struct card *current, struct reservoir **reservoir);
struct reservoir *reservoir_of_graphs(struct card *card);
/* The i-th reservoir of the card, or NULL; the caller puts it back. */
struct reservoir *reservoir_nth(const struct card *card, size_t i);
void reservoir_put(struct reservoir *reservoir);
/* One more user, for an allocation of its that lives. */
void reservoir_get(struct reservoir *reservoir);

/* A pool was made, or imported (card NULL). What had its handle before is gone. False: no
 * memory. */
bool reservoir_register(CUmemoryPool pool, struct card *card);

/* Around a launch that needs no more than what its graph has already, if nothing was
 * trimmed since trims was read: what is charged now is not given back meanwhile.
 * False: it was. */
bool reservoir_relaunch(struct reservoir *reservoir, uint64_t trims);
void reservoir_relaunched(struct reservoir *reservoir);
/* Around trimming. False: a launch relies on what there is, and nothing is begun; after
 * the deadline that is no reason any more. */
bool reservoir_begin_trim(struct reservoir *reservoir, uint64_t deadline);
void reservoir_end_trim(struct reservoir *reservoir);

/* Asks the driver, charges what it says, and gives the rest of taken (may be NULL)
 * back. Does the card_end of the caller's card_begin. True: it has grown by more than was
 * taken. */
bool reservoir_settle(struct reservoir *reservoir, struct hold *taken);

/* What the reservoir is charged with; and whether any is with something, one load. */
uint64_t reservoir_charge(struct reservoir *reservoir);
bool reservoirs_charged(void);

/* The pool was destroyed: what it held is free once its allocations are. Does
 * card_end. */
void reservoir_destroyed(struct reservoir *reservoir);
/* What the program sees as the pool's release threshold; false: it is the driver's affair. */
bool reservoir_get_threshold(CUmemoryPool pool, cuuint64_t *threshold);
bool reservoir_set_threshold(CUmemoryPool pool, cuuint64_t threshold);
/* One of its allocations is free. */
void reservoir_freed(struct reservoir *reservoir);

#endif
