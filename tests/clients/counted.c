/* SPDX-License-Identifier: Apache-2.0
 *
 * counted CASE
 *
 * What must be counted once, not at all, or be given back in time. Each case checks
 * by cuMemGetInfo what it costs, and says "ok".
 */
#include "kernels.h"
#include "kinds.h"

static size_t left_now(void)
{
	size_t left, total;

	TRY(cuMemGetInfo_v2(&left, &total));
	HOLDS(left <= total);
	return left;
}

/* What is free is less by exactly this. */
static void costs(size_t before, size_t bytes)
{
	size_t now = left_now();

	if (before - now != bytes)
		fail("cost %zd bytes, wanted %zu", before - now, bytes);
}

/* Either pointer of cuMemGetInfo may be missing, as the driver allows. */
static void meminfo(void)
{
	size_t left = 0, total = 0, left_alone = 0, total_alone = 0, device;
	unsigned small_left, small_total;

	TRY(cuMemGetInfo_v2(&left, &total));
	HOLDS(left > 0 && left < total);
	TRY(cuDeviceTotalMem_v2(&device, 0));
	HOLDS(device == total);
	TRY(cuMemGetInfo_v2(&left_alone, NULL));
	HOLDS(left_alone == left);
	TRY(cuMemGetInfo_v2(NULL, &total_alone));
	HOLDS(total_alone == total);
	TRY(cuMemGetInfo_v2(NULL, NULL));
	/* The oldest interface has 32 bits: never more than they hold. */
	if (cuMemGetInfo(&small_left, &small_total) == CUDA_SUCCESS)
		HOLDS(small_left <= small_total);
	/* No context: no answer, and no crash. */
	TRY(cuCtxSetCurrent(NULL));
	WANT(CUDA_ERROR_INVALID_CONTEXT, cuMemGetInfo_v2(&left, &total));
}

static void retained(void)
{
	struct block b = {.kind = find_kind("vmm"), .bytes = 32 * MIB};
	CUmemGenericAllocationHandle again;
	size_t before = left_now();

	TRY(b.kind->take(&b));
	costs(before, 32 * MIB);
	TRY(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)b.address));
	costs(before, 32 * MIB);
	TRY(b.kind->drop(&b));
	costs(before, 32 * MIB); /* the second handle keeps it */
	TRY(cuMemRelease(again));
	costs(before, 0);
}

static void mapped_twice(void)
{
	CUmemAllocationProp properties = vmm_properties();
	CUmemGenericAllocationHandle handle;
	size_t before = left_now(), bytes = 32 * MIB;
	CUdeviceptr a, b;

	TRY(cuMemCreate(&handle, bytes, &properties, 0));
	TRY(vmm_map(handle, bytes, &a));
	TRY(vmm_map(handle, bytes, &b));
	costs(before, bytes);
	TRY(cuMemRelease(handle));
	TRY(cuMemUnmap(a, bytes));
	costs(before, bytes);
	TRY(cuMemUnmap(b, bytes));
	costs(before, 0);
	TRY(cuMemAddressFree(a, bytes));
	TRY(cuMemAddressFree(b, bytes));
}

/* Addresses and access rights cost nothing. */
static void reserved(void)
{
	size_t before = left_now();
	CUdeviceptr a;

	TRY(cuMemAddressReserve(&a, 1024 * MIB, 0, 0, 0));
	costs(before, 0);
	TRY(cuMemAddressFree(a, 1024 * MIB));
}

