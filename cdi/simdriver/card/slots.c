/* SPDX-License-Identifier: Apache-2.0
 *
 * Who is alive, and what becomes of what the dead held.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

int card_lock(int fd, int command, short type, off_t byte)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
	int result;

	do {
		result = fcntl(fd, command, &lock);
	} while (result != 0 && errno == EINTR);
	return result == 0 ? 0 : -errno;
}

enum card_owner card_owner(const struct card *card, unsigned slot, pid_t *pid)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)slot, .l_len = 1};

	if (pid)
		*pid = 0;
	/* Read-only descriptors may ask for write locks too. */
	if (fcntl(card->pids_fd, F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK)
		return __atomic_load_n(&card->page->slot[slot].taken, __ATOMIC_ACQUIRE) ? CARD_DEAD : CARD_FREE;
	if (lock.l_pid < 0)
		return CARD_CLEARED;
	if (pid)
		*pid = lock.l_pid;
	return CARD_ALIVE;
}

static void name_slot(struct simcard_slot *slot)
{
	int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
	ssize_t length = 0;

	if (fd >= 0) {
		length = read(fd, slot->name, sizeof(slot->name) - 1);
		close(fd);
	}
	if (length > 0 && slot->name[length - 1] == '\n')
		slot->name[length - 1] = '\0';
}

static void introduce(struct simcard_slot *slot)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	slot->ns_pid = (int32_t)getpid();
	slot->started = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	name_slot(slot);
	__atomic_store_n(&slot->taken, 1, __ATOMIC_RELEASE);
}

/* The lock of a slot that nobody has. Only between the two copies of the library in
 * one process a POSIX lock does not decide; the lock on the taking does. */
static int try_slot(struct card *card, unsigned slot)
{
	int result = card_lock(card->pids_fd, F_OFD_SETLK, F_WRLCK, (off_t)(CARD_LOCK_TAKE + slot));

	if (result != 0)
		return result;
	result = -EAGAIN;
	if (card_owner(card, slot, NULL) == CARD_FREE &&
	    card_lock(card->pids_fd, F_SETLK, F_WRLCK, (off_t)slot) == 0) {
		struct simcard_slot *mine = &card->page->slot[slot];

		/* Somebody may have lived and died in between. */
		if (__atomic_load_n(&mine->taken, __ATOMIC_ACQUIRE)) {
			card_lock(card->pids_fd, F_SETLK, F_UNLCK, (off_t)slot);
		} else {
			card_raise(&card_shared(card->page)->slots, slot + 1u);
			introduce(mine);
			card->slot = (int)slot;
			/* Not all look for free frames in one place. */
			card->next = slot * 64u;
			result = 0;
		}
	}
	card_lock(card->pids_fd, F_OFD_SETLK, F_UNLCK, (off_t)(CARD_LOCK_TAKE + slot));
	return result;
}

int card_take_slot(struct card *card)
{
	int result = card_open_pids(card);

	for (unsigned slot = 0; result == 0 && slot < SIMCARD_MAX_SLOTS; slot++) {
		enum card_owner owner = card_owner(card, slot, NULL);

		if (owner == CARD_DEAD) {
			card_reap_slot(card, slot);
			owner = card_owner(card, slot, NULL);
		}
		if (owner == CARD_FREE && try_slot(card, slot) == 0) {
			card_recount(card);
			return 0;
		}
	}
	return result ? result : -EUSERS;
}

uint64_t card_reap(struct card *card)
{
	uint64_t slots = __atomic_load_n(&card_shared(card->page)->slots, __ATOMIC_SEQ_CST);
	uint64_t freed = 0;

	if (card_open_pids(card) != 0 || !card_intact(card))
		return 0;
	for (unsigned slot = 0; slot < slots && slot < SIMCARD_MAX_SLOTS; slot++) {
		if ((int)slot == card->slot || !__atomic_load_n(&card->page->slot[slot].taken, __ATOMIC_ACQUIRE))
			continue;
		if (card_owner(card, slot, NULL) == CARD_DEAD)
			freed += card_reap_slot(card, slot);
	}
	card_recount(card);
	return freed;
}

uint64_t card_reap_slot(struct card *card, unsigned slot)
{
	struct simcard_slot *dead = &card->page->slot[slot];
	uint64_t freed = 0;

	if (card_lock(card->pids_fd, F_OFD_SETLK, F_WRLCK, (off_t)slot) != 0)
		return 0;
	if (__atomic_load_n(&dead->taken, __ATOMIC_ACQUIRE)) {
		bool left;

		__atomic_store_n(&card_shared(card->page)->recount, 1, __ATOMIC_SEQ_CST);
		freed = card_free_frames(card, slot, &left);
		if (!left) {
			/* Field by field, as others look on; taken last. */
			for (int kind = 0; kind < SIMCARD_KINDS; kind++)
				__atomic_store_n(&dead->held[kind], 0, __ATOMIC_RELAXED);
			__atomic_store_n(&dead->held_max, 0, __ATOMIC_RELAXED);
			__atomic_store_n(&dead->busy, 0, __ATOMIC_RELAXED);
			__atomic_store_n(&dead->launches, 0, __ATOMIC_RELAXED);
			__atomic_store_n(&dead->last_busy, 0, __ATOMIC_RELAXED);
			for (size_t i = 0; i < sizeof(dead->reserved) / sizeof(dead->reserved[0]); i++)
				__atomic_store_n(&dead->reserved[i], 0, __ATOMIC_RELAXED);
			__atomic_store_n(&dead->taken, 0, __ATOMIC_RELEASE);
		}
	}
	card_lock(card->pids_fd, F_OFD_SETLK, F_UNLCK, (off_t)slot);
	return freed;
}
