/* SPDX-License-Identifier: Apache-2.0
 *
 * What the simulated libcuda, the simulated NVML and tranche-simcard have in
 * common: finding cards, mapping them, and telling who of those that hold
 * memory is alive.
 *
 * Functions return 0 or a negative errno, unless they say otherwise. None of
 * them blocks for longer than it takes to clear what a dead process left.
 */
#ifndef TRANCHE_SIM_CARD_H
#define TRANCHE_SIM_CARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "simcard.h"

#define CARD_MAX 64

/* One opened card. Belongs to whoever opened it. */
struct card {
	struct simcard *page;
	/* -1 until card_attach. Once open it stays open until the process ends: to
	 * close it would give the process's lock back. */
	int pids_fd;
	int mem_fd;  /* -1 unless opened to use its memory */
	int card_fd; /* for locks that belong to an exported file descriptor */
	int slot;    /* of this process, -1: none yet */
	uint64_t next; /* where the next claim looks first */
	bool writable;
	/* Of mem and pids: programs close descriptors that they do not know, and open others. */
	ino_t mem_inode, pids_inode;
	char dir[256];
};

/* The directory of cards: the environment's, else SIMCARD_DIR. */
const char *card_dir(void);

enum card_access {
	CARD_LOOK, /* the page read-only */
	CARD_USE,  /* the page and the memory, to read and write */
};

/* Opens all cards in a directory, ordered by their index. Returns how many,
 * at most max; directories that hold no card of this version are passed
 * over. A missing directory has no cards. */
int card_open_all(const char *dir, enum card_access access, struct card *cards, int max);

/* Opens the card in the directory path. */
int card_open(const char *path, enum card_access access, struct card *card);

/* Unmaps and closes; not for a card that has pids open. */
void card_close(struct card *card);

/* Opens pids, for questions about who is alive. */
int card_open_pids(struct card *card);

/* Whether mem and pids are still what was opened. If not, the process has lost its slot, and
 * touches nothing any more. */
bool card_intact(const struct card *card);

/* Who has a slot. */
enum card_owner {
	CARD_FREE,    /* never taken, or cleared */
	CARD_DEAD,    /* its process has ended, nobody has cleared it yet */
	CARD_CLEARED, /* somebody is clearing it now */
	CARD_ALIVE,
};

/* Asks the kernel. *pid is the owner's in the caller's PID namespace, 0 when it
 * has none there or there is no owner; may be NULL. Needs pids. */
enum card_owner card_owner(const struct card *card, unsigned slot, pid_t *pid);

/* Takes a slot for this process (more than one in a process are possible: one for each copy
 * of the library). */
int card_take_slot(struct card *card);

/* Frees what dead processes hold. Returns the number of frames that came free. */
uint64_t card_reap(struct card *card);

/* ---- frames --------------------------------------------------------------
 * Callers serialise these by a lock of the process's own, one a card. */

static inline uint64_t card_frames(const struct simcard *page)
{
	return (page->memory_total - page->memory_driver) / SIMCARD_FRAME;
}

/* Claims count frames into frames[], in runs as long as can be had. Reaps where too
 * few are free. -ENOMEM: they are not there; nothing was claimed. -EBADF: the card is not intact. */
int card_claim(struct card *card, enum simcard_kind kind, uint32_t *frames, uint64_t count);

/* Gives frames back, their content zeroed. The caller has unmapped them. */
void card_release(struct card *card, const uint32_t *frames, uint64_t count);

/* Where a frame is in mem. */
static inline off_t card_offset(uint32_t frame)
{
	return (off_t)frame * (off_t)SIMCARD_FRAME;
}

/* What live processes hold of the card, in bytes, counted frame by frame. Needs
 * pids. */
uint64_t card_count(const struct card *card);

#endif
