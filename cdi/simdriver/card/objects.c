/* SPDX-License-Identifier: Apache-2.0
 *
 * Objects. One lock for all of them on a card, which the kernel takes from
 * whoever dies; what they leave half-done is finished by who reaps them, because a frame's tag
 * goes before its owner's entry.
 *
 * An exported descriptor is an open file description of the card with a read
 * lock on the object's byte, at whose position the object is named. So the kernel
 * knows at any time whether there is one left, in whatever process or message it is.
 */
#include "objects.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

#define NUMBER_BITS 13

static_assert(CARD_MAX_OBJECTS == 1u << NUMBER_BITS, "a descriptor's position names the object");

static void lock(struct card *card)
{
	card_lock(card->pids_fd, F_SETLKW, F_WRLCK, CARD_LOCK_OBJECTS);
}

static void unlock(struct card *card)
{
	card_lock(card->pids_fd, F_SETLK, F_UNLCK, CARD_LOCK_OBJECTS);
}

static struct card_object *object_at(const struct card *card, uint32_t number)
{
	return &card_shared(card->page)->object[number];
}

static struct card_object *find(const struct card *card, struct card_reference reference)
{
	struct card_object *object;

	if (reference.number >= CARD_MAX_OBJECTS || reference.id == 0)
		return NULL;
	object = object_at(card, reference.number);
	return __atomic_load_n(&object->id, __ATOMIC_ACQUIRE) == reference.id ? object : NULL;
}

static bool holds(const struct card_object *object, unsigned slot)
{
	return __atomic_load_n(&object->holders[slot / 64], __ATOMIC_SEQ_CST) >> (slot % 64) & 1;
}

static void set_holder(struct card_object *object, unsigned slot, bool holder)
{
	uint64_t bit = 1ull << (slot % 64);

	if (holder)
		__atomic_fetch_or(&object->holders[slot / 64], bit, __ATOMIC_SEQ_CST);
	else
		__atomic_fetch_and(&object->holders[slot / 64], ~bit, __ATOMIC_SEQ_CST);
}

static bool lives(const struct card *card, unsigned slot)
{
	return (int)slot == card->slot || card_owner(card, slot, NULL) == CARD_ALIVE;
}

/* A living holder, or -1. */
static int any_holder(struct card *card, struct card_object *object)
{
	for (unsigned slot = 0; slot < SIMCARD_MAX_SLOTS; slot++) {
		if (__atomic_load_n(&object->holders[slot / 64], __ATOMIC_SEQ_CST) == 0) {
			slot |= 63;
			continue;
		}
		if (holds(object, slot) && lives(card, slot))
			return (int)slot;
	}
	return -1;
}

static bool has_descriptor(const struct card *card, uint32_t number)
{
	struct flock asked = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)CARD_LOCK_DESCRIPTORS + number, .l_len = 1};

	return fcntl(card->card_fd, F_OFD_GETLK, &asked) == 0 && asked.l_type != F_UNLCK;
}

/* Does one thing with each frame of an object. */
typedef void frame_action(struct card *card, uint32_t frame, uint32_t place, void *argument);

static void each_frame(struct card *card, uint32_t number, frame_action *action, void *argument)
{
	struct card_shared *shared = card_shared(card->page);

	for (uint64_t frame = 0; frame < card_frames(card->page); frame++) {
		uint32_t tag = __atomic_load_n(&shared->tag[frame], __ATOMIC_RELAXED);

		if (tag >> CARD_TAG_BITS == number + 1)
			action(card, (uint32_t)frame, tag & ((1u << CARD_TAG_BITS) - 1), argument);
	}
}

static void write_down(struct card *card, uint32_t frame, uint32_t place, void *argument)
{
	(void)card;
	((uint32_t *)argument)[place] = frame;
}

static void free_frame(struct card *card, uint32_t frame, uint32_t place, void *argument)
{
	unsigned owner = __atomic_load_n(&card->page->frame[frame], __ATOMIC_SEQ_CST);

	(void)place;
	card_punch(card, frame, 1);
	__atomic_store_n(&card_shared(card->page)->tag[frame], 0, __ATOMIC_SEQ_CST);
	if (owner == 0)
		return;
	card_account(card->page, owner - 1, card_shared(card->page)->kind[frame], -1);
	card_unuse(card->page, 1);
	__atomic_store_n(&card->page->frame[frame], 0, __ATOMIC_SEQ_CST);
	++*(uint64_t *)argument;
}

