/* SPDX-License-Identifier: Apache-2.0
 *
 * cuMemset*.
 */
#include "copy.h"

CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
	return fill_run(dstDevice, 0, uc, 1, N, 1, NULL, LEGACY);
}

CUresult cuMemsetD8_v2_ptds(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
	return fill_run(dstDevice, 0, uc, 1, N, 1, NULL, PER_THREAD);
}

CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)
{
	return fill_run(dstDevice, 0, uc, 1, N, 1, hStream, LEGACY | COPY_ASYNC);
}

CUresult cuMemsetD8Async_ptsz(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)
{
	return fill_run(dstDevice, 0, uc, 1, N, 1, hStream, PER_THREAD | COPY_ASYNC);
}

CUresult cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height)
{
	return fill_run(dstDevice, dstPitch, uc, 1, Width, Height, NULL, LEGACY);
}

CUresult cuMemsetD2D8_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height)
{
	return fill_run(dstDevice, dstPitch, uc, 1, Width, Height, NULL, PER_THREAD);
}

CUresult cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height, CUstream hStream)
{
	return fill_run(dstDevice, dstPitch, uc, 1, Width, Height, hStream, LEGACY | COPY_ASYNC);
}

CUresult cuMemsetD2D8Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height, CUstream hStream)
{
	return fill_run(dstDevice, dstPitch, uc, 1, Width, Height, hStream, PER_THREAD | COPY_ASYNC);
}

CUresult cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
	return fill_run(dstDevice, 0, us, 2, N, 1, NULL, LEGACY);
}

CUresult cuMemsetD16_v2_ptds(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
	return fill_run(dstDevice, 0, us, 2, N, 1, NULL, PER_THREAD);
}

CUresult cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream)
{
	return fill_run(dstDevice, 0, us, 2, N, 1, hStream, LEGACY | COPY_ASYNC);
}

CUresult cuMemsetD16Async_ptsz(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream)
{
	return fill_run(dstDevice, 0, us, 2, N, 1, hStream, PER_THREAD | COPY_ASYNC);
}

CUresult cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height)
{
	return fill_run(dstDevice, dstPitch, us, 2, Width, Height, NULL, LEGACY);
}

CUresult cuMemsetD2D16_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height)
{
	return fill_run(dstDevice, dstPitch, us, 2, Width, Height, NULL, PER_THREAD);
}

CUresult cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height, CUstream hStream)
{
	return fill_run(dstDevice, dstPitch, us, 2, Width, Height, hStream, LEGACY | COPY_ASYNC);
}

CUresult cuMemsetD2D16Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height, CUstream hStream)
{
	return fill_run(dstDevice, dstPitch, us, 2, Width, Height, hStream, PER_THREAD | COPY_ASYNC);
}

CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
	return fill_run(dstDevice, 0, ui, 4, N, 1, NULL, LEGACY);
}

CUresult cuMemsetD32_v2_ptds(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
	return fill_run(dstDevice, 0, ui, 4, N, 1, NULL, PER_THREAD);
}

CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream)
{
	return fill_run(dstDevice, 0, ui, 4, N, 1, hStream, LEGACY | COPY_ASYNC);
}

CUresult cuMemsetD32Async_ptsz(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream)
{
	return fill_run(dstDevice, 0, ui, 4, N, 1, hStream, PER_THREAD | COPY_ASYNC);
}

CUresult cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height)
{
	return fill_run(dstDevice, dstPitch, ui, 4, Width, Height, NULL, LEGACY);
}

CUresult cuMemsetD2D32_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height)
{
	return fill_run(dstDevice, dstPitch, ui, 4, Width, Height, NULL, PER_THREAD);
}

CUresult cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height, CUstream hStream)
{
	return fill_run(dstDevice, dstPitch, ui, 4, Width, Height, hStream, LEGACY | COPY_ASYNC);
}

CUresult cuMemsetD2D32Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height, CUstream hStream)
{
	return fill_run(dstDevice, dstPitch, ui, 4, Width, Height, hStream, PER_THREAD | COPY_ASYNC);
}
