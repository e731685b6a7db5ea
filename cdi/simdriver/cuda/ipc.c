/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear memory of another process, by a handle of 64 bytes. What is opened are the
 * whole frames that the allocation is in.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory.h"

#define IPC_MAGIC 0x31304349504d4953ull /* "SIMPIC01" */

struct ipc_handle {
	uint64_t magic;
	char card[24]; /* the last characters of the card's UUID */
	struct card_reference object;
	uint64_t offset; /* of the allocation in the object */
	uint64_t slot;   /* of the process that made the handle */
};

_Static_assert(sizeof(struct ipc_handle) == sizeof(CUipcMemHandle), "a handle has 64 bytes");

/* One opened object. */
struct opened {
	struct sim_range range;
	unsigned count;
};

static void end_of_uuid(const struct sim_device *device, char card[24])
{
	size_t length = strlen(device->card.page->uuid);

	memset(card, 0, 24);
	memcpy(card, device->card.page->uuid + (length > 24 ? length - 24 : 0), length > 24 ? 24 : length);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
	struct ipc_handle handle = {.magic = IPC_MAGIC};
	struct sim_found found;
	CUresult result;

	SIM_CONTEXT_ENTER(context);
	(void)context;
	SIM_INVALID_IF(!pHandle);
	pthread_mutex_lock(&sim_memory_lock);
	result = sim_find(dptr, &found);
	if (result == CUDA_SUCCESS &&
	    (found.range->managed || (found.range->type != SIM_RANGE_SLAB && found.range->type != SIM_RANGE_LINEAR)))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = sim_block_share(found.range->block, CARD_OBJECT_IPC, (uint64_t[5]){0});
	if (result == CUDA_SUCCESS) {
		end_of_uuid(found.device, handle.card);
		handle.object = found.range->block->object;
		handle.offset = found.base - found.range->base;
		handle.slot = (uint64_t)found.device->card.slot;
		memcpy(pHandle, &handle, sizeof(handle));
	}
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

static struct sim_device *device_of(const struct ipc_handle *handle)
{
	for (int i = 0; i < sim_device_count(); i++) {
		char card[24];

		end_of_uuid(sim_device(i), card);
		if (memcmp(card, handle->card, sizeof(card)) == 0)
			return sim_device(i);
	}
	return NULL;
}

/* What the context has opened of an object already, or NULL. */
static struct opened *find_opened(struct CUctx_st *context, struct card_reference object)
{
	struct sim_link *list = &context->memory->ranges;

	for (struct sim_link *link = list->next; link != list; link = link->next) {
		struct sim_range *range = SIM_OF(link, struct sim_range, in_context);

		if (range->type == SIM_RANGE_IPC && range->block->object.id == object.id)
			return range->owner;
	}
	return NULL;
}

static CUresult open_object(struct CUctx_st *context, struct sim_device *device, struct card_reference reference, struct opened **result)
{
	struct card_object object;
	struct opened *opened;
	CUresult outcome;

	if (card_object_look(&device->card, reference, &object) != 0 || object.kind != CARD_OBJECT_IPC)
		return CUDA_ERROR_INVALID_HANDLE;
	opened = calloc(1, sizeof(*opened));
	if (!opened)
		return CUDA_ERROR_OUT_OF_MEMORY;
	outcome = sim_block_open(device, reference, object.frames, true, &opened->range.block);
	if (outcome == CUDA_SUCCESS) {
		opened->range.type = SIM_RANGE_IPC;
		opened->range.base = opened->range.block->address;
		opened->range.size = opened->range.span = object.frames * SIM_FRAME;
		opened->range.device = device;
		opened->range.context = context;
		opened->range.owner = opened;
		outcome = sim_range_add(&opened->range);
		if (outcome != CUDA_SUCCESS)
			sim_block_free(opened->range.block);
	}
	if (outcome != CUDA_SUCCESS) {
		free(opened);
		return outcome == CUDA_ERROR_INVALID_VALUE ? CUDA_ERROR_INVALID_HANDLE : outcome;
	}
	*result = opened;
	return CUDA_SUCCESS;
}

static CUresult open_handle(CUdeviceptr *address, CUipcMemHandle given, unsigned flags)
{
	struct ipc_handle handle;
	struct sim_device *device;
	struct opened *opened;
	CUresult result = CUDA_SUCCESS;

	SIM_CONTEXT_ENTER(context);
	SIM_INVALID_IF(!address || (flags & ~(unsigned)CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	memcpy(&handle, &given, sizeof(handle));
	if (handle.magic != IPC_MAGIC)
		return CUDA_ERROR_INVALID_HANDLE;
	device = device_of(&handle);
	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	SIM_TRY(sim_device_use(device));
	/* Not in the process that made it. */
	if (handle.slot == (uint64_t)device->card.slot)
		return CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_lock(&sim_memory_lock);
	opened = find_opened(context, handle.object);
	if (!opened)
		result = open_object(context, device, handle.object, &opened);
	if (result == CUDA_SUCCESS && handle.offset >= opened->range.size)
		result = CUDA_ERROR_INVALID_HANDLE;
	if (result == CUDA_SUCCESS) {
		opened->count++;
		*address = opened->range.base + handle.offset;
	} else if (opened && opened->count == 0) {
		sim_range_free(&opened->range);
	}
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	return open_handle(pdptr, handle, Flags);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	return open_handle(pdptr, handle, Flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
	struct sim_range *range;
	struct opened *opened;

	SIM_CONTEXT_ENTER(context);
	SIM_TRY(engine_may_block(context));
	for (int i = 0; i < sim_device_count(); i++)
		SIM_TRY(engine_device_wait(sim_device(i)));
	pthread_mutex_lock(&sim_memory_lock);
	range = sim_range_at(dptr);
	if (range && range->type == SIM_RANGE_IPC) {
		opened = range->owner;
		if (--opened->count == 0)
			sim_range_free(range);
	} else {
		range = NULL;
	}
	pthread_mutex_unlock(&sim_memory_lock);
	return range ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