/* Gives a frame to the slot *argument. */
static void move_frame(struct card *card, uint32_t frame, uint32_t place, void *argument)
{
	unsigned to = *(unsigned *)argument;
	unsigned from = __atomic_load_n(&card->page->frame[frame], __ATOMIC_SEQ_CST);
	unsigned kind = card_shared(card->page)->kind[frame];

	(void)place;
	if (from == 0 || from == to + 1)
		return;
	card_account(card->page, from - 1, kind, -1);
	__atomic_store_n(&card->page->frame[frame], (uint16_t)(to + 1), __ATOMIC_SEQ_CST);
	card_account(card->page, to, kind, 1);
}

static void is_owned(struct card *card, uint32_t frame, uint32_t place, void *argument)
{
	int *owner = argument;

	(void)place;
	*owner = (int)__atomic_load_n(&card->page->frame[frame], __ATOMIC_SEQ_CST) - 1;
}

/* An object that lost a holder: its frames go to another one, stay where a descriptor
 * is left, or come free. Returns how many came free. */
static uint64_t settle(struct card *card, uint32_t number)
{
	struct card_object *object = object_at(card, number);
	int holder = any_holder(card, object);
	uint64_t freed = 0;

	if (holder >= 0) {
		int owner = -1;

		each_frame(card, number, is_owned, &owner);
		if (owner < 0 || !holds(object, (unsigned)owner) || !lives(card, (unsigned)owner))
			each_frame(card, number, move_frame, &(unsigned){(unsigned)holder});
	} else if (!has_descriptor(card, number)) {
		each_frame(card, number, free_frame, &freed);
		memset(object->holders, 0, sizeof(object->holders));
		__atomic_store_n(&object->id, 0, __ATOMIC_RELEASE);
	}
	return freed;
}

static int make(struct card *card, uint32_t number, const uint32_t *frames, uint64_t count, struct card_reference *reference)
{
	struct card_shared *shared = card_shared(card->page);
	struct card_object *object = &shared->object[number];

	memset(object->holders, 0, sizeof(object->holders));
	set_holder(object, (unsigned)card->slot, true);
	*reference = (struct card_reference){.id = __atomic_add_fetch(&shared->next_id, 1, __ATOMIC_SEQ_CST), .number = number};
	if (shared->objects <= number)
		__atomic_store_n(&shared->objects, number + 1, __ATOMIC_SEQ_CST);
	/* First the object, then the tags: a tag without an object would never be cleared. */
	__atomic_store_n(&object->id, reference->id, __ATOMIC_SEQ_CST);
	for (uint64_t i = 0; i < count; i++)
		__atomic_store_n(&shared->tag[frames[i]], (number + 1) << CARD_TAG_BITS | (uint32_t)i, __ATOMIC_SEQ_CST);
	return 0;
}

int card_object_make(struct card *card, enum card_object_kind kind, const uint32_t *frames, uint64_t count, const uint64_t info[5],
		     struct card_reference *reference)
{
	struct card_shared *shared = card_shared(card->page);
	int result = -ENOSPC;

	if (!card_intact(card))
		return -EBADF;
	lock(card);
	for (uint32_t number = 0; result == -ENOSPC && number < CARD_MAX_OBJECTS; number++) {
		struct card_object *object = &shared->object[number];

		/* A number that an old descriptor still names is left alone. */
		if (object->id != 0 || has_descriptor(card, number))
			continue;
		object->kind = kind;
		object->frames = count;
		memcpy(object->info, info, sizeof(object->info));
		result = make(card, number, frames, count, reference);
	}
	unlock(card);
	return result;
}

int card_object_look(const struct card *card, struct card_reference reference, struct card_object *object)
{
	const struct card_object *found = find(card, reference);

	if (!found)
		return -ENOENT;
	*object = *found;
	return find(card, reference) ? 0 : -ENOENT;
}

int card_object_hold(struct card *card, struct card_reference reference, uint32_t *frames)
{
	struct card_object *object;
	int result = -ENOENT;

	if (!card_intact(card))
		return -EBADF;
	lock(card);
	object = find(card, reference);
	if (object && (any_holder(card, object) >= 0 || has_descriptor(card, reference.number))) {
		card_begin(card);
		set_holder(object, (unsigned)card->slot, true);
		settle(card, reference.number);
		card_end(card);
		each_frame(card, reference.number, write_down, frames);
		result = 0;
	}
	unlock(card);
	return result;
}

