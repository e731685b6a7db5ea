/* SPDX-License-Identifier: Apache-2.0
 *
 * cuMemcpy2D* and cuMemcpy3D*.
 */
#include "copy.h"

static CUresult copy_2d(const CUDA_MEMCPY2D *p, CUstream stream, unsigned how)
{
	SIM_ENTER();
	SIM_INVALID_IF(!p);
	const CUDA_MEMCPY3D params = {
		.srcXInBytes = p->srcXInBytes, .srcY = p->srcY, .srcMemoryType = p->srcMemoryType, .srcHost = p->srcHost,
		.srcDevice = p->srcDevice, .srcArray = p->srcArray, .srcPitch = p->srcPitch,
		.dstXInBytes = p->dstXInBytes, .dstY = p->dstY, .dstMemoryType = p->dstMemoryType, .dstHost = p->dstHost,
		.dstDevice = p->dstDevice, .dstArray = p->dstArray, .dstPitch = p->dstPitch,
		.WidthInBytes = p->WidthInBytes, .Height = p->Height, .Depth = 1,
	};
	return copy_run(&params, stream, how);
}

static CUresult copy_3d(const CUDA_MEMCPY3D *p, CUstream stream, unsigned how)
{
	SIM_ENTER();
	SIM_INVALID_IF(!p);
	return copy_run(p, stream, how);
}

static CUresult copy_3d_peer(const CUDA_MEMCPY3D_PEER *p, CUstream stream, unsigned how)
{
	SIM_ENTER();
	SIM_INVALID_IF(!p);
	if (!sim_is(p->dstContext, SIM_CONTEXT) || !sim_is(p->srcContext, SIM_CONTEXT))
		return CUDA_ERROR_INVALID_CONTEXT;
	const CUDA_MEMCPY3D params = {
		.srcXInBytes = p->srcXInBytes, .srcY = p->srcY, .srcZ = p->srcZ, .srcLOD = p->srcLOD, .srcMemoryType = p->srcMemoryType,
		.srcHost = p->srcHost, .srcDevice = p->srcDevice, .srcArray = p->srcArray, .srcPitch = p->srcPitch,
		.srcHeight = p->srcHeight,
		.dstXInBytes = p->dstXInBytes, .dstY = p->dstY, .dstZ = p->dstZ, .dstLOD = p->dstLOD, .dstMemoryType = p->dstMemoryType,
		.dstHost = p->dstHost, .dstDevice = p->dstDevice, .dstArray = p->dstArray, .dstPitch = p->dstPitch,
		.dstHeight = p->dstHeight,
		.WidthInBytes = p->WidthInBytes, .Height = p->Height, .Depth = p->Depth,
	};
	return copy_run(&params, stream, how);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *pCopy)
{
	return copy_2d(pCopy, NULL, LEGACY);
}

CUresult cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D *pCopy)
{
	return copy_2d(pCopy, NULL, PER_THREAD);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *pCopy)
{
	return copy_2d(pCopy, NULL, LEGACY);
}

CUresult cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D *pCopy)
{
	return copy_2d(pCopy, NULL, PER_THREAD);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *pCopy, CUstream hStream)
{
	return copy_2d(pCopy, hStream, LEGACY | COPY_ASYNC);
}

CUresult cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D *pCopy, CUstream hStream)
{
	return copy_2d(pCopy, hStream, PER_THREAD | COPY_ASYNC);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *pCopy)
{
	return copy_3d(pCopy, NULL, LEGACY);
}

CUresult cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D *pCopy)
{
	return copy_3d(pCopy, NULL, PER_THREAD);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
	return copy_3d(pCopy, hStream, LEGACY | COPY_ASYNC);
}

CUresult cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
	return copy_3d(pCopy, hStream, PER_THREAD | COPY_ASYNC);
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *pCopy)
{
	return copy_3d_peer(pCopy, NULL, LEGACY);
}

CUresult cuMemcpy3DPeer_ptds(const CUDA_MEMCPY3D_PEER *pCopy)
{
	return copy_3d_peer(pCopy, NULL, PER_THREAD);
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream)
{
	return copy_3d_peer(pCopy, hStream, LEGACY | COPY_ASYNC);
}

CUresult cuMemcpy3DPeerAsync_ptsz(const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream)
{
	return copy_3d_peer(pCopy, hStream, PER_THREAD | COPY_ASYNC);
}