static void imported(void)
{
	CUmemGenericAllocationHandle second;
	struct block b = {.kind = find_kind("vmm"), .bytes = 16 * MIB};
	size_t before = left_now();
	int fd;

	TRY(b.kind->take(&b));
	TRY(cuMemExportToShareableHandle(&fd, b.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	TRY(cuMemImportFromShareableHandle(&second, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	costs(before, 16 * MIB);
	TRY(cuMemRelease(second));
	TRY(b.kind->drop(&b));
	close(fd);
	costs(before, 0);
}

/* Memory of the host is not the card's, however it is made. */
static void host(void)
{
	CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0},
	};
	CUmemGenericAllocationHandle handle;
	size_t before = left_now();
	CUresult result;
	void *pinned;

	TRY(cuMemHostAlloc(&pinned, 64 * MIB, 0));
	costs(before, 0);
	TRY(cuMemFreeHost(pinned));
	result = cuMemCreate(&handle, 64 * MIB, &properties, 0);
	if (result == CUDA_SUCCESS) {
		costs(before, 0);
		TRY(cuMemRelease(handle));
		costs(before, 0);
	} else {
		HOLDS(result == CUDA_ERROR_INVALID_DEVICE || result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_SUPPORTED);
	}
}

/* What was never allocated is the driver's to refuse, and takes nothing off. */
static void unknown(void)
{
	size_t before = left_now();
	CUdeviceptr a;

	WANT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(0xdead0000));
	TRY(cuMemFree_v2(0));
	TRY(cuMemAlloc_v2(&a, 32 * MIB));
	WANT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(a + 4096));
	costs(before, 32 * MIB);
	TRY(cuMemFree_v2(a));
	WANT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(a));
	costs(before, 0);
}

/* Small allocations share frames, and are charged for the frames. */
static void small(void)
{
	enum { N = 4096 };
	static CUdeviceptr a[N];
	size_t before = left_now(), cost;

	for (size_t i = 0; i < N; i++)
		TRY(cuMemAlloc_v2(&a[i], 1024));
	cost = before - left_now();
	HOLDS(cost >= N * 1024 && cost <= 4 * N * 1024 + 4 * MIB);
	for (size_t i = 0; i < N; i++)
		TRY(cuMemFree_v2(a[i]));
	costs(before, 0);
}

/* Absurd sizes are refused without a trace. */
static void absurd(void)
{
	CUmemAllocationProp properties = vmm_properties();
	CUmemGenericAllocationHandle handle;
	size_t before = left_now(), pitch;
	CUdeviceptr a;

	WANT(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(&a, 0));
	WANT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&a, SIZE_MAX));
	WANT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&a, SIZE_MAX / 2));
	WANT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&a, 1ull << 45));
	HOLDS(cuMemAllocPitch_v2(&a, &pitch, SIZE_MAX / 2, SIZE_MAX / 2, 4) != CUDA_SUCCESS);
	HOLDS(cuMemAllocPitch_v2(&a, &pitch, 1ull << 33, 1ull << 33, 4) != CUDA_SUCCESS);
	HOLDS(cuMemCreate(&handle, SIZE_MAX & ~(vmm_granularity() - 1), &properties, 0) != CUDA_SUCCESS);
	HOLDS(cuMemAllocAsync(&a, SIZE_MAX - 4096, NULL) != CUDA_SUCCESS);
	costs(before, 0);
}

/* A pool that keeps all that was freed must give it up before a call is refused. */
static void trimmed(void)
{
	uint64_t keep = UINT64_MAX;
	struct block b = {.kind = find_kind("async")};
	size_t before = left_now();
	CUmemoryPool pool;
	CUdeviceptr a;

	TRY(cuDeviceGetDefaultMemPool(&pool, 0));
	TRY(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	b.bytes = before / 4 * 3;
	TRY(b.kind->take(&b));
	TRY(b.kind->drop(&b));
	HOLDS(before - left_now() >= b.bytes); /* the pool has it still */
	TRY(cuMemAlloc_v2(&a, before / 2));
	TRY(cuMemFree_v2(a));
	costs(before, 0);
}

/* Pools are counted by what they hold, whether it is in use or not. */
static void pools(void)
{
	CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here()};
	uint64_t keep = UINT64_MAX, held;
	size_t before = left_now();
	CUmemoryPool pool;
	CUdeviceptr a;

	TRY(cuMemPoolCreate(&pool, &properties));
	TRY(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	TRY(cuMemAllocFromPoolAsync(&a, 40 * MIB, pool, NULL));
	TRY(cuMemFreeAsync(a, NULL));
	TRY(cuStreamSynchronize(NULL));
	TRY(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &held));
	HOLDS(held >= 40 * MIB);
	costs(before, held);
	TRY(cuMemPoolTrimTo(pool, 0));
	costs(before, 0);
	TRY(cuMemAllocFromPoolAsync(&a, 40 * MIB, pool, NULL));
	TRY(cuMemFreeAsync(a, NULL));
	TRY(cuStreamSynchronize(NULL));
	TRY(cuMemPoolDestroy(pool));
	costs(before, 0);
}

