/* SPDX-License-Identifier: Apache-2.0
 *
 * Pools of other processes. The pool travels as a descriptor; an allocation as 64 bytes that name
 * the object that its segment's frames are, and where it is in there. An
 * imported pool has a segment for each segment of which it has imported something.
 */
#include <stdlib.h>
#include <string.h>

#include "pool.h"

#define POINTER_MAGIC 0x31524f464c4f4f50ull /* "POOLFOR1" */

struct pointer_data {
	uint64_t magic;
	uint64_t pool; /* id of the pool's object */
	struct card_reference frames;
	uint64_t offset;
	uint64_t size;
	uint64_t reserved;
};

_Static_assert(sizeof(struct pointer_data) <= sizeof(CUmemPoolPtrExportData), "a pointer's data has 64 bytes");

static CUresult make_object(struct CUmemPoolHandle_st *pool)
{
	struct sim_device *device = pool->device;
	const uint64_t info[5] = {pool->properties.maxSize};
	int made;

	if (pool->object.id)
		return CUDA_SUCCESS;
	SIM_TRY(sim_device_use(device));
	pthread_mutex_lock(&device->frames);
	made = card_object_make(&device->card, CARD_OBJECT_POOL, NULL, 0, info, &pool->object);
	pthread_mutex_unlock(&device->frames);
	return made == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult export_pool(struct CUmemPoolHandle_st *pool, int *fd)
{
	SIM_INVALID_IF(pool->imported || !(pool->properties.handleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	SIM_TRY(make_object(pool));
	*fd = card_object_export(&pool->device->card, pool->object);
	return *fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool, CUmemAllocationHandleType handleType, unsigned long long flags)
{
	CUresult result;

	SIM_ENTER();
	SIM_INVALID_IF(!handle_out || flags != 0);
	if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&sim_memory_lock);
	result = sim_pool_check(pool);
	if (result == CUDA_SUCCESS)
		result = export_pool(pool, handle_out);
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

static CUresult import_pool(struct sim_device *device, struct card_reference reference, struct CUmemPoolHandle_st **pool)
{
	CUmemPoolProps properties = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal},
	};
	struct card_object object;
	int held;

	SIM_TRY(sim_device_use(device));
	SIM_INVALID_IF(card_object_look(&device->card, reference, &object) != 0 || object.kind != CARD_OBJECT_POOL);
	SIM_TRY(sim_pool_make(device, &properties, pool));
	(*pool)->imported = true;
	pthread_mutex_lock(&device->frames);
	held = card_object_hold(&device->card, reference, NULL);
	pthread_mutex_unlock(&device->frames);
	if (held != 0) {
		(*pool)->destroyed = true;
		sim_pool_end_if_idle(*pool);
		return CUDA_ERROR_INVALID_VALUE;
	}
	(*pool)->object = reference;
	return CUDA_SUCCESS;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle, CUmemAllocationHandleType handleType, unsigned long long flags)
{
	struct card_reference reference;
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	SIM_ENTER();
	SIM_INVALID_IF(!pool_out || flags != 0);
	if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&sim_memory_lock);
	for (int i = 0; i < sim_device_count(); i++) {
		if (card_object_import(&sim_device(i)->card, (int)(intptr_t)handle, &reference) != 0)
			continue;
		result = import_pool(sim_device(i), reference, pool_out);
		break;
	}
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

static CUresult export_pointer(struct pointer_data *data, CUdeviceptr address)
{
	struct sim_range *range = sim_range_at(address);
	struct pool_segment *segment;
	struct pool_piece *piece;

	SIM_INVALID_IF(!range || range->type != SIM_RANGE_POOL);
	segment = range->owner;
	piece = sim_pool_piece(range, address);
	SIM_INVALID_IF(!piece || segment->imported.id || !(segment->pool->properties.handleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	SIM_TRY(make_object(segment->pool));
	SIM_TRY(sim_block_share(range->block, CARD_OBJECT_POOL_FRAMES, (uint64_t[5]){0}));
	*data = (struct pointer_data){
		.magic = POINTER_MAGIC,
		.pool = segment->pool->object.id,
		.frames = range->block->object,
		.offset = piece->offset,
		.size = piece->requested,
	};
	return CUDA_SUCCESS;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr)
{
	struct pointer_data data;
	CUresult result;

	SIM_ENTER();
	SIM_INVALID_IF(!shareData_out);
	pthread_mutex_lock(&sim_memory_lock);
	result = export_pointer(&data, ptr);
	pthread_mutex_unlock(&sim_memory_lock);
	if (result != CUDA_SUCCESS)
		return result;
	memset(shareData_out, 0, sizeof(*shareData_out));
	memcpy(shareData_out, &data, sizeof(data));
	return CUDA_SUCCESS;
}

static CUresult new_segment(struct CUmemPoolHandle_st *pool, struct card_reference frames, struct pool_segment **result)
{
	struct pool_segment *segment;
	struct card_object object;
	CUresult outcome;

	SIM_INVALID_IF(card_object_look(&pool->device->card, frames, &object) != 0 || object.kind != CARD_OBJECT_POOL_FRAMES);
	segment = calloc(1, sizeof(*segment));
	if (!segment)
		return CUDA_ERROR_OUT_OF_MEMORY;
	outcome = sim_block_open(pool->device, frames, object.frames, true, &segment->range.block);
	if (outcome != CUDA_SUCCESS) {
		free(segment);
		return outcome;
	}
	segment->pool = pool;
	segment->imported = frames;
	segment->range.type = SIM_RANGE_POOL;
	segment->range.base = segment->range.block->address;
	segment->range.size = segment->range.span = object.frames * SIM_FRAME;
	segment->range.device = pool->device;
	segment->range.owner = segment;
	sim_list_add(&pool->segments, &segment->link);
	outcome = sim_range_add(&segment->range);
	if (outcome != CUDA_SUCCESS) {
		sim_list_remove(&segment->link);
		sim_block_free(segment->range.block);
		free(segment);
		return outcome;
	}
	*result = segment;
	return CUDA_SUCCESS;
}

static struct pool_segment *find_segment(struct CUmemPoolHandle_st *pool, struct card_reference frames)
{
	for (struct sim_link *link = pool->segments.next; link != &pool->segments; link = link->next) {
		struct pool_segment *segment = SIM_OF(link, struct pool_segment, link);

		if (segment->imported.id == frames.id)
			return segment;
	}
	return NULL;
}

static bool lies_in(const struct pointer_data *data, const struct pool_segment *segment)
{
	return data->size > 0 && data->offset % SIM_POOL_UNIT == 0 && data->size <= segment->range.size &&
	       data->offset <= segment->range.size - data->size;
}

static CUresult import_pointer(struct CUmemPoolHandle_st *pool, const struct pointer_data *data, CUdeviceptr *address)
{
	struct pool_segment *segment;
	struct pool_piece *piece;

	SIM_INVALID_IF(!pool->imported || data->magic != POINTER_MAGIC || data->pool != pool->object.id);
	segment = find_segment(pool, data->frames);
	if (!segment)
		SIM_TRY(new_segment(pool, data->frames, &segment));
	piece = lies_in(data, segment) ? calloc(1, sizeof(*piece)) : NULL;
	if (!piece) {
		if (!segment->first)
			sim_pool_delete_segment(segment);
		return CUDA_ERROR_INVALID_VALUE;
	}
	piece->segment = segment;
	piece->offset = data->offset;
	piece->size = sim_round_up(data->size, SIM_POOL_UNIT);
	piece->requested = data->size;
	piece->used = true;
	piece->next = segment->first;
	if (piece->next)
		piece->next->previous = piece;
	segment->first = piece;
	sim_pool_hash(piece);
	pool->used += piece->size;
	*address = segment->range.base + piece->offset;
	return CUDA_SUCCESS;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool pool, CUmemPoolPtrExportData *shareData)
{
	struct pointer_data data;
	CUresult result;

	SIM_ENTER();
	SIM_INVALID_IF(!ptr_out || !shareData);
	memcpy(&data, shareData, sizeof(data));
	pthread_mutex_lock(&sim_memory_lock);
	result = sim_pool_check(pool);
	if (result == CUDA_SUCCESS)
		result = import_pointer(pool, &data, ptr_out);
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}
