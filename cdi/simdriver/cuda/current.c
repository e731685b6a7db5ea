/* SPDX-License-Identifier: Apache-2.0
 *
 * The stack of contexts that each thread has.
 */
#include "context.h"

#define DEPTH 64

/* The id tells a destroyed context from another one at the same address. */
struct entry {
	struct CUctx_st *context;
	uint64_t id;
};

static _Thread_local struct {
	unsigned depth;
	struct entry entry[DEPTH];
} stack;

static bool alive(const struct entry *entry)
{
	return sim_is(entry->context, SIM_CONTEXT) && entry->context->handle.id == entry->id &&
	       !__atomic_load_n(&entry->context->dead, __ATOMIC_ACQUIRE);
}

CUresult sim_current(struct CUctx_st **context)
{
	const struct entry *top;

	if (stack.depth == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	top = &stack.entry[stack.depth - 1];
	if (!SIM_LIKELY(alive(top)))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*context = top->context;
	return CUDA_SUCCESS;
}

CUresult sim_context_check(CUcontext context)
{
	if (!sim_is(context, SIM_CONTEXT))
		return CUDA_ERROR_INVALID_CONTEXT;
	return __atomic_load_n(&context->dead, __ATOMIC_ACQUIRE) ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

CUresult sim_push(struct CUctx_st *context)
{
	if (stack.depth == DEPTH)
		return CUDA_ERROR_INVALID_VALUE;
	stack.entry[stack.depth++] = (struct entry){context, context->handle.id};
	return CUDA_SUCCESS;
}

void sim_pop_if_current(struct CUctx_st *context)
{
	if (stack.depth > 0 && stack.entry[stack.depth - 1].context == context)
		stack.depth--;
}

static CUresult push_current(CUcontext ctx)
{
	SIM_ENTER();
	SIM_TRY(sim_context_check(ctx));
	return sim_push(ctx);
}

static CUresult pop_current(CUcontext *pctx)
{
	SIM_ENTER();
	if (stack.depth == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	stack.depth--;
	if (pctx)
		*pctx = stack.entry[stack.depth].context;
	return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext ctx)
{
	return push_current(ctx);
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
	return push_current(ctx);
}

CUresult cuCtxPopCurrent(CUcontext *pctx)
{
	return pop_current(pctx);
}

CUresult cuCtxPopCurrent_v2(CUcontext *pctx)
{
	return pop_current(pctx);
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
	SIM_ENTER();
	if (ctx)
		SIM_TRY(sim_context_check(ctx));
	if (stack.depth > 0)
		stack.depth--;
	return ctx ? sim_push(ctx) : CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *pctx)
{
	SIM_ENTER();
	SIM_INVALID_IF(!pctx);
	*pctx = stack.depth > 0 ? stack.entry[stack.depth - 1].context : NULL;
	return CUDA_SUCCESS;
}
