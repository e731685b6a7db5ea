/* SPDX-License-Identifier: Apache-2.0
 *
 * Stream-ordered memory and pools.
 */
#include "check.h"

static struct simcard *page;

static uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute which)
{
	uint64_t value = 77;

	OK(cuMemPoolGetAttribute(pool, which, &value));
	return value;
}

static void set(CUmemoryPool pool, CUmemPool_attribute which, uint64_t value)
{
	OK(cuMemPoolSetAttribute(pool, which, &value));
}

#define RESERVED(pool) attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
#define USED(pool) attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)

/* A kernel that keeps a stream busy for so long. */
static void work(CUstream stream, uint64_t nanoseconds)
{
	static CUfunction function;
	void *parameters[] = {&nanoseconds};
	CUmodule module;

	if (!function) {
		OK(cuModuleLoadData(&module, PTX_HEAD ".entry k(.param .u64 t) { }"));
		OK(cuModuleGetFunction(&function, module, "k"));
	}
	OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

static void the_default_pool_gives_back_at_synchronisation(void)
{
	CUmemoryPool pool, current;
	CUdeviceptr a, b;
	CUstream stream;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuDeviceGetMemPool(&current, 0));
	CHECK(pool == current);
	EQUAL(0, RESERVED(pool));
	OK(cuMemAllocAsync(&a, 100, stream));
	OK(cuMemAllocAsync(&b, 3 * MIB, stream));
	EQUAL(3 * FRAME, RESERVED(pool));
	EQUAL(3 * FRAME, held(page, SIMCARD_POOL));
	EQUAL(512 + 3 * MIB, USED(pool));
	memset((void *)(uintptr_t)b, 1, 3 * MIB);
	OK(cuMemFreeAsync(b, stream));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(b, stream));
	EQUAL(3 * FRAME, RESERVED(pool));
	OK(cuStreamSynchronize(stream));
	EQUAL(FRAME, RESERVED(pool));
	EQUAL(FRAME, held(page, SIMCARD_POOL));
	OK(cuMemFreeAsync(a, stream));
	OK(cuCtxSynchronize());
	EQUAL(0, held(page, SIMCARD_POOL));
	EQUAL(3 * FRAME, attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH));
	EQUAL(512 + 3 * MIB, attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH));
	set(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0);
	EQUAL(0, attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &(uint64_t){1}));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &(uint64_t){0}));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(pool));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocAsync(&a, 0, stream));
	OK(cuStreamDestroy_v2(stream));
}

static CUmemoryPool new_pool(uint64_t max)
{
	CUmemPoolProps properties = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
		.maxSize = max,
	};
	CUmemoryPool pool;

	OK(cuMemPoolCreate(&pool, &properties));
	return pool;
}

static void a_threshold_keeps_memory_and_trim_takes_it(void)
{
	CUmemoryPool pool = new_pool(0);
	CUdeviceptr a;

	set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 4 * FRAME);
	EQUAL(4 * FRAME, attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD));
	OK(cuMemAllocFromPoolAsync(&a, 10 * FRAME, pool, NULL));
	OK(cuMemFreeAsync(a, NULL));
	OK(cuCtxSynchronize());
	EQUAL(4 * FRAME, RESERVED(pool));
	OK(cuMemPoolTrimTo(pool, 2 * FRAME + 1));
	EQUAL(3 * FRAME, RESERVED(pool));
	OK(cuMemPoolTrimTo(pool, 5 * FRAME));
	EQUAL(3 * FRAME, RESERVED(pool));
	/* What lies idle is used again, and only what is missing is taken. */
	OK(cuMemAllocFromPoolAsync(&a, 4 * FRAME, pool, NULL));
	EQUAL(4 * FRAME, RESERVED(pool));
	OK(cuMemPoolTrimTo(pool, 0));
	EQUAL(4 * FRAME, RESERVED(pool));
	OK(cuMemFree_v2(a));
	OK(cuMemPoolTrimTo(pool, 0));
	EQUAL(0, RESERVED(pool));
	OK(cuMemPoolDestroy(pool));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolTrimTo(pool, 0));
	BOOKS(page);
}

