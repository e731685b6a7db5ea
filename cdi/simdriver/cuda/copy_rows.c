/* SPDX-License-Identifier: Apache-2.0
 *
 * cuMemcpy*: copies of one row. The forms with 32-bit addresses, which no memory here
 * has, are not supported.
 */
#include "copy.h"

/* One end: where it is, and how far into an array. */
struct place {
	CUmemorytype type;
	uintptr_t address; /* or the array */
	size_t offset;
};

static struct place host(const void *address)
{
	return (struct place){CU_MEMORYTYPE_HOST, (uintptr_t)address, 0};
}

static struct place device(CUdeviceptr address)
{
	return (struct place){CU_MEMORYTYPE_DEVICE, (uintptr_t)address, 0};
}

static struct place unified(CUdeviceptr address)
{
	return (struct place){CU_MEMORYTYPE_UNIFIED, (uintptr_t)address, 0};
}

static struct place array(CUarray handle, size_t offset)
{
	return (struct place){CU_MEMORYTYPE_ARRAY, (uintptr_t)handle, offset};
}

static CUresult copy_row(struct place to, struct place from, size_t bytes, CUstream stream, unsigned how)
{
	CUDA_MEMCPY3D params = {
		.srcMemoryType = from.type, .srcXInBytes = from.offset,
		.dstMemoryType = to.type, .dstXInBytes = to.offset,
		.WidthInBytes = bytes, .Height = 1, .Depth = 1,
	};
	if (from.type == CU_MEMORYTYPE_HOST)
		params.srcHost = (const void *)from.address;
	else if (from.type == CU_MEMORYTYPE_ARRAY)
		params.srcArray = (CUarray)from.address;
	else
		params.srcDevice = from.address;
	if (to.type == CU_MEMORYTYPE_HOST)
		params.dstHost = (void *)to.address;
	else if (to.type == CU_MEMORYTYPE_ARRAY)
		params.dstArray = (CUarray)to.address;
	else
		params.dstDevice = to.address;
	return copy_run(&params, stream, how);
}

/* Contexts of a copy between devices: both have to be alive. */
static CUresult check_peers(CUcontext to, CUcontext from)
{
	SIM_ENTER();
	return sim_is(to, SIM_CONTEXT) && sim_is(from, SIM_CONTEXT) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
	return copy_row(unified(dst), unified(src), ByteCount, NULL, LEGACY);
}

CUresult cuMemcpy_ptds(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
	return copy_row(unified(dst), unified(src), ByteCount, NULL, PER_THREAD);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
	return copy_row(device(dstDevice), host(srcHost), ByteCount, NULL, LEGACY);
}

CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
	return copy_row(device(dstDevice), host(srcHost), ByteCount, NULL, PER_THREAD);
}

CUresult cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
	return copy_row(host(dstHost), device(srcDevice), ByteCount, NULL, LEGACY);
}

CUresult cuMemcpyDtoH_v2_ptds(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
	return copy_row(host(dstHost), device(srcDevice), ByteCount, NULL, PER_THREAD);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
	return copy_row(device(dstDevice), device(srcDevice), ByteCount, NULL, LEGACY);
}

CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
	return copy_row(device(dstDevice), device(srcDevice), ByteCount, NULL, PER_THREAD);
}

CUresult cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount)
{
	return copy_row(array(dstArray, dstOffset), device(srcDevice), ByteCount, NULL, LEGACY);
}

CUresult cuMemcpyDtoA_v2_ptds(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount)
{
	return copy_row(array(dstArray, dstOffset), device(srcDevice), ByteCount, NULL, PER_THREAD);
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
	return copy_row(device(dstDevice), array(srcArray, srcOffset), ByteCount, NULL, LEGACY);
}

CUresult cuMemcpyAtoD_v2_ptds(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
	return copy_row(device(dstDevice), array(srcArray, srcOffset), ByteCount, NULL, PER_THREAD);
}

CUresult cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount)
{
	return copy_row(array(dstArray, dstOffset), host(srcHost), ByteCount, NULL, LEGACY);
}

