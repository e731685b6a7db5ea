/* SPDX-License-Identifier: Apache-2.0 */
#include "tool.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool fits(const char *text, const char *form)
{
	for (; *form; form++, text++) {
		if (*form == 'x' ? !isdigit((unsigned char)*text) && !(*text >= 'a' && *text <= 'f') : *text != *form)
			return false;
	}
	return *text == '\0';
}

static const char *driver_of(uint32_t profile)
{
	switch (profile) {
	case 470: return "470.256.02";
	case 535: return "535.183.06";
	case 580: return "580.65.06";
	default: return "550.54.14";
	}
}

static uint32_t cuda_of(uint32_t profile)
{
	switch (profile) {
	case 470: return 11040;
	case 535: return 12020;
	case 580: return 13000;
	default: return 12040;
	}
}

static uint32_t profile_of(const char *driver)
{
	int major = atoi(driver);

	return major >= 580 ? 580 : major >= 550 ? 550 : major >= 535 ? 535 : 470;
}

static void set_defaults(struct simcard *f)
{
	if (!f->name[0])
		strcpy(f->name, "Simulated GPU");
	if (!f->pci_bus_id[0])
		snprintf(f->pci_bus_id, sizeof(f->pci_bus_id), "00000000:%02x:00.0", (8 * f->index + 8) & 0xff);
	if (!f->driver_version[0])
		strcpy(f->driver_version, driver_of(f->profile));
	if (!f->profile)
		f->profile = profile_of(f->driver_version);
	if (!f->cuda_version)
		f->cuda_version = cuda_of(f->profile);
	if (!f->compute_major) {
		f->compute_major = 8;
		f->compute_minor = 6;
	}
	if (!f->multiprocessors)
		f->multiprocessors = 72;
	if (!f->threads_per_multiprocessor)
		f->threads_per_multiprocessor = 1536;
	if (!f->context_bytes)
		f->context_bytes = 256ull << 20;
	if (!f->time_slice)
		f->time_slice = 2000000;
	if (!f->copy_bytes_per_second)
		f->copy_bytes_per_second = 24000000000ull;
}

static void check_facts(const struct simcard *f)
{
	if (!fits(f->uuid, "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"))
		fail("%s: want a UUID like GPU-8f3c2a10-5b7e-4c21-9d0a-000000000000, in lower case", f->uuid);
	if (!f->memory_total || f->memory_total % SIMCARD_FRAME || f->memory_total > SIMCARD_MAX_FRAMES * SIMCARD_FRAME)
		fail("--memory: want a multiple of 2 MiB, at most 256 GiB");
	if (f->memory_driver % SIMCARD_FRAME || f->memory_driver >= f->memory_total)
		fail("--driver-memory: want a multiple of 2 MiB below the card's memory");
	if (f->context_bytes % SIMCARD_FRAME)
		fail("--context: want a multiple of 2 MiB");
	if (f->profile != 470 && f->profile != 535 && f->profile != 550 && f->profile != 580)
		fail("--profile %u: want 470, 535, 550 or 580", f->profile);
	if (!fits(f->pci_bus_id, "xxxxxxxx:xx:xx.x"))
		fail("--pci %s: want one like 00000000:1b:00.0", f->pci_bus_id);
	if (f->time_slice < 10000)
		fail("--time-slice-us: want at least 10");
}

static void write_file(const char *dir, const char *name, const void *content, size_t length, uint64_t size)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	/* Every user of every container that has the card writes these. */
	if (fd < 0 || ftruncate(fd, (off_t)size) || pwrite(fd, content, length, 0) != (ssize_t)length || fchmod(fd, 0666))
		fail("%s: %s", path, strerror(errno));
	close(fd);
}

/* Ends the program where the existing card is another one. */
static void compare(const char *path, const struct simcard *want)
{
	struct card card;
	int err = card_open(path, CARD_LOOK, &card);

	if (err)
		fail("%s: is there, but is no simulated card: %s", path, strerror(-err));
	/* The words of the two programs that make cards are compared, not bytes: what
	 * follows a text's end means nothing. */
#define SAME(field) if (card.page->field != want->field) fail("%s: exists with another " #field ": %" PRIu64 ", not %" PRIu64, \
	path, (uint64_t)card.page->field, (uint64_t)want->field)
#define SAME_TEXT(field) if (strcmp(card.page->field, want->field)) fail("%s: exists with another " #field ": %s, not %s", \
	path, card.page->field, want->field)
	SAME_TEXT(uuid);
	SAME_TEXT(name);
	SAME_TEXT(pci_bus_id);
	SAME_TEXT(driver_version);
	SAME(cuda_version);
	SAME(profile);
	SAME(index);
	SAME(minor);
	SAME(compute_major);
	SAME(compute_minor);
	SAME(multiprocessors);
	SAME(threads_per_multiprocessor);
	SAME(memory_total);
	SAME(memory_driver);
	SAME(context_bytes);
	SAME(time_slice);
	SAME(copy_bytes_per_second);
#undef SAME
#undef SAME_TEXT
	card_close(&card);
}

int command_create(struct options *o)
{
	struct simcard *f = &o->facts;
	char path[400], aside[400];

	if (!o->card)
		fail("create: say the UUID of the card");
	snprintf(f->uuid, sizeof(f->uuid), "%s", o->card);
	set_defaults(f);
	check_facts(f);
	f->magic = SIMCARD_MAGIC;
	f->version = SIMCARD_VERSION;
	f->size = sizeof(*f);
	if (strlen(o->dir) > 300)
		fail("%s: the path is too long", o->dir);
	snprintf(path, sizeof(path), "%s/%s", o->dir, f->uuid);
	if (access(path, F_OK) == 0) {
		compare(path, f);
		return 0;
	}
	if (mkdir(o->dir, 0755) && errno != EEXIST)
		fail("%s: %s", o->dir, strerror(errno));
	snprintf(aside, sizeof(aside), "%s/.new-XXXXXX", o->dir);
	if (!mkdtemp(aside) || chmod(aside, 0755))
		fail("%s: %s", aside, strerror(errno));
	write_file(aside, "mem", "", 0, f->memory_total);
	write_file(aside, "pids", "", 0, 0);
	write_file(aside, "card", f, offsetof(struct simcard, used), sizeof(*f));
	if (rename(aside, path)) {
		if (errno != EEXIST && errno != ENOTEMPTY)
			fail("%s: %s", path, strerror(errno));
		compare(path, f);
	}
	return 0;
}