static void memory_is_used_again_in_the_order_of_streams(void)
{
	CUmemoryPool pool = new_pool(0);
	CUstream one, two;
	CUdeviceptr a, b;
	int no = 0;

	OK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
	set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX);
	/* In the same stream at once. */
	OK(cuMemAllocFromPoolAsync(&a, FRAME, pool, one));
	work(one, 50000000);
	OK(cuMemFreeAsync(a, one));
	OK(cuMemAllocFromPoolAsync(&b, FRAME, pool, one));
	CHECK(a == b);
	/* In another one not while the first is busy, unless it may wait for it. */
	OK(cuMemFreeAsync(b, one));
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &no));
	OK(cuMemAllocFromPoolAsync(&b, FRAME, pool, two));
	CHECK(a != b);
	EQUAL(2 * FRAME, RESERVED(pool));
	OK(cuMemFreeAsync(b, two));
	OK(cuStreamSynchronize(two));
	OK(cuMemPoolTrimTo(pool, 0));
	EQUAL(FRAME, RESERVED(pool));
	/* Afterwards it may. */
	OK(cuStreamSynchronize(one));
	OK(cuMemAllocFromPoolAsync(&b, FRAME, pool, two));
	EQUAL(FRAME, RESERVED(pool));
	OK(cuMemFreeAsync(b, two));
	OK(cuStreamSynchronize(two));
	OK(cuMemPoolDestroy(pool));
	OK(cuStreamDestroy_v2(one));
	OK(cuStreamDestroy_v2(two));
	EQUAL(0, held(page, SIMCARD_POOL));
}

static void a_stream_waits_for_memory_that_another_still_uses(void)
{
	CUmemoryPool pool = new_pool(0);
	CUstream one, two;
	CUdeviceptr a, b;

	OK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
	OK(cuMemAllocFromPoolAsync(&a, FRAME, pool, one));
	work(one, 20000000);
	OK(cuMemFreeAsync(a, one));
	OK(cuMemAllocFromPoolAsync(&b, FRAME, pool, two));
	CHECK(a == b);
	OK(cuStreamSynchronize(two));
	OK(cuStreamQuery(one));
	OK(cuMemFreeAsync(b, two));
	OK(cuCtxSynchronize());
	OK(cuMemPoolDestroy(pool));
	EQUAL(0, held(page, SIMCARD_POOL));
	OK(cuStreamDestroy_v2(one));
	OK(cuStreamDestroy_v2(two));
}

static void a_destroyed_pool_ends_with_its_last_allocation(void)
{
	CUmemoryPool pool = new_pool(0), current, standard;
	CUdeviceptr a;

	OK(cuDeviceSetMemPool(0, pool));
	OK(cuDeviceGetMemPool(&current, 0));
	CHECK(current == pool);
	OK(cuMemAllocAsync(&a, MIB, NULL));
	EQUAL(FRAME, RESERVED(pool));
	OK(cuMemPoolDestroy(pool));
	OK(cuDeviceGetMemPool(&current, 0));
	OK(cuDeviceGetDefaultMemPool(&standard, 0));
	CHECK(current == standard);
	EQUAL(FRAME, held(page, SIMCARD_POOL));
	OK(cuMemFreeAsync(a, NULL));
	OK(cuCtxSynchronize());
	EQUAL(0, held(page, SIMCARD_POOL));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceSetMemPool(0, pool));
}

static void a_pool_has_a_size_and_so_has_the_card(void)
{
	CUmemoryPool pool = new_pool(4 * FRAME);
	CUdeviceptr a, b;

	OK(cuMemAllocFromPoolAsync(&a, 3 * FRAME, pool, NULL));
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&b, 2 * FRAME, pool, NULL));
	OK(cuMemAllocFromPoolAsync(&b, FRAME, pool, NULL));
	OK(cuMemFreeAsync(a, NULL));
	OK(cuMemFreeAsync(b, NULL));
	OK(cuCtxSynchronize());
	OK(cuMemPoolDestroy(pool));
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&a, page->memory_total, NULL));
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&a, UINT64_MAX, NULL));
	EQUAL(0, held(page, SIMCARD_POOL));
}