CUresult cuMemcpyHtoA_v2_ptds(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount)
{
	return copy_row(array(dstArray, dstOffset), host(srcHost), ByteCount, NULL, PER_THREAD);
}

CUresult cuMemcpyAtoH_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
	return copy_row(host(dstHost), array(srcArray, srcOffset), ByteCount, NULL, LEGACY);
}

CUresult cuMemcpyAtoH_v2_ptds(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
	return copy_row(host(dstHost), array(srcArray, srcOffset), ByteCount, NULL, PER_THREAD);
}

CUresult cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
	return copy_row(array(dstArray, dstOffset), array(srcArray, srcOffset), ByteCount, NULL, LEGACY);
}

CUresult cuMemcpyAtoA_v2_ptds(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
	return copy_row(array(dstArray, dstOffset), array(srcArray, srcOffset), ByteCount, NULL, PER_THREAD);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
	return copy_row(unified(dst), unified(src), ByteCount, hStream, LEGACY | COPY_ASYNC);
}

CUresult cuMemcpyAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
	return copy_row(unified(dst), unified(src), ByteCount, hStream, PER_THREAD | COPY_ASYNC);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream)
{
	return copy_row(device(dstDevice), host(srcHost), ByteCount, hStream, LEGACY | COPY_ASYNC);
}

CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream)
{
	return copy_row(device(dstDevice), host(srcHost), ByteCount, hStream, PER_THREAD | COPY_ASYNC);
}

CUresult cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
	return copy_row(host(dstHost), device(srcDevice), ByteCount, hStream, LEGACY | COPY_ASYNC);
}

CUresult cuMemcpyDtoHAsync_v2_ptsz(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
	return copy_row(host(dstHost), device(srcDevice), ByteCount, hStream, PER_THREAD | COPY_ASYNC);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
	return copy_row(device(dstDevice), device(srcDevice), ByteCount, hStream, LEGACY | COPY_ASYNC);
}

CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
	return copy_row(device(dstDevice), device(srcDevice), ByteCount, hStream, PER_THREAD | COPY_ASYNC);
}

CUresult cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount, CUstream hStream)
{
	return copy_row(array(dstArray, dstOffset), host(srcHost), ByteCount, hStream, LEGACY | COPY_ASYNC);
}

CUresult cuMemcpyHtoAAsync_v2_ptsz(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount, CUstream hStream)
{
	return copy_row(array(dstArray, dstOffset), host(srcHost), ByteCount, hStream, PER_THREAD | COPY_ASYNC);
}

CUresult cuMemcpyAtoHAsync_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount, CUstream hStream)
{
	return copy_row(host(dstHost), array(srcArray, srcOffset), ByteCount, hStream, LEGACY | COPY_ASYNC);
}

CUresult cuMemcpyAtoHAsync_v2_ptsz(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount, CUstream hStream)
{
	return copy_row(host(dstHost), array(srcArray, srcOffset), ByteCount, hStream, PER_THREAD | COPY_ASYNC);
}

CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext, size_t ByteCount)
{
	SIM_TRY(check_peers(dstContext, srcContext));
	return copy_row(device(dstDevice), device(srcDevice), ByteCount, NULL, LEGACY);
}

CUresult cuMemcpyPeer_ptds(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext, size_t ByteCount)
{
	SIM_TRY(check_peers(dstContext, srcContext));
	return copy_row(device(dstDevice), device(srcDevice), ByteCount, NULL, PER_THREAD);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext, size_t ByteCount,
		CUstream hStream)
{
	SIM_TRY(check_peers(dstContext, srcContext));
	return copy_row(device(dstDevice), device(srcDevice), ByteCount, hStream, LEGACY | COPY_ASYNC);
}

CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
		size_t ByteCount, CUstream hStream)
{
	SIM_TRY(check_peers(dstContext, srcContext));
	return copy_row(device(dstDevice), device(srcDevice), ByteCount, hStream, PER_THREAD | COPY_ASYNC);
}
