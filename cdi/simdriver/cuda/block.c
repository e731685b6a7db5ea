/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks: frames claimed from a card, and mapped.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "memory.h"

pthread_mutex_t sim_memory_lock = PTHREAD_MUTEX_INITIALIZER;

static struct sim_block *new_block(struct sim_device *device, uint64_t count)
{
	struct sim_block *block = malloc(sizeof(*block) + count * sizeof(*block->frames));

	if (!block)
		return NULL;
	*block = (struct sim_block){.device = device, .count = count, .frames = (uint32_t *)(void *)(block + 1)};
	return block;
}

static CUresult map_block(struct sim_block *block)
{
	CUdeviceptr address = sim_address_take(block->count);
	CUresult result;

	if (!address)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = sim_map(block->device, address, block->frames, block->count, PROT_READ | PROT_WRITE);
	if (result == CUDA_SUCCESS)
		block->address = address;
	else
		sim_address_give(address, block->count);
	return result;
}

static void give_back(struct sim_device *device, const uint32_t *frames, uint64_t count)
{
	if (count == 0)
		return;
	pthread_mutex_lock(&device->frames);
	card_release(&device->card, frames, count);
	pthread_mutex_unlock(&device->frames);
}

/* A block of count frames, have of which are there already; on an error they are
 * given back. */
static CUresult make(struct sim_device *device, enum simcard_kind kind, const uint32_t *frames, uint64_t have, uint64_t count, bool mapped,
		     struct sim_block **result)
{
	struct sim_block *block = new_block(device, count);
	CUresult outcome = CUDA_SUCCESS;
	int claimed = 0;

	if (!block) {
		give_back(device, frames, have);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (have)
		memcpy(block->frames, frames, have * sizeof(*frames));
	pthread_mutex_lock(&device->frames);
	if (have < count)
		claimed = card_claim(&device->card, kind, block->frames + have, count - have);
	pthread_mutex_unlock(&device->frames);
	if (claimed != 0) {
		block->count = have;
		outcome = claimed == -EBADF ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_ERROR_OUT_OF_MEMORY;
	} else if (mapped) {
		outcome = map_block(block);
	}
	if (outcome != CUDA_SUCCESS) {
		sim_block_free(block);
		return outcome;
	}
	*result = block;
	return CUDA_SUCCESS;
}

CUresult sim_block_make(struct sim_device *device, enum simcard_kind kind, uint64_t bytes, bool mapped, struct sim_block **result)
{
	uint64_t count = bytes / SIM_FRAME + (bytes % SIM_FRAME != 0);

	SIM_TRY(sim_device_use(device));
	/* No list of frames that no card has. */
	if (count > SIMCARD_MAX_FRAMES)
		count = SIMCARD_MAX_FRAMES + 1;
	return make(device, kind, NULL, 0, count, mapped, result);
}

CUresult sim_block_make_of(struct sim_device *device, enum simcard_kind kind, const uint32_t *frames, uint64_t have, uint64_t count,
			   bool mapped, struct sim_block **result)
{
	SIM_TRY(sim_device_use(device));
	return make(device, kind, frames, have, count, mapped, result);
}

CUresult sim_block_open(struct sim_device *device, struct card_reference object, uint64_t count, bool mapped, struct sim_block **result)
{
	struct sim_block *block;
	CUresult outcome = CUDA_SUCCESS;
	int held;

	SIM_TRY(sim_device_use(device));
	block = new_block(device, count);
	if (!block)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&device->frames);
	held = card_object_hold(&device->card, object, block->frames);
	pthread_mutex_unlock(&device->frames);
	if (held != 0) {
		free(block);
		return CUDA_ERROR_INVALID_VALUE;
	}
	block->object = object;
	if (mapped)
		outcome = map_block(block);
	if (outcome != CUDA_SUCCESS) {
		sim_block_free(block);
		return outcome;
	}
	*result = block;
	return CUDA_SUCCESS;
}

CUresult sim_block_share(struct sim_block *block, enum card_object_kind kind, const uint64_t info[5])
{
	struct sim_device *device = block->device;
	int made;

	if (block->object.id)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&device->frames);
	made = card_object_make(&device->card, kind, block->frames, block->count, info, &block->object);
	pthread_mutex_unlock(&device->frames);
	return made == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void sim_block_free(struct sim_block *block)
{
	struct sim_device *device;

	if (!block)
		return;
	device = block->device;
	if (block->address)
		sim_address_give(block->address, block->count);
	pthread_mutex_lock(&device->frames);
	if (block->object.id)
		card_object_drop(&device->card, block->object);
	else if (block->count)
		card_release(&device->card, block->frames, block->count);
	pthread_mutex_unlock(&device->frames);
	free(block);
}
