/* SPDX-License-Identifier: Apache-2.0
 *
 * Virtual memory management and multicast objects.
 */
#include "check.h"

static struct simcard *page;

static CUmemAllocationProp on_device(int device)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
	};
}

static CUmemGenericAllocationHandle create(uint64_t size)
{
	CUmemAllocationProp properties = on_device(0);
	CUmemGenericAllocationHandle handle;

	OK(cuMemCreate(&handle, size, &properties, 0));
	return handle;
}

static CUdeviceptr reserve(uint64_t size)
{
	CUdeviceptr address;

	OK(cuMemAddressReserve(&address, size, 0, 0, 0));
	CHECK(address % FRAME == 0);
	return address;
}

static void allow(CUdeviceptr address, uint64_t size)
{
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	OK(cuMemSetAccess(address, size, &access, 1));
}

static void memory_lives_until_the_last_handle_and_mapping(void)
{
	CUmemGenericAllocationHandle handle = create(4 * FRAME), again;
	CUdeviceptr address = reserve(8 * FRAME);

	EQUAL(4 * FRAME, held(page, SIMCARD_VMM));
	OK(cuMemMap(address, 4 * FRAME, 0, handle, 0));
	OK(cuMemMap(address + 4 * FRAME, 4 * FRAME, 0, handle, 0));
	OK(cuMemRelease(handle));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRelease(handle));
	EQUAL(4 * FRAME, held(page, SIMCARD_VMM));
	OK(cuMemUnmap(address, 4 * FRAME));
	EQUAL(4 * FRAME, held(page, SIMCARD_VMM));
	OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(address + 5 * FRAME + 3)));
	OK(cuMemUnmap(address + 4 * FRAME, 4 * FRAME));
	EQUAL(4 * FRAME, held(page, SIMCARD_VMM));
	OK(cuMemRelease(again));
	EQUAL(0, held(page, SIMCARD_VMM));
	OK(cuMemAddressFree(address, 8 * FRAME));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address, 8 * FRAME));
}

static void two_mappings_show_the_same_memory(void)
{
	CUmemGenericAllocationHandle handle = create(2 * FRAME);
	CUdeviceptr a = reserve(2 * FRAME), b = reserve(2 * FRAME);

	OK(cuMemMap(a, 2 * FRAME, 0, handle, 0));
	OK(cuMemMap(b, 2 * FRAME, 0, handle, 0));
	allow(a, 2 * FRAME);
	allow(b, 2 * FRAME);
	memset((void *)(uintptr_t)a, 9, 2 * FRAME);
	EQUAL(9, *(char *)(uintptr_t)(b + 2 * FRAME - 1));
	OK(cuMemUnmap(a, 2 * FRAME));
	OK(cuMemUnmap(b, 2 * FRAME));
	OK(cuMemRelease(handle));
	OK(cuMemAddressFree(a, 2 * FRAME));
	OK(cuMemAddressFree(b, 2 * FRAME));
	EQUAL(0, held(page, SIMCARD_VMM));
}

static void whole_mappings_only(void)
{
	CUmemGenericAllocationHandle one = create(2 * FRAME), two = create(2 * FRAME);
	CUdeviceptr a = reserve(6 * FRAME);
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	OK(cuMemMap(a, 2 * FRAME, 0, one, 0));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap(a + FRAME, 2 * FRAME, 0, two, 0));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap(a + 2 * FRAME, 4 * FRAME, 0, two, 0));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap(a + 2 * FRAME, FRAME, FRAME, two, 0));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap(a + 2 * FRAME, 100, 0, two, 0));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap(a + 5 * FRAME, 2 * FRAME, 0, two, 0));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap(0x10000000000, 2 * FRAME, 0, two, 0));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap(a + 2 * FRAME, 2 * FRAME, 0, 12345, 0));
	OK(cuMemMap(a + 2 * FRAME, 2 * FRAME, 0, two, 0));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(a, FRAME, &access, 1));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(a, 6 * FRAME, &access, 1));
	OK(cuMemSetAccess(a, 4 * FRAME, &access, 1));
	memset((void *)(uintptr_t)a, 1, 4 * FRAME);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(a, FRAME));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(a + FRAME, 2 * FRAME));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(a, 6 * FRAME));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(a, 6 * FRAME));
	OK(cuMemUnmap(a, 4 * FRAME));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(a, 2 * FRAME));
	OK(cuMemAddressFree(a, 6 * FRAME));
	OK(cuMemRelease(one));
	OK(cuMemRelease(two));
	EQUAL(0, held(page, SIMCARD_VMM));
}

