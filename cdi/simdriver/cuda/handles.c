/* SPDX-License-Identifier: Apache-2.0
 *
 * Handles. They live in large pieces of memory that are never given back, in
 * cells of 64 bytes, so that an old or invented handle can be looked at.
 */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define CELL 64u
#define PIECE (4u << 20)
#define PIECES 256
#define MAX_CELLS 64u

static struct {
	pthread_mutex_t lock;
	char *piece[PIECES]; /* set before count says so */
	unsigned count;
	size_t used; /* of the last piece */
	struct sim_handle *free[MAX_CELLS + 1];
	uint64_t next_id;
} handles = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A deleted handle's second word points to the next one. */
static struct sim_handle **next_free(struct sim_handle *handle)
{
	return (struct sim_handle **)(void *)&handle->id;
}

static struct sim_handle *carve(unsigned cells)
{
	size_t size = cells * (size_t)CELL;
	char *cell;

	if (handles.count == 0 || handles.used + size > PIECE) {
		char *piece = handles.count < PIECES ? aligned_alloc(PIECE, PIECE) : NULL;

		if (!piece)
			return NULL;
		/* Types are looked at before anything was written there. */
		memset(piece, 0, PIECE);
		handles.piece[handles.count] = piece;
		handles.used = 0;
		__atomic_store_n(&handles.count, handles.count + 1, __ATOMIC_RELEASE);
	}
	cell = handles.piece[handles.count - 1] + handles.used;
	handles.used += size;
	return (struct sim_handle *)(void *)cell;
}

void *sim_new(enum sim_type type, size_t size)
{
	unsigned cells = (unsigned)((size + CELL - 1) / CELL);
	struct sim_handle *handle;

	if (cells == 0 || cells > MAX_CELLS)
		return NULL;
	pthread_mutex_lock(&handles.lock);
	handle = handles.free[cells];
	if (handle)
		handles.free[cells] = *next_free(handle);
	else
		handle = carve(cells);
	if (handle) {
		memset((char *)handle + sizeof(*handle), 0, cells * (size_t)CELL - sizeof(*handle));
		handle->cells = cells;
		handle->id = ++handles.next_id;
		__atomic_store_n(&handle->type, type, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&handles.lock);
	return handle;
}

void sim_delete(void *object)
{
	struct sim_handle *handle = object;

	if (!handle)
		return;
	pthread_mutex_lock(&handles.lock);
	__atomic_store_n(&handle->type, SIM_FREE, __ATOMIC_RELEASE);
	*next_free(handle) = handles.free[handle->cells];
	handles.free[handle->cells] = handle;
	pthread_mutex_unlock(&handles.lock);
}

bool sim_is(const void *handle, enum sim_type type)
{
	uintptr_t address = (uintptr_t)handle;
	unsigned count = __atomic_load_n(&handles.count, __ATOMIC_ACQUIRE);

	if (address % CELL != 0)
		return false;
	for (unsigned i = 0; i < count; i++) {
		if (address - (uintptr_t)handles.piece[i] < PIECE)
			return __atomic_load_n(&((const struct sim_handle *)handle)->type, __ATOMIC_ACQUIRE) == type;
	}
	return false;
}
