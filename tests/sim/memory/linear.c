/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear, pitched, managed and host memory, and what pointers tell.
 */
#include "check.h"

static struct simcard *page;

static void small_allocations_share_frames(void)
{
	CUdeviceptr a, b, big, third;
	size_t size;
	CUdeviceptr base;

	OK(cuMemAlloc_v2(&a, 1));
	EQUAL(FRAME, held(page, SIMCARD_LINEAR));
	OK(cuMemAlloc_v2(&b, 1000));
	EQUAL(FRAME, held(page, SIMCARD_LINEAR));
	CHECK(a % 256 == 0 && b % 256 == 0 && a != b && a / FRAME == b / FRAME);
	OK(cuMemGetAddressRange_v2(&base, &size, b + 999));
	EQUAL(b, base);
	EQUAL(1000, size);
	FAILS(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2(&base, &size, b + 1000));
	OK(cuMemAlloc_v2(&third, MIB));
	OK(cuMemAlloc_v2(&big, MIB));
	EQUAL(2 * FRAME, held(page, SIMCARD_LINEAR));
	BOOKS(page);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(b + 256));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(a + 1));
	OK(cuMemFree_v2(a));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(a));
	OK(cuMemFree_v2(third));
	OK(cuMemFree_v2(b));
	OK(cuMemFree_v2(big));
	EQUAL(0, held(page, SIMCARD_LINEAR));
	OK(cuMemFree_v2(0));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(&a, 0));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(NULL, 1));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(0x1234));
}

static void large_ones_have_frames_of_their_own(void)
{
	CUdeviceptr a;
	size_t free_before, free_after, total;
	unsigned old_free, old_total;

	OK(cuMemGetInfo_v2(&free_before, &total));
	EQUAL(page->memory_total, total);
	OK(cuMemAlloc_v2(&a, 5 * MIB + 1));
	EQUAL(3 * FRAME, held(page, SIMCARD_LINEAR));
	OK(cuMemGetInfo_v2(&free_after, NULL));
	EQUAL(3 * FRAME, free_before - free_after);
	OK(cuMemGetInfo_v2(NULL, NULL));
	OK(cuMemGetInfo(&old_free, &old_total));
	CHECK(old_free == free_after && old_total == total);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(a + FRAME));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(a, MIB, 0, NULL));
	memset((void *)(uintptr_t)a, 7, 5 * MIB + 1);
	OK(cuMemFree_v2(a));
	EQUAL(0, held(page, SIMCARD_LINEAR));
}

static void memory_is_zero_for_the_next_owner(void)
{
	CUdeviceptr a;
	uint64_t whole = page->memory_total - page->memory_driver - used(page);

	OK(cuMemAlloc_v2(&a, whole));
	memset((void *)(uintptr_t)a, 0xff, 64 * MIB);
	OK(cuMemFree_v2(a));
	OK(cuMemAlloc_v2(&a, whole));
	for (uint64_t i = 0; i < whole; i += 4096)
		EQUAL(0, *(volatile unsigned char *)(uintptr_t)(a + i));
	OK(cuMemFree_v2(a));
}

static void the_card_is_never_overcommitted(void)
{
	CUdeviceptr a, b;
	uint64_t left = page->memory_total - page->memory_driver - used(page);
	uint64_t refused = page->refused;

	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&a, left + 1));
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&a, UINT64_MAX));
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&a, UINT64_MAX / 2));
	CHECK(page->refused > refused);
	OK(cuMemAlloc_v2(&a, left));
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&b, 1));
	EQUAL(page->memory_total - page->memory_driver, used(page));
	EQUAL(page->memory_total - page->memory_driver, page->used_max);
	OK(cuMemFree_v2(a));
	OK(cuMemAlloc_v2(&b, 1));
	OK(cuMemFree_v2(b));
	BOOKS(page);
}

static void pitched(void)
{
	CUdeviceptr a;
	size_t pitch;

	OK(cuMemAllocPitch_v2(&a, &pitch, 1, 4096, 4));
	CHECK(pitch >= 1 && pitch % 256 == 0);
	EQUAL((pitch * 4096 + FRAME - 1) / FRAME * FRAME, held(page, SIMCARD_LINEAR));
	OK(cuMemFree_v2(a));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch_v2(&a, &pitch, 1, 1, 3));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch_v2(&a, &pitch, 0, 1, 4));
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocPitch_v2(&a, &pitch, 512, UINT64_MAX / 2, 4));
}