/* A pool may get the handle of one that is gone, and that was asked about once more. */
static void pool_again(void)
{
	CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here()};
	size_t before = left_now();
	CUmemoryPool gone, pool;
	uint64_t value = 0;
	CUdeviceptr a;

	for (int question = 0; question < 5; question++) {
		TRY(cuMemPoolCreate(&gone, &properties));
		TRY(cuMemPoolDestroy(gone));
		switch (question) {
		case 0:
			WANT(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(gone));
			break;
		case 1:
			WANT(CUDA_ERROR_INVALID_VALUE, cuMemPoolGetAttribute(gone, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
			break;
		case 2:
			WANT(CUDA_ERROR_INVALID_VALUE, cuMemPoolSetAttribute(gone, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
			break;
		case 3:
			WANT(CUDA_ERROR_INVALID_VALUE, cuMemPoolTrimTo(gone, 0));
			break;
		default:
			WANT(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&a, MIB, gone, NULL));
		}
		TRY(cuMemPoolCreate(&pool, &properties));
		TRY(cuMemAllocFromPoolAsync(&a, 64 * MIB, pool, NULL));
		TRY(cuStreamSynchronize(NULL));
		costs(before, 64 * MIB);
		WANT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&a, before, pool, NULL));
		TRY(cuMemFreeAsync(a, NULL));
		TRY(cuStreamSynchronize(NULL));
		TRY(cuMemPoolDestroy(pool));
		costs(before, 0);
	}
}

/* A context that goes takes all with it that was allocated in it. */
static void context_gone(void)
{
	CUcontext first, second;
	size_t before = left_now();
	struct block b;

	TRY(cuCtxGetCurrent(&first));
	TRY(cuCtxCreate_v2(&second, 0, 0));
	for (size_t i = 0; i < COUNT(kinds); i++) {
		if (kinds[i].take == pool_take || kinds[i].take == async_take)
			continue; /* pools are the device's */
		b = (struct block){.kind = &kinds[i], .bytes = 4 * MIB};
		TRY(b.kind->take(&b));
		if (kinds[i].take == vmm_take)
			TRY(b.kind->drop(&b)); /* so are handles */
	}
	TRY(cuCtxDestroy_v2(second));
	TRY(cuCtxSetCurrent(first));
	TRY(cuCtxSynchronize());
	TRY(cuDeviceGraphMemTrim(0));
	costs(before, 0);
}

static void modules(void)
{
	size_t before = left_now();
	struct kernels k = load_kernels();

	TRY(launch_spin(&k, 1000, NULL));
	TRY(cuCtxSynchronize());
	HOLDS(left_now() < before);
	TRY(cuModuleUnload(k.module));
	costs(before, 0);
}

static const struct named cases[] = {
	{"meminfo", meminfo}, {"retained", retained}, {"mapped-twice", mapped_twice}, {"reserved", reserved},
	{"imported", imported}, {"host", host}, {"unknown", unknown}, {"small", small}, {"absurd", absurd},
	{"trimmed", trimmed}, {"pools", pools}, {"pool-again", pool_again}, {"context-gone", context_gone}, {"modules", modules},
};

int main(int argc, char **argv)
{
	const struct named *one = chosen(argc, argv, cases, COUNT(cases));

	use_device(0);
	one->run();
	say("ok");
	return 0;
}
