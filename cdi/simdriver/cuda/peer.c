/* SPDX-License-Identifier: Apache-2.0
 *
 * Access to memory of another device's context. There is one address space and all of
 * it can be reached, so this only remembers what was enabled.
 */
#include "context.h"

static CUresult check(struct CUctx_st *context, CUcontext peer)
{
	SIM_TRY(sim_context_check(peer));
	if (peer == context)
		return CUDA_ERROR_INVALID_CONTEXT;
	return peer->device == context->device ? CUDA_ERROR_PEER_ACCESS_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
	bool *peer;
	bool before;

	SIM_CONTEXT_ENTER(context);
	SIM_INVALID_IF(Flags != 0);
	SIM_TRY(check(context, peerContext));
	peer = &context->peer[peerContext->device->ordinal];
	before = __atomic_exchange_n(peer, true, __ATOMIC_SEQ_CST);
	return before ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext)
{
	bool before;

	SIM_CONTEXT_ENTER(context);
	SIM_TRY(check(context, peerContext));
	before = __atomic_exchange_n(&context->peer[peerContext->device->ordinal], false, __ATOMIC_SEQ_CST);
	return before ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
