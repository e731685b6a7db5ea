/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits and preferences of a context. What the defaults need is in what a
 * context costs; the rest is taken from the card when a limit is raised.
 */
#include "context.h"

static const size_t defaults[SIM_LIMITS] = {
	[CU_LIMIT_STACK_SIZE] = 1024,
	[CU_LIMIT_PRINTF_FIFO_SIZE] = 1u << 20,
	[CU_LIMIT_MALLOC_HEAP_SIZE] = 8u << 20,
	[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2,
	[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048,
	[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64,
};

void sim_limits_init(struct CUctx_st *context)
{
	for (size_t i = 0; i < SIM_LIMITS; i++)
		context->limit[i] = defaults[i];
	context->cache = CU_FUNC_CACHE_PREFER_NONE;
	context->banks = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
}

/* What a limit costs beyond the default. Every thread that can be on the card at once has a
 * stack. */
static uint64_t cost(const struct CUctx_st *context, CUlimit limit, uint64_t value)
{
	const struct simcard *page = context->device->card.page;
	uint64_t more = value > defaults[limit] ? value - defaults[limit] : 0;

	if (limit != CU_LIMIT_STACK_SIZE)
		return more;
	return more * page->multiprocessors * page->threads_per_multiprocessor;
}

static CUresult set_costly(struct CUctx_st *context, CUlimit limit, size_t value)
{
	struct sim_block **block = &context->memory->limits[limit];
	uint64_t bytes = cost(context, limit, value);
	uint64_t has = *block ? (*block)->count * SIM_FRAME : 0;
	struct sim_block *bigger = NULL;

	if (sim_round_up(bytes, SIM_FRAME) != has) {
		if (bytes > 0)
			SIM_TRY(sim_block_make(context->device, SIMCARD_CONTEXT, bytes, false, &bigger));
		sim_block_free(*block);
		*block = bigger;
	}
	context->limit[limit] = value;
	return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
	CUresult result = CUDA_SUCCESS;

	SIM_CONTEXT_ENTER(context);
	pthread_mutex_lock(&sim_memory_lock);
	switch (limit) {
	case CU_LIMIT_STACK_SIZE:
		/* At most 512 KiB; threads need it aligned. */
		value = sim_round_up(value, 16);
		result = value > 512u << 10 ? CUDA_ERROR_INVALID_VALUE : set_costly(context, limit, value);
		break;
	case CU_LIMIT_PRINTF_FIFO_SIZE:
	case CU_LIMIT_MALLOC_HEAP_SIZE:
		result = set_costly(context, limit, value);
		break;
	case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
	case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
		context->limit[limit] = value;
		break;
	case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
		context->limit[limit] = value > 128 ? 128 : value;
		break;
	case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
	default:
		result = CUDA_ERROR_UNSUPPORTED_LIMIT;
	}
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

CUresult cuCtxGetLimit(size_t *pvalue, CUlimit limit)
{
	SIM_CONTEXT_ENTER(context);
	SIM_INVALID_IF(!pvalue);
	if ((unsigned)limit > CU_LIMIT_MAX_L2_FETCH_GRANULARITY)
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	pthread_mutex_lock(&sim_memory_lock);
	*pvalue = context->limit[limit];
	pthread_mutex_unlock(&sim_memory_lock);
	return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *pconfig)
{
	SIM_CONTEXT_ENTER(context);
	SIM_INVALID_IF(!pconfig);
	*pconfig = __atomic_load_n(&context->cache, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
	SIM_CONTEXT_ENTER(context);
	SIM_INVALID_IF((unsigned)config > CU_FUNC_CACHE_PREFER_EQUAL);
	__atomic_store_n(&context->cache, config, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *pConfig)
{
	SIM_CONTEXT_ENTER(context);
	SIM_INVALID_IF(!pConfig);
	*pConfig = __atomic_load_n(&context->banks, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

/* Accepted, and without effect on cards that have one kind of banks. */
CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
	SIM_CONTEXT_ENTER(context);
	(void)context;
	SIM_INVALID_IF((unsigned)config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE);
	return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache(void)
{
	SIM_CONTEXT_ENTER(context);
	(void)context;
	return CUDA_ERROR_NOT_SUPPORTED;
}
