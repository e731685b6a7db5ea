/* SPDX-License-Identifier: Apache-2.0
 *
 * What is known of modules and libraries: which of them has yet to be loaded onto a
 * card, as lazy loading does at the first use.
 */
#include "modules.h"

#include <stdlib.h>

#include "around.h"
#include "loading.h"
#include "zz_generated_hooks.h"

#define BUCKETS 256

uint32_t around_launch_word;
uint64_t loading_version = 1;

static struct thing *buckets[BUCKETS];
static struct lock lock;

static struct thing **find(enum thing_kind kind, const void *handle)
{
	struct thing **link = &buckets[(((uintptr_t)handle >> 4) ^ ((uintptr_t)handle >> 12)) % BUCKETS];

	while (*link && ((*link)->handle != handle || (*link)->kind != kind))
		link = &(*link)->next;
	return link;
}

/* Under the lock. */
static void changed(void)
{
	__atomic_add_fetch(&loading_version, 1, __ATOMIC_RELEASE);
}

/* Things that are not loaded make launches look closer. */
static void count(bool unloaded)
{
	changed();
	if (unloaded)
		__atomic_add_fetch(&around_launch_word, 1, __ATOMIC_RELAXED);
}

static void discount(bool unloaded)
{
	changed();
	if (unloaded)
		__atomic_sub_fetch(&around_launch_word, 1, __ATOMIC_RELAXED);
}

/* Which launches could load: a module that is not, a library, which may be new to any context. */
static bool may_load(const struct thing *thing)
{
	return thing->kind == THING_LIBRARY || thing->kind == THING_FUNCTION || (thing->kind == THING_MODULE && !thing->loaded);
}

void thing_add(const struct thing *wanted)
{
	struct thing *thing = malloc(sizeof(*thing));
	struct thing **link;

	if (!thing)
		return;
	*thing = *wanted;
	lock_take(&lock);
	link = find(thing->kind, thing->handle);
	if (*link) {
		/* The handle was used before, for something that is gone. */
		struct thing *old = *link;

		discount(may_load(old));
		*link = old->next;
		free(old->loaded_in);
		free(old);
		link = find(thing->kind, thing->handle);
	}
	thing->next = *link;
	*link = thing;
	count(may_load(thing));
	lock_give(&lock);
}

bool thing_find(enum thing_kind kind, const void *handle, struct thing *copy)
{
	struct thing *thing;

	lock_take(&lock);
	thing = *find(kind, handle);
	if (thing)
		*copy = *thing;
	lock_give(&lock);
	return thing != NULL;
}

bool thing_remove(enum thing_kind kind, const void *handle, struct thing *copy)
{
	struct thing **link, *thing;

	lock_take(&lock);
	link = find(kind, handle);
	thing = *link;
	if (thing) {
		*link = thing->next;
		discount(may_load(thing));
		*copy = *thing;
	}
	lock_give(&lock);
	free(thing);
	return thing != NULL;
}

void thing_remove_children(const void *parent)
{
	lock_take(&lock);
	for (size_t i = 0; i < BUCKETS; i++) {
		for (struct thing **link = &buckets[i]; *link;) {
			struct thing *thing = *link;

			if (thing->parent != parent) {
				link = &thing->next;
				continue;
			}
			discount(may_load(thing));
			*link = thing->next;
			free(thing);
		}
	}
	lock_give(&lock);
}

void module_loaded(const void *handle)
{
	struct thing *thing;

	lock_take(&lock);
	thing = *find(THING_MODULE, handle);
	if (thing) {
		discount(may_load(thing));
		thing->loaded = true;
		count(may_load(thing));
	}
	lock_give(&lock);
}

static bool same(const struct owner *a, const struct owner *b)
{
	return a->context == b->context && a->generation == b->generation;
}

bool library_is_loaded(const void *handle, const struct owner *owner)
{
	bool loaded = false;
	struct thing *thing;

	lock_take(&lock);
	thing = *find(THING_LIBRARY, handle);
	for (size_t i = 0; thing && i < thing->contexts && !loaded; i++)
		loaded = same(&thing->loaded_in[i], owner);
	lock_give(&lock);
	return loaded;
}

void library_loaded(const void *handle, const struct owner *owner)
{
	struct thing *thing;

	lock_take(&lock);
	thing = *find(THING_LIBRARY, handle);
	if (thing) {
		struct owner *more = realloc(thing->loaded_in, (thing->contexts + 1) * sizeof(*more));

		if (more) {
			more[thing->contexts++] = *owner;
			thing->loaded_in = more;
		}
	}
	lock_give(&lock);
}

void modules_forget(const struct owner *owner)
{
	lock_take(&lock);
	for (size_t i = 0; i < BUCKETS; i++) {
		for (struct thing **link = &buckets[i]; *link;) {
			struct thing *thing = *link;

			for (size_t n = 0; n < thing->contexts; n++)
				if (same(&thing->loaded_in[n], owner))
					thing->loaded_in[n--] = thing->loaded_in[--thing->contexts];
			changed();
			if (thing->kind == THING_LIBRARY || thing->kind == THING_KERNEL || thing->owner.context != owner->context ||
			    thing->owner.generation > owner->generation) {
				link = &thing->next;
				continue;
			}
			discount(may_load(thing));
			*link = thing->next;
			free(thing);
		}
	}
	lock_give(&lock);
}