static void access_is_given_and_taken(void)
{
	CUmemGenericAllocationHandle handle = create(FRAME);
	CUdeviceptr a = reserve(FRAME), linear;
	CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, there = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
	CUmemAccessDesc both[] = {{here, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}, {there, CU_MEM_ACCESS_FLAGS_PROT_READ}};
	CUmemAccessDesc none = {here, CU_MEM_ACCESS_FLAGS_PROT_NONE}, wrong = {{CU_MEM_LOCATION_TYPE_DEVICE, 9}, CU_MEM_ACCESS_FLAGS_PROT_READ};
	unsigned long long flags;

	OK(cuMemMap(a, FRAME, 0, handle, 0));
	OK(cuMemAlloc_v2(&linear, FRAME));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD_v2(a, linear, 100));
	OK(cuMemGetAccess(&flags, &here, a));
	EQUAL(CU_MEM_ACCESS_FLAGS_PROT_NONE, flags);
	OK(cuMemSetAccess(a, FRAME, both, 2));
	OK(cuMemcpyDtoD_v2(a, linear, 100));
	OK(cuMemGetAccess(&flags, &there, a + 77));
	EQUAL(CU_MEM_ACCESS_FLAGS_PROT_READ, flags);
	FAILS(CUDA_ERROR_INVALID_DEVICE, cuMemSetAccess(a, FRAME, &wrong, 1));
	both[1].flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
	OK(cuMemSetAccess(a, FRAME, &both[1], 1));
	OK(cuMemSetAccess(a, FRAME, &none, 1));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD_v2(a, linear, 100));
	OK(cuMemUnmap(a, FRAME));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemGetAccess(&flags, &here, a));
	OK(cuMemFree_v2(linear));
	OK(cuMemRelease(handle));
	OK(cuMemAddressFree(a, FRAME));
}

static void properties_are_checked_and_kept(void)
{
	CUmemAllocationProp properties = on_device(0), got;
	CUmemGenericAllocationHandle handle;
	size_t granularity;

	OK(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	EQUAL(FRAME, granularity);
	properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	OK(cuMemCreate(&handle, FRAME, &properties, 0));
	OK(cuMemGetAllocationPropertiesFromHandle(&got, handle));
	CHECK(got.location.id == 0 && got.requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	OK(cuMemRelease(handle));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemGetAllocationPropertiesFromHandle(&got, handle));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, FRAME + 1, &properties, 0));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, 0, &properties, 0));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, FRAME, NULL, 0));
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, page->memory_total, &properties, 0));
	properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
	FAILS(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&handle, FRAME, &properties, 0));
	properties = on_device(9);
	FAILS(CUDA_ERROR_INVALID_DEVICE, cuMemCreate(&handle, FRAME, &properties, 0));
	EQUAL(0, held(page, SIMCARD_VMM));
}

static void memory_of_the_host_costs_nothing(void)
{
	CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0},
	};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr a = reserve(FRAME);
	uint64_t before = used(page);
	unsigned type;

	OK(cuMemCreate(&handle, FRAME, &properties, 0));
	OK(cuMemMap(a, FRAME, 0, handle, 0));
	allow(a, FRAME);
	memset((void *)(uintptr_t)a, 3, FRAME);
	OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a));
	EQUAL(CU_MEMORYTYPE_HOST, type);
	EQUAL(before, used(page));
	OK(cuMemUnmap(a, FRAME));
	OK(cuMemRelease(handle));
	OK(cuMemAddressFree(a, FRAME));
}