static void what_cannot_be_is_refused(void)
{
	CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 9}};
	CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, there = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
	CUmemoryPool pool = new_pool(0), other;
	CUmemAccess_flags flags;
	CUmemAccessDesc access = {there, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	FAILS(CUDA_ERROR_INVALID_DEVICE, cuMemPoolCreate(&other, &properties));
	properties.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
	FAILS(CUDA_ERROR_NOT_SUPPORTED, cuMemPoolCreate(&other, &properties));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolCreate(&other, NULL));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceSetMemPool(1, pool));
	OK(cuMemPoolGetAccess(&flags, pool, &here));
	EQUAL(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, flags);
	OK(cuMemPoolGetAccess(&flags, pool, &there));
	EQUAL(CU_MEM_ACCESS_FLAGS_PROT_NONE, flags);
	OK(cuMemPoolSetAccess(pool, &access, 1));
	OK(cuMemPoolGetAccess(&flags, pool, &there));
	EQUAL(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, flags);
	access = (CUmemAccessDesc){here, CU_MEM_ACCESS_FLAGS_PROT_NONE};
	FAILS(CUDA_ERROR_INVALID_DEVICE, cuMemPoolSetAccess(pool, &access, 1));
	OK(cuMemGetMemPool(&other, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
	OK(cuMemSetMemPool(&here, CU_MEM_ALLOCATION_TYPE_PINNED, pool));
	OK(cuMemGetMemPool(&other, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
	CHECK(other == pool);
	OK(cuMemPoolDestroy(pool));
}

static void pointers_know_their_pool(void)
{
	CUmemoryPool pool, of = NULL;
	CUdeviceptr a, base;
	size_t size;

	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemAllocAsync(&a, 1000, NULL));
	OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, a + 5));
	CHECK(of == pool);
	OK(cuMemGetAddressRange_v2(&base, &size, a + 999));
	CHECK(base == a && size == 1000);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(a + 512, NULL));
	OK(cuMemFree_v2(a));
	FAILS(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2(&base, &size, a));
	OK(cuMemAlloc_v2(&a, 1000));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(a, NULL));
	OK(cuMemFree_v2(a));
}

/* Any order of allocating and freeing leaves the books right. */
static void at_random(void)
{
	enum { MANY = 200 };
	struct {
		CUdeviceptr address;
		unsigned size;
	} live[MANY] = {{0}};
	CUstream streams[3];
	CUmemoryPool pool = new_pool(0);
	uint64_t sum = 0;

	srand(1);
	for (int i = 0; i < 3; i++)
		OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	for (int step = 0; step < 4000; step++) {
		int i = rand() % MANY;
		CUstream stream = streams[rand() % 3];

		if (step % 100 == 0)
			work(stream, 100000);
		if (step % 333 == 0)
			OK(cuStreamSynchronize(stream));
		if (live[i].address) {
			for (unsigned at = 0; at < live[i].size; at += 4000)
				EQUAL(i, *(unsigned char *)(uintptr_t)(live[i].address + at));
			OK(cuMemFreeAsync(live[i].address, stream));
			sum -= (live[i].size + 511) / 512 * 512;
			live[i].address = 0;
			continue;
		}
		live[i].size = (unsigned)(1 + rand() % (step % 10 == 0 ? 5000000 : 20000));
		OK(cuMemAllocFromPoolAsync(&live[i].address, live[i].size, pool, stream));
		memset((void *)(uintptr_t)live[i].address, i, live[i].size);
		sum += (live[i].size + 511) / 512 * 512;
		EQUAL(sum, USED(pool));
		EQUAL(RESERVED(pool), held(page, SIMCARD_POOL));
		CHECK(USED(pool) <= RESERVED(pool));
	}
	for (int i = 0; i < MANY; i++) {
		if (live[i].address)
			OK(cuMemFreeAsync(live[i].address, streams[i % 3]));
	}
	OK(cuCtxSynchronize());
	EQUAL(0, held(page, SIMCARD_POOL));
	OK(cuMemPoolDestroy(pool));
	for (int i = 0; i < 3; i++)
		OK(cuStreamDestroy_v2(streams[i]));
	BOOKS(page);
}

int main(void)
{
	CUcontext context;
	CUdeviceptr a;

	page = card_page(0);
	context = new_context(0);
	the_default_pool_gives_back_at_synchronisation();
	a_threshold_keeps_memory_and_trim_takes_it();
	memory_is_used_again_in_the_order_of_streams();
	a_stream_waits_for_memory_that_another_still_uses();
	a_destroyed_pool_ends_with_its_last_allocation();
	a_pool_has_a_size_and_so_has_the_card();
	what_cannot_be_is_refused();
	pointers_know_their_pool();
	at_random();
	OK(cuMemAllocAsync(&a, MIB, NULL));
	OK(cuCtxDestroy_v2(context));
	EQUAL(0, used(page));
	BOOKS(page);
	return 0;
}
