/* SPDX-License-Identifier: Apache-2.0
 *
 * Small allocations of a driver share 2 MiB blocks. Which ones do is seen by their
 * addresses: a block is charged with one frame while anything is in it. So does a large
 * allocation's end that fills no whole block.
 */
#include "charge.h"

#include <stdlib.h>

#define SHARDS 64
#define BUCKETS 64

struct block {
	struct block *next;
	uint64_t number; /* address / FRAME */
	uint64_t count;  /* allocations that begin or end in it */
	struct card *card;
	uint32_t share;
};

static struct {
	struct lock lock;
	struct block *bucket[BUCKETS];
} shards[SHARDS];

static struct block **bucket_of(uint64_t number, struct lock **lock)
{
	uint64_t hash = number * 0x9e3779b97f4a7c15ull >> 32;

	*lock = &shards[hash % SHARDS].lock;
	return &shards[hash % SHARDS].bucket[hash / SHARDS % BUCKETS];
}

/* The blocks that an allocation fills only in part: none, one or two. */
static unsigned edges(uint64_t address, uint64_t size, uint64_t numbers[2])
{
	uint64_t first = address / FRAME;
	uint64_t last = (address + size - 1) / FRAME;
	bool head = address % FRAME != 0;
	bool tail = (address + size) % FRAME != 0;
	unsigned count = 0;

	if (head || (first == last && tail))
		numbers[count++] = first;
	if (tail && last != first)
		numbers[count++] = last;
	return count;
}

static uint64_t whole_bytes(uint64_t address, uint64_t size)
{
	uint64_t begin = frames_of(address);
	uint64_t end = (address + size) / FRAME * FRAME;

	return end > begin ? end - begin : 0;
}

/* Counts one more allocation in the block; the first one's frame comes out of the hold. */
static void enter(uint64_t number, struct hold *hold)
{
	struct lock *lock;
	struct block **bucket = bucket_of(number, &lock);
	struct block *block;

	lock_take(lock);
	for (block = *bucket; block && block->number != number; block = block->next)
		;
	if (block) {
		block->count++;
	} else {
		block = malloc(sizeof(*block));
		/* Without memory for it the frame stays charged for good. */
		uint32_t share = hold_carve(hold, FRAME);

		if (block) {
			*block = (struct block){ .next = *bucket, .number = number, .count = 1, .card = hold->card, .share = share };
			*bucket = block;
		}
	}
	lock_give(lock);
}

/* Counts one less; the last one's frame goes into the hold. */
static void leave(uint64_t number, struct hold *hold)
{
	struct lock *lock;
	struct block **link = bucket_of(number, &lock);
	struct block *block;

	lock_take(lock);
	while (*link && (*link)->number != number)
		link = &(*link)->next;
	block = *link;
	if (block && --block->count == 0)
		*link = block->next;
	else
		block = NULL;
	lock_give(lock);
	if (block) {
		hold_join(hold, block->card, block->share, FRAME);
		free(block);
	}
}

void linear_charge(struct charge *charge, uint64_t address, uint64_t size)
{
	uint64_t numbers[2];
	unsigned count = edges(address, size, numbers);

	charge->key = address;
	charge->size = size;
	for (unsigned i = 0; i < count; i++)
		enter(numbers[i], &charge->hold);
	hold_keep(&charge->hold, whole_bytes(address, size));
}

void charge_collect(struct charge *charge, struct hold *hold)
{
	uint64_t numbers[2];
	unsigned count = charge->kind == CHARGE_LINEAR ? edges(charge->key, charge->size, numbers) : 0;

	hold_merge(hold, &charge->hold);
	for (unsigned i = 0; i < count; i++)
		leave(numbers[i], hold);
	free(charge);
}

void charge_end(struct charge *charge)
{
	struct hold hold = { .card = charge->hold.card };
	bool exported = charge->exported;
	bool measured = charge->measured;

	charge_collect(charge, &hold);
	hold_end(&hold, exported);
	if (measured)
		hold_measure(NULL, hold.card, false);
}
