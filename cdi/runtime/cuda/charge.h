/* SPDX-License-Identifier: Apache-2.0
 *
 * What each allocation is charged with, by address or handle. A charge is removed
 * before the driver frees what it is for, so that nobody meets it under an address that is
 * used again, and put back where the driver did not.
 */
#ifndef TRANCHE_CHARGE_H
#define TRANCHE_CHARGE_H

#include "context.h"

enum charge_kind {
	CHARGE_LINEAR,
	CHARGE_ARRAY,
	CHARGE_MIPMAP,
	CHARGE_POOLED, /* its pool is charged */
};

struct reservoir;

struct charge {
	struct charge *next;
	enum charge_kind kind;
	uint64_t key;
	uint64_t size; /* linear: bytes from key on */
	struct owner owner;
	struct hold hold;
	bool exported; /* another process may hold it too */
	bool measured; /* the memory is in what was measured, not in the hold */
	struct reservoir *reservoir; /* CHARGE_POOLED */
};

struct charge *charge_new(enum charge_kind kind, const struct owner *owner);
void charge_insert(struct charge *charge);
/* NULL: nothing of that kind has the key. The caller owns it now. */
struct charge *charge_remove(enum charge_kind kind, uint64_t key);
/* The linear allocation is known to other processes from now on. */
void charge_export(uint64_t key);
/* All charges of a context and of what had its handle before, as a list. */
struct charge *charge_remove_owned(const struct owner *owner);

/* A linear allocation's charge: whole frames in the hold, and a frame for each 2 MiB
 * block that it begins or ends in, once for all that are in the block. Settles
 * charge->hold, which is what was taken for it. Needs card_begin. */
void linear_charge(struct charge *charge, uint64_t address, uint64_t size);

/* The driver has freed what the charge is for: gives it back and deletes it. Does
 * the card_end of the caller's card_begin. */
void charge_end(struct charge *charge);
/* Moves all that the charge says into a hold of the same card, and deletes it. */
void charge_collect(struct charge *charge, struct hold *hold);

/* The same for a hold. doubt: another process may have kept the memory alive. */
void hold_end(struct hold *hold, bool doubt);

#endif
