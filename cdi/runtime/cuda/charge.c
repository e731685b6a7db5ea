/* SPDX-License-Identifier: Apache-2.0 */
#include "charge.h"

#include <stdlib.h>

#define SHARDS 64
#define FIRST_BUCKETS 64u

struct shard {
	struct lock lock;
	struct charge **bucket;
	size_t buckets; /* a power of two */
	size_t count;
	struct charge *unsorted; /* where no buckets could be had */
};

static struct shard shards[SHARDS];

static uint64_t mix(enum charge_kind kind, uint64_t key)
{
	uint64_t hash = (key >> 8) ^ (key << 3) ^ kind;

	hash *= 0x9e3779b97f4a7c15ull;
	return hash ^ (hash >> 32);
}

static struct shard *shard_of(uint64_t hash)
{
	return &shards[hash % SHARDS];
}

static struct charge **bucket_of(struct shard *shard, uint64_t hash)
{
	return shard->bucket ? &shard->bucket[(hash / SHARDS) & (shard->buckets - 1)] : &shard->unsorted;
}

/* Under the shard's lock. Stays as it is where there is no memory. */
static void grow(struct shard *shard)
{
	size_t buckets = shard->bucket ? shard->buckets * 2 : FIRST_BUCKETS;
	struct shard larger = { .bucket = calloc(buckets, sizeof(*larger.bucket)), .buckets = buckets };

	if (!larger.bucket)
		return;
	for (size_t i = 0; i < (shard->bucket ? shard->buckets : 1); i++) {
		struct charge *charge = shard->bucket ? shard->bucket[i] : shard->unsorted;

		while (charge) {
			struct charge *next = charge->next;
			struct charge **bucket = bucket_of(&larger, mix(charge->kind, charge->key));

			charge->next = *bucket;
			*bucket = charge;
			charge = next;
		}
	}
	free(shard->bucket);
	shard->bucket = larger.bucket;
	shard->buckets = buckets;
	shard->unsorted = NULL;
}

struct charge *charge_new(enum charge_kind kind, const struct owner *owner)
{
	struct charge *charge = calloc(1, sizeof(*charge));

	if (charge) {
		charge->kind = kind;
		charge->owner = *owner;
	}
	return charge;
}

void charge_insert(struct charge *charge)
{
	uint64_t hash = mix(charge->kind, charge->key);
	struct shard *shard = shard_of(hash);
	struct charge **bucket;

	lock_take(&shard->lock);
	if (shard->count >= shard->buckets)
		grow(shard);
	bucket = bucket_of(shard, hash);
	charge->next = *bucket;
	*bucket = charge;
	shard->count++;
	lock_give(&shard->lock);
}

/* Under the shard's lock. */
static struct charge **find(struct shard *shard, uint64_t hash, enum charge_kind kind, uint64_t key)
{
	struct charge **link = bucket_of(shard, hash);

	while (*link && ((*link)->key != key || (*link)->kind != kind))
		link = &(*link)->next;
	return link;
}

struct charge *charge_remove(enum charge_kind kind, uint64_t key)
{
	uint64_t hash = mix(kind, key);
	struct shard *shard = shard_of(hash);
	struct charge **link, *charge;

	lock_take(&shard->lock);
	link = find(shard, hash, kind, key);
	charge = *link;
	if (charge) {
		*link = charge->next;
		charge->next = NULL;
		shard->count--;
	}
	lock_give(&shard->lock);
	return charge;
}

void charge_export(uint64_t key)
{
	uint64_t hash = mix(CHARGE_LINEAR, key);
	struct shard *shard = shard_of(hash);
	struct charge *charge;

	lock_take(&shard->lock);
	charge = *find(shard, hash, CHARGE_LINEAR, key);
	if (charge)
		charge->exported = true;
	lock_give(&shard->lock);
}

static bool owns(const struct owner *owner, const struct charge *charge)
{
	return charge->owner.context == owner->context && charge->owner.generation <= owner->generation;
}

struct charge *charge_remove_owned(const struct owner *owner)
{
	struct charge *removed = NULL;

	for (size_t s = 0; s < SHARDS; s++) {
		struct shard *shard = &shards[s];

		lock_take(&shard->lock);
		for (size_t i = 0; i < (shard->bucket ? shard->buckets : 1); i++) {
			struct charge **link = shard->bucket ? &shard->bucket[i] : &shard->unsorted;

			while (*link) {
				struct charge *charge = *link;

				if (!owns(owner, charge)) {
					link = &charge->next;
					continue;
				}
				*link = charge->next;
				charge->next = removed;
				removed = charge;
				shard->count--;
			}
		}
		lock_give(&shard->lock);
	}
	return removed;
}

void hold_end(struct hold *hold, bool doubt)
{
	struct card *card = hold->card;

	if (!doubt || hold->bytes == 0) {
		hold_keep(hold, 0);
		card_end(card);
		return;
	}
	hold_doubt(hold, false);
	card_end(card);
	hold_measure(hold, card, true);
}
