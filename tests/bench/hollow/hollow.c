/* SPDX-License-Identifier: Apache-2.0
 *
 * A driver that does nothing, at once and always in the same time: what a call takes
 * with the sharing runtime in front of it, less what it takes without, is the
 * runtime's own time, to the nanosecond and at every percentile. The simulated
 * driver takes thousands, and a hundred times that now and then.
 *
 * It has one device: the card whose directory it finds. Memory has addresses and
 * nothing behind them; what was allocated last gets its address again. Kernels have ended when
 * they are launched, and took KERNEL_NS each by what events say.
 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "cuda.h"

#define CARDS "/run/tranche/cards"
#define MIB (1ull << 20)

#define KERNEL_NS 2000

static __thread CUdeviceptr next = 1ull << 40;
static __thread uint64_t launches;
static int context;

/* Events, handed out in turn. */
static struct CUevent_st {
	uint64_t launches; /* before it */
} event[4096];
static unsigned events;

static CUuuid read_uuid(void)
{
	CUuuid uuid = {{0}};
	DIR *cards = opendir(CARDS);
	struct dirent *e;

	while (cards && (e = readdir(cards))) {
		unsigned byte, n = 0;

		if (strncmp(e->d_name, "GPU-", 4))
			continue;
		for (const char *c = e->d_name + 4; *c && n < 16; c += 2) {
			if (*c == '-')
				c++;
			if (sscanf(c, "%2x", &byte) == 1)
				uuid.bytes[n++] = (char)byte;
		}
	}
	if (cards)
		closedir(cards);
	return uuid;
}

#define ANSWER(name, parameters, body) \
	CUresult name parameters           \
	{                                  \
		body return CUDA_SUCCESS;      \
	}

#define UNUSED(x) (void)(x);

ANSWER(cuInit, (unsigned flags), UNUSED(flags))
ANSWER(cuDriverGetVersion, (int *version), *version = 12040;)
ANSWER(cuDeviceGetCount, (int *count), *count = 1;)
ANSWER(cuDeviceGet, (CUdevice *device, int ordinal), *device = ordinal;)
ANSWER(cuDeviceGetUuid, (CUuuid *uuid, CUdevice device), UNUSED(device) *uuid = read_uuid();)
ANSWER(cuDeviceGetUuid_v2, (CUuuid *uuid, CUdevice device), UNUSED(device) *uuid = read_uuid();)
ANSWER(cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice device), UNUSED(attribute) UNUSED(device) *value = 1;)
ANSWER(cuDeviceTotalMem_v2, (size_t *bytes, CUdevice device), UNUSED(device) *bytes = 131072 * MIB;)
ANSWER(cuDevicePrimaryCtxGetState, (CUdevice device, unsigned *flags, int *active), UNUSED(device) *flags = 0; *active = 0;)
ANSWER(cuDevicePrimaryCtxRetain, (CUcontext *made, CUdevice device), UNUSED(device) *made = (CUcontext)&context;)
ANSWER(cuDevicePrimaryCtxRelease_v2, (CUdevice device), UNUSED(device))
ANSWER(cuCtxSetCurrent, (CUcontext c), UNUSED(c))
ANSWER(cuCtxGetCurrent, (CUcontext *c), *c = (CUcontext)&context;)
ANSWER(cuCtxGetDevice, (CUdevice *device), *device = 0;)
ANSWER(cuCtxSynchronize, (void), )
ANSWER(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream), UNUSED(to) UNUSED(from) UNUSED(bytes) UNUSED(stream))
ANSWER(cuModuleGetLoadingMode, (CUmoduleLoadingMode *mode), *mode = CU_MODULE_EAGER_LOADING;)
ANSWER(cuModuleLoadData, (CUmodule *made, const void *image), UNUSED(image) *made = (CUmodule)&context;)
ANSWER(cuModuleGetFunction, (CUfunction *made, CUmodule module, const char *name), UNUSED(module) UNUSED(name) *made = (CUfunction)&context;)
ANSWER(cuMemGetInfo_v2, (size_t *left, size_t *total), *left = *total = 131072 * MIB;)
ANSWER(cuMemAlloc_v2, (CUdeviceptr *address, size_t bytes), *address = next; next += (bytes + 511) & ~511ull;)
ANSWER(cuMemFree_v2, (CUdeviceptr address), next = address;)
ANSWER(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus *status), UNUSED(stream) *status = CU_STREAM_CAPTURE_STATUS_NONE;)
ANSWER(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *mode), *mode = CU_STREAM_CAPTURE_MODE_GLOBAL;)
ANSWER(cuStreamGetCtx, (CUstream stream, CUcontext *c), UNUSED(stream) *c = (CUcontext)&context;)
ANSWER(cuCtxPushCurrent_v2, (CUcontext c), UNUSED(c))
ANSWER(cuCtxPopCurrent_v2, (CUcontext *c), *c = (CUcontext)&context;)
ANSWER(cuEventCreate, (CUevent *made, unsigned flags), UNUSED(flags) *made = &event[__atomic_fetch_add(&events, 1, __ATOMIC_RELAXED) % 4096];)
ANSWER(cuEventDestroy_v2, (CUevent e), UNUSED(e))
ANSWER(cuEventRecord, (CUevent e, CUstream stream), UNUSED(stream) e->launches = launches;)
ANSWER(cuEventQuery, (CUevent e), UNUSED(e))
ANSWER(cuEventElapsedTime, (float *ms, CUevent start, CUevent end), *ms = (float)(end->launches - start->launches) * (KERNEL_NS / 1e6f);)
ANSWER(cuDeviceGetMemPool, (CUmemoryPool *pool, CUdevice device), UNUSED(device) *pool = (CUmemoryPool)&context;)
ANSWER(cuDeviceGetDefaultMemPool, (CUmemoryPool *pool, CUdevice device), UNUSED(device) *pool = (CUmemoryPool)&context;)
ANSWER(cuMemPoolGetAttribute, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value), UNUSED(pool) UNUSED(attribute) *(cuuint64_t *)value = 32 * MIB;)
ANSWER(cuMemAllocAsync, (CUdeviceptr *address, size_t bytes, CUstream stream), UNUSED(stream) *address = next; next += (bytes + 511) & ~511ull;)
ANSWER(cuMemAllocFromPoolAsync, (CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream), UNUSED(pool) UNUSED(stream) *address = next; next += (bytes + 511) & ~511ull;)
ANSWER(cuMemFreeAsync, (CUdeviceptr address, CUstream stream), UNUSED(stream) next = address;)
ANSWER(cuMemGetAllocationGranularity, (size_t *bytes, const CUmemAllocationProp *p, CUmemAllocationGranularity_flags o), UNUSED(p) UNUSED(o) *bytes = 2 * MIB;)
ANSWER(cuMemCreate, (CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties, unsigned long long flags), UNUSED(bytes) UNUSED(properties) UNUSED(flags) *handle = 7;)
ANSWER(cuMemRelease, (CUmemGenericAllocationHandle handle), UNUSED(handle))
ANSWER(cuGetProcAddress, (const char *symbol, void **function, int version, cuuint64_t flags), UNUSED(symbol) UNUSED(version) UNUSED(flags) *function = (void *)cuMemAlloc_v2;)

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream stream,
	void **parameters, void **extra)
{
	launches++;
	UNUSED(f) UNUSED(gx) UNUSED(gy) UNUSED(gz) UNUSED(bx) UNUSED(by) UNUSED(bz) UNUSED(shared) UNUSED(stream) UNUSED(parameters) UNUSED(extra)
	return CUDA_SUCCESS;
}