static void addresses_can_be_wished_for(void)
{
	CUdeviceptr a, b, big, wish;

	/* Where something was, something can be again. */
	OK(cuMemAddressReserve(&wish, 2 * FRAME, 4 * FRAME, 0, 0));
	OK(cuMemAddressFree(wish, 2 * FRAME));
	OK(cuMemAddressReserve(&b, 2 * FRAME, 0, wish, 0));
	EQUAL(wish, b);
	OK(cuMemAddressReserve(&a, 2 * FRAME, 0, wish, 0));
	CHECK(a != b);
	OK(cuMemAddressReserve(&big, (uint64_t)8 << 30, 64 * FRAME, 0, 0));
	EQUAL(0, big % (64 * FRAME));
	OK(cuMemAddressFree(a, 2 * FRAME));
	OK(cuMemAddressFree(b, 2 * FRAME));
	OK(cuMemAddressFree(big, (uint64_t)8 << 30));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&a, 100, 0, 0, 0));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&a, FRAME, 3, 0, 0));
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAddressReserve(&a, UINT64_MAX / FRAME * FRAME, 0, 0, 0));
}

static void what_is_bound_to_a_multicast_object_stays(void)
{
	CUmulticastObjectProp properties = {.numDevices = 2, .size = 4 * FRAME};
	CUmemAllocationProp there = on_device(1);
	CUmemGenericAllocationHandle object, handle = create(2 * FRAME), other;
	CUdeviceptr a = reserve(4 * FRAME);
	size_t granularity;

	OK(cuMemCreate(&other, 2 * FRAME, &there, 0));
	OK(cuMulticastGetGranularity(&granularity, &properties, CU_MULTICAST_GRANULARITY_RECOMMENDED));
	EQUAL(FRAME, granularity);
	OK(cuMulticastCreate(&object, &properties));
	OK(cuMulticastAddDevice(object, 0));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMulticastAddDevice(object, 0));
	FAILS(CUDA_ERROR_ILLEGAL_STATE, cuMulticastBindMem(object, 0, handle, 0, 2 * FRAME, 0));
	OK(cuMulticastAddDevice(object, 1));
	EQUAL(2 * FRAME, held(page, SIMCARD_VMM));
	OK(cuMulticastBindMem(object, 0, handle, 0, 2 * FRAME, 0));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMulticastBindMem(object, FRAME, handle, 0, 2 * FRAME, 0));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMulticastBindMem(object, 3 * FRAME, handle, 0, 2 * FRAME, 0));
	OK(cuMulticastBindMem(object, 0, other, 0, 2 * FRAME, 0));
	FAILS(CUDA_ERROR_NOT_SUPPORTED, cuMemMap(a, 4 * FRAME, 0, object, 0));
	OK(cuMemRelease(handle));
	OK(cuMemRelease(other));
	EQUAL(2 * FRAME, held(page, SIMCARD_VMM));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMulticastUnbind(object, 0, 0, FRAME));
	OK(cuMulticastUnbind(object, 0, 0, 2 * FRAME));
	EQUAL(0, held(page, SIMCARD_VMM));

	handle = create(2 * FRAME);
	OK(cuMemMap(a, 2 * FRAME, 0, handle, 0));
	OK(cuMulticastBindAddr(object, 2 * FRAME, a + FRAME, FRAME, 0));
	OK(cuMemUnmap(a, 2 * FRAME));
	OK(cuMemRelease(handle));
	EQUAL(2 * FRAME, held(page, SIMCARD_VMM));
	OK(cuMemRelease(object));
	EQUAL(0, held(page, SIMCARD_VMM));
	EQUAL(0, held(card_page(1), SIMCARD_VMM));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRelease(object));
	OK(cuMemAddressFree(a, 4 * FRAME));
	properties.numDevices = 3;
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMulticastCreate(&object, &properties));
}

int main(void)
{
	CUcontext context;

	page = card_page(0);
	context = new_context(0);
	memory_lives_until_the_last_handle_and_mapping();
	two_mappings_show_the_same_memory();
	whole_mappings_only();
	access_is_given_and_taken();
	properties_are_checked_and_kept();
	memory_of_the_host_costs_nothing();
	addresses_can_be_wished_for();
	what_is_bound_to_a_multicast_object_stays();
	OK(cuCtxDestroy_v2(context));
	EQUAL(0, used(page));
	BOOKS(page);
	return 0;
}
