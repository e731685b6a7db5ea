/* SPDX-License-Identifier: Apache-2.0
 *
 * External memory: a descriptor of an exported allocation, or of the host's
 * memory (memfd_create), mapped as buffers. It costs nothing again.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "files.h"
#include "vmm.h"

struct CUextMemory_st {
	struct sim_handle handle;
	struct CUctx_st *context;
	uint64_t size;
	struct sim_allocation *allocation; /* of a card, or NULL */
	int fd;                            /* of the host's memory, or -1 */
	struct sim_link link;              /* among the context's */
};

struct buffer {
	struct sim_range range;
	struct sim_allocation *allocation;
	uint64_t frames;
	CUdeviceptr start; /* of the first frame */
};

/* Whether the descriptor's memory is as large as it is said to be. */
static CUresult adopt(struct CUextMemory_st *memory, int fd)
{
	uint64_t size;

	memory->fd = -1;
	if (sim_is_memfd(fd, NULL, &size)) {
		SIM_INVALID_IF(memory->size > size);
		memory->fd = fd;
		return CUDA_SUCCESS;
	}
	SIM_TRY(sim_allocation_import(fd, &memory->allocation));
	if (memory->size > memory->allocation->size) {
		sim_allocation_end_if_unused(memory->allocation);
		return CUDA_ERROR_INVALID_VALUE;
	}
	memory->allocation->uses++;
	return CUDA_SUCCESS;
}

CUresult cuImportExternalMemory(CUexternalMemory *extMem_out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *memHandleDesc)
{
	struct CUextMemory_st *memory;
	CUresult result;

	SIM_CONTEXT_ENTER(context);
	SIM_INVALID_IF(!extMem_out || !memHandleDesc || memHandleDesc->size == 0);
	SIM_INVALID_IF(memHandleDesc->flags & ~(unsigned)CUDA_EXTERNAL_MEMORY_DEDICATED);
	if (memHandleDesc->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD)
		return CUDA_ERROR_NOT_SUPPORTED;
	memory = sim_new(SIM_EXTERNAL_MEMORY, sizeof(*memory));
	if (!memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memory->context = context;
	memory->size = memHandleDesc->size;
	pthread_mutex_lock(&sim_memory_lock);
	result = adopt(memory, memHandleDesc->handle.fd);
	if (result == CUDA_SUCCESS) {
		/* The descriptor is the driver's now. */
		if (memory->allocation)
			close(memHandleDesc->handle.fd);
		sim_list_add(&context->memory->imports, &memory->link);
		*extMem_out = memory;
	} else {
		sim_delete(memory);
	}
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

static void delete_memory(struct CUextMemory_st *memory)
{
	sim_list_remove(&memory->link);
	if (memory->fd >= 0)
		close(memory->fd);
	if (memory->allocation) {
		memory->allocation->uses--;
		sim_allocation_end_if_unused(memory->allocation);
	}
	sim_delete(memory);
}

/* Buffers stay until they are freed. */
CUresult cuDestroyExternalMemory(CUexternalMemory extMem)
{
	SIM_ENTER();
	if (!sim_is(extMem, SIM_EXTERNAL_MEMORY))
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&sim_memory_lock);
	delete_memory(extMem);
	pthread_mutex_unlock(&sim_memory_lock);
	return CUDA_SUCCESS;
}

void sim_context_free_imports(struct CUctx_st *context)
{
	struct sim_link *list = &context->memory->imports;

	while (list->next != list)
		delete_memory(SIM_OF(list->next, struct CUextMemory_st, link));
}

static CUresult map_host(int fd, uint64_t first, CUdeviceptr address, uint64_t frames)
{
	void *place = (void *)(uintptr_t)address;

	if (mmap(place, frames * SIM_FRAME, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)(first * SIM_FRAME)) == MAP_FAILED)
		return CUDA_ERROR_MAP_FAILED;
	return CUDA_SUCCESS;
}

/* Maps the frames that a part of the memory is in. */
static CUresult map_buffer(struct CUextMemory_st *memory, struct buffer *buffer, uint64_t offset, uint64_t size)
{
	uint64_t first = offset / SIM_FRAME;
	CUresult result;

	buffer->frames = (offset + size + SIM_FRAME - 1) / SIM_FRAME - first;
	buffer->start = sim_address_take(buffer->frames);
	if (!buffer->start)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!memory->allocation)
		result = map_host(memory->fd, first, buffer->start, buffer->frames);
	else if (memory->allocation->device)
		result = sim_map(memory->allocation->device, buffer->start, memory->allocation->block->frames + first, buffer->frames,
				 PROT_READ | PROT_WRITE);
	else
		result = map_host(memory->allocation->host_fd, first, buffer->start, buffer->frames);
	if (result == CUDA_SUCCESS) {
		buffer->range.type = SIM_RANGE_EXTERNAL;
		buffer->range.base = buffer->start + offset % SIM_FRAME;
		buffer->range.size = size;
		buffer->range.span = buffer->frames * SIM_FRAME;
		buffer->range.device = memory->allocation ? memory->allocation->device : NULL;
		buffer->range.context = memory->context;
		buffer->range.owner = buffer;
		result = sim_range_add(&buffer->range);
	}
	if (result != CUDA_SUCCESS)
		sim_address_give(buffer->start, buffer->frames);
	return result;
}

CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *devPtr, CUexternalMemory extMem, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *bufferDesc)
{
	struct buffer *buffer;
	CUresult result;

	SIM_ENTER();
	SIM_INVALID_IF(!devPtr || !bufferDesc || bufferDesc->size == 0 || bufferDesc->flags != 0);
	if (!sim_is(extMem, SIM_EXTERNAL_MEMORY))
		return CUDA_ERROR_INVALID_HANDLE;
	SIM_INVALID_IF(bufferDesc->size > extMem->size || bufferDesc->offset > extMem->size - bufferDesc->size);
	buffer = calloc(1, sizeof(*buffer));
	if (!buffer)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&sim_memory_lock);
	result = map_buffer(extMem, buffer, bufferDesc->offset, bufferDesc->size);
	if (result == CUDA_SUCCESS) {
		buffer->allocation = extMem->allocation;
		if (buffer->allocation)
			buffer->allocation->uses++;
		*devPtr = buffer->range.base;
	} else {
		free(buffer);
	}
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

void sim_external_free(struct sim_range *range)
{
	struct buffer *buffer = range->owner;

	sim_address_give(buffer->start, buffer->frames);
	if (buffer->allocation) {
		buffer->allocation->uses--;
		sim_allocation_end_if_unused(buffer->allocation);
	}
	free(buffer);
}
