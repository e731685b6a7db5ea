/* SPDX-License-Identifier: Apache-2.0 */
#include "capture.h"

CUresult capture_node(struct CUstream_st *stream, CUgraphNodeParams *params, CUgraphNode *node)
{
	(void)stream, (void)params, (void)node;
	return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult capture_record(struct CUstream_st *stream, CUevent event, unsigned flags)
{
	(void)stream, (void)event, (void)flags;
	return CUDA_ERROR_NOT_SUPPORTED;
}
bool capture_owns(CUevent event)
{
	(void)event;
	return false;
}
CUresult capture_wait(struct CUstream_st *stream, CUevent event, unsigned flags)
{
	(void)stream, (void)event, (void)flags;
	return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult capture_forbids(struct CUstream_st *stream)
{
	(void)stream;
	return CUDA_SUCCESS;
}
CUresult capture_implicit(struct CUctx_st *context)
{
	(void)context;
	return CUDA_SUCCESS;
}
void capture_abandon(struct CUstream_st *stream)
{
	(void)stream;
}
void event_capture_clear(struct event_capture *captured)
{
	(void)captured;
}
CUresult engine_may_block(struct CUctx_st *context)
{
	(void)context;
	return CUDA_SUCCESS;
}
CUresult capture_memory_alloc(struct CUstream_st *stream, const CUmemPoolProps *properties, size_t bytes, CUdeviceptr *address)
{
	(void)stream, (void)properties, (void)bytes, (void)address;
	return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult capture_memory_free(struct CUstream_st *stream, CUdeviceptr address)
{
	(void)stream, (void)address;
	return CUDA_ERROR_NOT_SUPPORTED;
}