static void managed(void)
{
	CUdeviceptr a;
	unsigned type;
	bool is = false;

	OK(cuMemAllocManaged(&a, 3 * MIB, CU_MEM_ATTACH_GLOBAL));
	EQUAL(2 * FRAME, held(page, SIMCARD_MANAGED));
	*(int *)(uintptr_t)a = 5;
	OK(cuMemAdvise(a, MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 0));
	OK(cuMemAdvise(a, MIB, CU_MEM_ADVISE_SET_ACCESSED_BY, CU_DEVICE_CPU));
	OK(cuMemPrefetchAsync(a + MIB, 2 * MIB, 1, NULL));
	FAILS(CUDA_ERROR_INVALID_DEVICE, cuMemPrefetchAsync(a, MIB, 9, NULL));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(a + MIB, 3 * MIB, 0, NULL));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAdvise(a, MIB, (CUmem_advise)9, 0));
	FAILS(CUDA_ERROR_NOT_SUPPORTED, cuMemRangeGetAttribute(&type, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, a, MIB));
	OK(cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_IS_MANAGED, a));
	CHECK(is);
	OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a));
	EQUAL(CU_MEMORYTYPE_DEVICE, type);
	OK(cuMemFree_v2(a));
	EQUAL(0, held(page, SIMCARD_MANAGED));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocManaged(&a, 1, 0));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocManaged(&a, 0, CU_MEM_ATTACH_GLOBAL));
}

static void host_memory_costs_nothing(void)
{
	static char mine[8192];
	uint64_t before = used(page);
	CUdeviceptr device;
	unsigned flags, type;
	void *p, *q;

	OK(cuMemHostAlloc(&p, 3 * MIB, CU_MEMHOSTALLOC_PORTABLE));
	OK(cuMemAllocHost_v2(&q, 1));
	memset(p, 1, 3 * MIB);
	EQUAL(before, used(page));
	OK(cuMemHostGetFlags(&flags, p));
	EQUAL(CU_MEMHOSTALLOC_PORTABLE, flags);
	OK(cuMemHostGetDevicePointer_v2(&device, (char *)p + 5, 0));
	EQUAL((uintptr_t)p + 5, device);
	OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)p + 5));
	EQUAL(CU_MEMORYTYPE_HOST, type);
	FAILS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(p));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost((char *)p + 4096));
	OK(cuMemFreeHost(p));
	OK(cuMemFreeHost(q));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(q));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostAlloc(&p, 1, 0x80));

	OK(cuMemHostRegister_v2(mine, sizeof(mine), 0));
	FAILS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(mine + 100, 10, 0));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(mine));
	OK(cuMemHostUnregister(mine));
	FAILS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(mine));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2((void *)4096, 4096, 0));
}

static void pointers_tell(CUcontext context)
{
	CUdeviceptr a, start;
	CUcontext of = NULL;
	unsigned long long id_a, id_b;
	int ordinal = -1;
	size_t size;
	unsigned type = 77;
	void *host;
	CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_CONTEXT};
	void *data[] = {&type, &ordinal, &of};
	unsigned one = 1;
	bool sync = false;

	OK(cuMemAlloc_v2(&a, 1000));
	OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, a + 1));
	CHECK(of == context);
	OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, a));
	EQUAL(0, ordinal);
	OK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, a + 999));
	EQUAL(a, start);
	OK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, a));
	EQUAL(1000, size);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, a));
	OK(cuPointerGetAttribute(&id_a, CU_POINTER_ATTRIBUTE_BUFFER_ID, a));
	OK(cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
	OK(cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
	CHECK(sync);
	OK(cuMemFree_v2(a));
	OK(cuMemAlloc_v2(&a, 1000));
	OK(cuPointerGetAttribute(&id_b, CU_POINTER_ATTRIBUTE_BUFFER_ID, a));
	CHECK(id_a != id_b);
	OK(cuMemFree_v2(a));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, a));
	OK(cuPointerGetAttributes(3, which, data, (uintptr_t)&host));
	EQUAL(0, type);
	CHECK(ordinal == CU_DEVICE_INVALID && of == NULL);
}

int main(void)
{
	CUcontext context;

	page = card_page(0);
	context = new_context(0);
	small_allocations_share_frames();
	large_ones_have_frames_of_their_own();
	memory_is_zero_for_the_next_owner();
	the_card_is_never_overcommitted();
	pitched();
	managed();
	host_memory_costs_nothing();
	pointers_tell(context);
	OK(cuCtxDestroy_v2(context));
	EQUAL(0, used(page));
	BOOKS(page);
	return 0;
}
