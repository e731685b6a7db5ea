/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding and opening cards.
 */
#include "card.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

const char *card_dir(void)
{
	const char *dir = getenv(SIMCARD_DIR_ENV);

	return dir && *dir ? dir : SIMCARD_DIR;
}

/* Opens a file of a card; negative errno. */
static int open_file(const char *dir, const char *name, int flags)
{
	char path[sizeof(((struct card *)0)->dir) + 8];
	int fd;

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) >= sizeof(path))
		return -ENAMETOOLONG;
	fd = open(path, flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static bool understood(const struct simcard *page)
{
	return __atomic_load_n(&page->magic, __ATOMIC_ACQUIRE) == SIMCARD_MAGIC && page->version == SIMCARD_VERSION &&
	       page->size == sizeof(struct simcard) && page->memory_total % SIMCARD_FRAME == 0 &&
	       page->memory_driver % SIMCARD_FRAME == 0 && page->memory_driver <= page->memory_total &&
	       page->context_bytes % SIMCARD_FRAME == 0 && page->memory_total / SIMCARD_FRAME <= SIMCARD_MAX_FRAMES;
}

static int map_page(struct card *card)
{
	struct stat st;
	void *page;

	if (fstat(card->card_fd, &st) != 0)
		return -errno;
	if (st.st_size < (off_t)sizeof(struct simcard))
		return -EINVAL;
	page = mmap(NULL, sizeof(struct simcard), card->writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, card->card_fd, 0);
	if (page == MAP_FAILED)
		return -errno;
	card->page = page;
	return understood(card->page) ? 0 : -EINVAL;
}

static ino_t inode_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

bool card_intact(const struct card *card)
{
	return inode_of(card->mem_fd) == card->mem_inode && inode_of(card->pids_fd) == card->pids_inode;
}

int card_open(const char *path, enum card_access access, struct card *card)
{
	int flags = access == CARD_USE ? O_RDWR : O_RDONLY;
	int result;

	*card = (struct card){.pids_fd = -1, .mem_fd = -1, .slot = -1, .writable = access == CARD_USE};
	if ((size_t)snprintf(card->dir, sizeof(card->dir), "%s", path) >= sizeof(card->dir))
		return -ENAMETOOLONG;
	card->card_fd = open_file(path, "card", flags);
	if (card->card_fd < 0)
		return card->card_fd;
	result = map_page(card);
	if (result == 0 && access == CARD_USE) {
		card->mem_fd = open_file(path, "mem", O_RDWR);
		if (card->mem_fd < 0)
			result = card->mem_fd;
		else
			card->mem_inode = inode_of(card->mem_fd);
	}
	if (result != 0)
		card_close(card);
	return result;
}

void card_close(struct card *card)
{
	if (card->page)
		munmap(card->page, sizeof(*card->page));
	if (card->mem_fd >= 0)
		close(card->mem_fd);
	if (card->card_fd >= 0)
		close(card->card_fd);
	card->page = NULL;
	card->mem_fd = -1;
	card->card_fd = -1;
}

int card_open_pids(struct card *card)
{
	if (card->pids_fd < 0) {
		card->pids_fd = open_file(card->dir, "pids", card->writable ? O_RDWR : O_RDONLY);
		card->pids_inode = inode_of(card->pids_fd);
	}
	return card->pids_fd < 0 ? card->pids_fd : 0;
}

static int by_index(const void *a, const void *b)
{
	const struct card *x = a, *y = b;

	if (x->page->index != y->page->index)
		return x->page->index < y->page->index ? -1 : 1;
	return strcmp(x->page->uuid, y->page->uuid);
}

int card_open_all(const char *dir, enum card_access access, struct card *cards, int max)
{
	DIR *entries = opendir(dir);
	struct dirent *entry;
	int count = 0;

	if (!entries)
		return 0;
	while (count < max && (entry = readdir(entries))) {
		char path[sizeof(cards->dir)];

		if (entry->d_name[0] == '.')
			continue;
		if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name) >= sizeof(path))
			continue;
		if (card_open(path, access, &cards[count]) == 0)
			count++;
	}
	closedir(entries);
	qsort(cards, (size_t)count, sizeof(*cards), by_index);
	return count;
}
