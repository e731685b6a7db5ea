/* SPDX-License-Identifier: Apache-2.0
 *
 * Making and ending contexts, and what one can be asked.
 */
#include <stdlib.h>

#include "context.h"

/* What cuCtxGetApiVersion answers. */
enum {
	API_1 = 1020,
	API_2 = 3020,
	API_4 = 12050,
};

CUresult sim_context_flags_check(unsigned flags)
{
	unsigned schedule = flags & CU_CTX_SCHED_MASK;

	SIM_INVALID_IF(flags & ~(unsigned)SIM_CONTEXT_FLAGS);
	SIM_INVALID_IF(schedule != CU_CTX_SCHED_AUTO && schedule != CU_CTX_SCHED_SPIN && schedule != CU_CTX_SCHED_YIELD &&
		       schedule != CU_CTX_SCHED_BLOCKING_SYNC);
	return CUDA_SUCCESS;
}

struct sim_link sim_contexts = {&sim_contexts, &sim_contexts};

static struct sim_memory *new_memory(struct CUctx_st *context)
{
	struct sim_memory *memory = calloc(1, sizeof(*memory));

	if (!memory)
		return NULL;
	memory->context = context;
	sim_list_init(&memory->slabs[0]);
	sim_list_init(&memory->slabs[1]);
	sim_list_init(&memory->ranges);
	sim_list_init(&memory->arrays);
	sim_list_init(&memory->mipmaps);
	sim_list_init(&memory->modules);
	sim_list_init(&memory->imports);
	return memory;
}

CUresult sim_context_start(struct CUctx_st *context)
{
	CUresult result;

	context->memory = new_memory(context);
	if (!context->memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	sim_limits_init(context);
	pthread_mutex_lock(&sim_memory_lock);
	sim_list_add(&sim_contexts, &context->memory->link);
	result = sim_block_make(context->device, SIMCARD_CONTEXT, context->device->card.page->context_bytes, false, &context->memory->own);
	pthread_mutex_unlock(&sim_memory_lock);
	if (result == CUDA_SUCCESS)
		result = engine_context_open(context);
	if (result != CUDA_SUCCESS) {
		sim_context_empty(context);
		return result;
	}
	__atomic_fetch_add(&context->device->contexts, 1, __ATOMIC_SEQ_CST);
	__atomic_store_n(&context->dead, false, __ATOMIC_RELEASE);
	return CUDA_SUCCESS;
}

void sim_context_empty(struct CUctx_st *context)
{
	pthread_mutex_lock(&sim_memory_lock);
	sim_context_free_modules(context);
	sim_context_free_arrays(context);
	sim_context_free_ranges(context);
	sim_context_free_imports(context);
	for (size_t i = 0; i < SIM_ARRAY_SIZE(context->memory->limits); i++)
		sim_block_free(context->memory->limits[i]);
	sim_block_free(context->memory->own);
	sim_list_remove(&context->memory->link);
	free(context->memory);
	context->memory = NULL;
	pthread_mutex_unlock(&sim_memory_lock);
}

void sim_context_stop(struct CUctx_st *context)
{
	__atomic_store_n(&context->dead, true, __ATOMIC_RELEASE);
	engine_context_close(context);
	sim_context_empty(context);
	if (__atomic_sub_fetch(&context->device->contexts, 1, __ATOMIC_SEQ_CST) == 0)
		sim_pools_reset(context->device);
}

static CUresult create(CUcontext *pctx, unsigned flags, CUdevice dev, unsigned version)
{
	struct sim_device *device = sim_device(dev);
	struct CUctx_st *context;
	CUresult result;

	SIM_INVALID_IF(!pctx);
	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	SIM_TRY(sim_context_flags_check(flags));
	context = sim_new(SIM_CONTEXT, sizeof(*context));
	if (!context)
		return CUDA_ERROR_OUT_OF_MEMORY;
	context->dead = true;
	context->device = device;
	context->flags = flags;
	context->version = version;
	context->attached = 1;
	result = sim_context_start(context);
	if (result == CUDA_SUCCESS) {
		result = sim_push(context);
		if (result != CUDA_SUCCESS)
			sim_context_stop(context);
	}
	if (result != CUDA_SUCCESS) {
		sim_delete(context);
		return result;
	}
	*pctx = context;
	return CUDA_SUCCESS;
}

CUresult cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	SIM_ENTER();
	return create(pctx, flags, dev, API_1);
}

CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	SIM_ENTER();
	return create(pctx, flags, dev, API_2);
}

CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags, CUdevice dev)
{
	SIM_ENTER();
	SIM_INVALID_IF(numParams < 0 || (numParams > 0 && !paramsArray));
	/* A part of the multiprocessors is for MPS only. */
	if (numParams > 0)
		return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
	return create(pctx, flags, dev, API_2);
}

CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags, CUdevice dev)
{
	SIM_ENTER();
	if (ctxCreateParams) {
		if (ctxCreateParams->numExecAffinityParams > 0)
			return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
		if (ctxCreateParams->cigParams)
			return CUDA_ERROR_NOT_SUPPORTED;
	}
	return create(pctx, flags, dev, API_4);
}

static CUresult destroy(CUcontext ctx)
{
	SIM_ENTER();
	SIM_TRY(sim_context_check(ctx));
	/* The primary context ends by cuDevicePrimaryCtxRelease. */
	if (ctx->primary)
		return CUDA_ERROR_INVALID_CONTEXT;
	sim_context_stop(ctx);
	sim_pop_if_current(ctx);
	sim_delete(ctx);
	return CUDA_SUCCESS;
}

CUresult cuCtxDestroy(CUcontext ctx)
{
	return destroy(ctx);
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	return destroy(ctx);
}

CUresult cuCtxAttach(CUcontext *pctx, unsigned int flags)
{
	SIM_CONTEXT_ENTER(context);
	SIM_INVALID_IF(!pctx || flags != 0);
	if (context->primary)
		return CUDA_ERROR_NOT_SUPPORTED;
	__atomic_fetch_add(&context->attached, 1, __ATOMIC_SEQ_CST);
	*pctx = context;
	return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext ctx)
{
	SIM_ENTER();
	SIM_TRY(sim_context_check(ctx));
	if (ctx->primary)
		return CUDA_ERROR_NOT_SUPPORTED;
	return __atomic_sub_fetch(&ctx->attached, 1, __ATOMIC_SEQ_CST) == 0 ? destroy(ctx) : CUDA_SUCCESS;
}

/* The context that is given, or the current one. */
static CUresult given_or_current(CUcontext given, struct CUctx_st **context)
{
	SIM_ENTER();
	if (!given)
		return sim_current(context);
	SIM_TRY(sim_context_check(given));
	*context = given;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
	struct CUctx_st *context;

	SIM_TRY(given_or_current(ctx, &context));
	SIM_INVALID_IF(!version);
	*version = context->version;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *ctxId)
{
	struct CUctx_st *context;

	SIM_TRY(given_or_current(ctx, &context));
	SIM_INVALID_IF(!ctxId);
	*ctxId = context->handle.id;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
	SIM_CONTEXT_ENTER(context);
	SIM_INVALID_IF(!device);
	*device = context->device->ordinal;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
	struct CUctx_st *context;

	SIM_TRY(given_or_current(ctx, &context));
	SIM_INVALID_IF(!device);
	*device = context->device->ordinal;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int *flags)
{
	SIM_CONTEXT_ENTER(context);
	SIM_INVALID_IF(!flags);
	*flags = __atomic_load_n(&context->flags, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags)
{
	SIM_CONTEXT_ENTER(context);
	SIM_TRY(sim_context_flags_check(flags));
	__atomic_store_n(&context->flags, flags, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam *pExecAffinity, CUexecAffinityType type)
{
	SIM_CONTEXT_ENTER(context);
	SIM_INVALID_IF(!pExecAffinity);
	if (type != CU_EXEC_AFFINITY_TYPE_SM_COUNT)
		return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
	pExecAffinity->type = type;
	pExecAffinity->param.smCount.val = context->device->card.page->multiprocessors;
	return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize_v2(CUcontext ctx)
{
	struct CUctx_st *context;

	SIM_TRY(given_or_current(ctx, &context));
	SIM_TRY(engine_may_block(context));
	return engine_context_wait(context);
}
