/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of the host that the driver knows: allocated by it, or registered. It
 * takes nothing of a card.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "linear.h"

#define ALLOC_FLAGS (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED)
#define REGISTER_FLAGS (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY)

static uint64_t page_size(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Whether the driver allocated it; otherwise the program registered it. */
static bool is_ours(const struct sim_range *range)
{
	return range->owner != NULL;
}

static CUresult add(struct CUctx_st *context, CUdeviceptr base, uint64_t size, uint64_t span, unsigned flags, bool ours)
{
	struct sim_range *range = calloc(1, sizeof(*range));
	CUresult result;

	if (!range)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*range = (struct sim_range){
		.type = SIM_RANGE_HOST,
		.base = base,
		.size = size,
		.span = span,
		.device = context->device,
		.context = context,
		.flags = flags,
		.owner = ours ? range : NULL,
	};
	pthread_mutex_lock(&sim_memory_lock);
	/* Memory of a card is not to be registered either. */
	if (sim_host_overlap(base, span) || sim_range_at(base))
		result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	else
		result = sim_host_add(range);
	pthread_mutex_unlock(&sim_memory_lock);
	if (result != CUDA_SUCCESS)
		free(range);
	return result;
}

static CUresult alloc(struct CUctx_st *context, void **pp, uint64_t bytes, unsigned flags)
{
	uint64_t span = sim_round_up(bytes, page_size());
	void *memory;
	CUresult result;

	if (span < bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	SIM_TRY(engine_may_block(context));
	memory = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = add(context, (uintptr_t)memory, bytes, span, flags, true);
	if (result != CUDA_SUCCESS)
		munmap(memory, span);
	else
		*pp = memory;
	return result;
}

CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
	SIM_CONTEXT_ENTER(context);
	SIM_INVALID_IF(!pp || bytesize == 0 || (Flags & ~(unsigned)ALLOC_FLAGS));
	return alloc(context, pp, bytesize, Flags);
}

CUresult cuMemAllocHost_v2(void **pp, size_t bytesize)
{
	return cuMemHostAlloc(pp, bytesize, 0);
}

CUresult cuMemAllocHost(void **pp, unsigned int bytesize)
{
	return cuMemHostAlloc(pp, bytesize, 0);
}

void sim_host_free(struct sim_range *range)
{
	sim_host_remove(range);
	if (is_ours(range))
		munmap((void *)(uintptr_t)range->base, range->span);
	free(range);
}

/* Takes away what begins at p, after the work that may use it. */
static CUresult take_away(void *p, bool ours, CUresult unknown)
{
	struct sim_range *range;
	CUresult result = CUDA_SUCCESS;

	SIM_CONTEXT_ENTER(context);
	SIM_INVALID_IF(!p);
	SIM_TRY(engine_may_block(context));
	for (int i = 0; i < sim_device_count(); i++)
		SIM_TRY(engine_device_wait(sim_device(i)));
	pthread_mutex_lock(&sim_memory_lock);
	range = sim_host_at((uintptr_t)p);
	if (!range || range->base != (uintptr_t)p || is_ours(range) != ours)
		result = unknown;
	else
		sim_host_free(range);
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

CUresult cuMemFreeHost(void *p)
{
	return take_away(p, true, CUDA_ERROR_INVALID_VALUE);
}

CUresult cuMemHostUnregister(void *p)
{
	return take_away(p, false, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

/* Whether all of the pages of a range are mapped. */
static bool is_mapped(CUdeviceptr base, uint64_t bytes)
{
	uint64_t page = page_size();
	unsigned char states[4096];

	for (CUdeviceptr at = base / page * page; at < base + bytes; at += sizeof(states) * page) {
		uint64_t left = base + bytes - at;

		if (mincore((void *)(uintptr_t)at, left < sizeof(states) * page ? left : sizeof(states) * page, states) != 0)
			return false;
	}
	return true;
}

static CUresult do_register(void *p, uint64_t bytes, unsigned flags)
{
	CUdeviceptr base = (uintptr_t)p;

	SIM_CONTEXT_ENTER(context);
	SIM_INVALID_IF(!p || bytes == 0 || base + bytes < base);
	if (flags & CU_MEMHOSTREGISTER_IOMEMORY)
		return CUDA_ERROR_NOT_SUPPORTED;
	SIM_INVALID_IF(flags & ~(unsigned)REGISTER_FLAGS);
	SIM_INVALID_IF(!is_mapped(base, bytes));
	return add(context, base, bytes, bytes, flags, false);
}

CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
	return do_register(p, bytesize, Flags);
}

CUresult cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags)
{
	return do_register(p, bytesize, Flags);
}

static CUresult look_up(void *p, struct sim_range *copy)
{
	const struct sim_range *range;

	pthread_mutex_lock(&sim_memory_lock);
	range = sim_host_at((uintptr_t)p);
	if (range)
		*copy = *range;
	pthread_mutex_unlock(&sim_memory_lock);
	return range ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* There is one address space: the device's address is the host's. */
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
	struct sim_range range;

	SIM_CONTEXT_ENTER(context);
	(void)context;
	SIM_INVALID_IF(!pdptr || Flags != 0);
	SIM_TRY(look_up(p, &range));
	*pdptr = (uintptr_t)p;
	return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
	struct sim_range range;

	SIM_CONTEXT_ENTER(context);
	(void)context;
	SIM_INVALID_IF(!pFlags);
	SIM_TRY(look_up(p, &range));
	SIM_INVALID_IF(!is_ours(&range));
	*pFlags = range.flags;
	return CUDA_SUCCESS;
}
