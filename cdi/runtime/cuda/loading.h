/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules, libraries, and kernels and functions of theirs, as modules.c
 * remembers them.
 */
#ifndef TRANCHE_LOADING_H
#define TRANCHE_LOADING_H

#include "context.h"

enum thing_kind {
	THING_MODULE,
	THING_LIBRARY,
	THING_KERNEL,   /* of a library */
	THING_FUNCTION, /* of a lazy binary module, not launched yet */
};

struct thing {
	struct thing *next;
	enum thing_kind kind;
	const void *handle;
	struct owner owner; /* of a module or function */
	struct card *card;
	uint64_t estimate;
	bool exact;
	bool lazy;
	bool loaded;             /* a module */
	const void *parent;      /* the library of a kernel, the module of a function */
	struct owner *loaded_in; /* a library */
	size_t contexts;
};

/* Changes whenever a launch that loaded nothing might load something. */
extern uint64_t loading_version __attribute__((visibility("hidden")));

void thing_add(const struct thing *thing);
/* A copy; its list of contexts is not the caller's. */
bool thing_find(enum thing_kind kind, const void *handle, struct thing *copy);
/* The copy's list of contexts is the caller's. */
bool thing_remove(enum thing_kind kind, const void *handle, struct thing *copy);

/* All kernels of a library, or functions of a module. */
void thing_remove_children(const void *parent);

void module_loaded(const void *handle);
bool library_is_loaded(const void *handle, const struct owner *owner);
void library_loaded(const void *handle, const struct owner *owner);

struct around;

/* Takes room for an estimate on a card; what the call takes is measured afterwards. */
CUresult loading_begin(struct around *around, struct card *card, uint64_t estimate);
/* The call failed. True: there is room now, again. */
bool loading_failed(struct around *around, CUresult result);
/* Nothing is begun. */
CUresult loading_refuse(struct around *around, CUresult result);

#endif