void card_object_drop(struct card *card, struct card_reference reference)
{
	struct card_object *object;

	if (!card_intact(card))
		return;
	lock(card);
	object = find(card, reference);
	if (object) {
		card_begin(card);
		set_holder(object, (unsigned)card->slot, false);
		settle(card, reference.number);
		card_end(card);
	}
	unlock(card);
}

int card_object_export(struct card *card, struct card_reference reference)
{
	char path[sizeof(card->dir) + 8];
	off_t name = (off_t)(reference.id << NUMBER_BITS | reference.number);
	int result;
	int fd;

	snprintf(path, sizeof(path), "%s/card", card->dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	result = card_lock(fd, F_OFD_SETLK, F_RDLCK, (off_t)CARD_LOCK_DESCRIPTORS + reference.number);
	if (result == 0 && lseek(fd, name, SEEK_SET) != name)
		result = -EIO;
	if (result == 0)
		return fd;
	close(fd);
	return result;
}

int card_object_import(const struct card *card, int fd, struct card_reference *reference)
{
	struct stat mine, given;
	off_t name;

	if (fstat(fd, &given) != 0 || fstat(card->card_fd, &mine) != 0 || given.st_dev != mine.st_dev || given.st_ino != mine.st_ino)
		return -EBADF;
	name = lseek(fd, 0, SEEK_CUR);
	if (name <= 0)
		return -EBADF;
	*reference = (struct card_reference){.id = (uint64_t)name >> NUMBER_BITS, .number = (uint32_t)name & (CARD_MAX_OBJECTS - 1)};
	return 0;
}

/* Whether nobody holds an object, by its bits. The dead are found by who reaps. */
static bool is_forlorn(const struct card_object *object)
{
	uint64_t holders = 0;

	for (size_t i = 0; i < sizeof(object->holders) / sizeof(object->holders[0]); i++)
		holders |= __atomic_load_n(&object->holders[i], __ATOMIC_SEQ_CST);
	return __atomic_load_n(&object->id, __ATOMIC_SEQ_CST) != 0 && holders == 0;
}

uint64_t card_sweep(struct card *card)
{
	uint64_t objects = __atomic_load_n(&card_shared(card->page)->objects, __ATOMIC_SEQ_CST);
	uint64_t freed = 0;

	if (objects == 0 || !card_intact(card))
		return 0;
	for (uint32_t number = 0; number < objects && number < CARD_MAX_OBJECTS; number++) {
		if (!is_forlorn(object_at(card, number)) || has_descriptor(card, number))
			continue;
		lock(card);
		card_begin(card);
		if (is_forlorn(object_at(card, number)))
			freed += settle(card, number);
		card_end(card);
		unlock(card);
	}
	return freed;
}

struct dead_frames {
	unsigned slot;
	uint64_t freed;
};

/* The dead slot's frames that are in no object. */
static void free_plain(struct card *card, struct dead_frames *dead)
{
	struct card_shared *shared = card_shared(card->page);

	for (uint64_t frame = 0, run; frame < card_frames(card->page); frame += run) {
		for (run = 0; frame + run < card_frames(card->page); run++) {
			if (__atomic_load_n(&card->page->frame[frame + run], __ATOMIC_SEQ_CST) != dead->slot + 1 ||
			    __atomic_load_n(&shared->tag[frame + run], __ATOMIC_SEQ_CST) != 0)
				break;
		}
		if (run == 0) {
			run = 1;
			continue;
		}
		card_punch(card, (uint32_t)frame, run);
		card_unuse(card->page, run);
		for (uint64_t i = 0; i < run; i++)
			__atomic_store_n(&card->page->frame[frame + i], 0, __ATOMIC_SEQ_CST);
		dead->freed += run;
	}
}

uint64_t card_free_frames(struct card *card, unsigned slot, bool *left)
{
	struct dead_frames dead = {.slot = slot};
	uint64_t freed = 0;

	lock(card);
	card_begin(card);
	for (uint32_t number = 0; number < card_shared(card->page)->objects; number++) {
		struct card_object *object = object_at(card, number);

		if (object->id == 0)
			continue;
		set_holder(object, slot, false);
		freed += settle(card, number);
	}
	free_plain(card, &dead);
	card_end(card);
	*left = false;
	for (uint64_t frame = 0; frame < card_frames(card->page); frame++) {
		if (__atomic_load_n(&card->page->frame[frame], __ATOMIC_SEQ_CST) == slot + 1)
			*left = true;
	}
	unlock(card);
	return freed + dead.freed;
}
