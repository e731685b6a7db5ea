/* SPDX-License-Identifier: Apache-2.0
 *
 * Contexts: what they cost, whose they are, and that they take all along.
 */
#include "check.h"

static struct simcard *page;

static void a_context_costs_and_frees_everything(void)
{
	CUcontext context = new_context(0), current;
	CUdeviceptr a;
	CUmodule module;
	CUfunction function;
	CUarray array;
	CUDA_ARRAY_DESCRIPTOR two = {64, 64, CU_AD_FORMAT_FLOAT, 1};
	void *host;

	EQUAL(page->context_bytes, held(page, SIMCARD_CONTEXT));
	OK(cuMemAlloc_v2(&a, 10));
	OK(cuMemAlloc_v2(&a, 10 * MIB));
	OK(cuMemAllocManaged(&a, 10, CU_MEM_ATTACH_GLOBAL));
	OK(cuMemHostAlloc(&host, 10, 0));
	OK(cuModuleLoadData(&module, PTX_HEAD ".entry k() { ret; }\n"));
	OK(cuModuleGetFunction(&function, module, "k"));
	OK(cuArrayCreate_v2(&array, &two));
	CHECK(held(page, SIMCARD_MODULE) == FRAME && held(page, SIMCARD_ARRAY) == FRAME);
	OK(cuCtxDestroy_v2(context));
	EQUAL(0, used(page));
	OK(cuCtxGetCurrent(&current));
	CHECK(current == NULL);
	FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(context));
	FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&a, 10));
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuModuleGetFunctionCount(&(unsigned){0}, module));
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(array));
}

static void each_thread_has_a_stack(void)
{
	CUcontext a, b, popped;
	CUdevice device;
	unsigned long long id_a, id_b;
	unsigned flags;

	OK(cuCtxCreate(&a, 0, 0));
	OK(cuCtxCreate_v3(&b, NULL, 0, CU_CTX_SCHED_BLOCKING_SYNC, 0));
	EQUAL(2 * page->context_bytes, held(page, SIMCARD_CONTEXT));
	OK(cuCtxGetFlags(&flags));
	EQUAL(CU_CTX_SCHED_BLOCKING_SYNC, flags);
	OK(cuCtxGetId(a, &id_a));
	OK(cuCtxGetId(b, &id_b));
	CHECK(id_a != id_b);
	OK(cuCtxPopCurrent_v2(&popped));
	CHECK(popped == b);
	OK(cuCtxGetDevice(&device));
	OK(cuCtxPushCurrent_v2(b));
	OK(cuCtxDestroy_v2(a));
	OK(cuCtxGetDevice(&device));
	OK(cuCtxPopCurrent_v2(&popped));
	FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxGetDevice(&device));
	OK(cuCtxSetCurrent(b));
	OK(cuCtxGetDevice(&device));
	OK(cuCtxSetCurrent(NULL));
	FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetDevice(&device));
	FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent_v2(&popped));
	FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent_v2((CUcontext)(uintptr_t)0x1234567890));
	FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent_v2(NULL));
	OK(cuCtxDestroy_v2(b));
	FAILS(CUDA_ERROR_INVALID_DEVICE, cuCtxCreate_v2(&a, 0, 99));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuCtxCreate_v2(&a, 3, 0));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuCtxCreate_v2(NULL, 0, 0));
	EQUAL(0, used(page));
}

static void the_primary_context_is_counted(void)
{
	CUcontext a, b;
	CUdeviceptr p;
	unsigned flags;
	int active;

	OK(cuDevicePrimaryCtxSetFlags_v2(0, CU_CTX_SCHED_SPIN));
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	CHECK(flags == CU_CTX_SCHED_SPIN && active == 0);
	FAILS(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
	OK(cuDevicePrimaryCtxRetain(&a, 0));
	OK(cuDevicePrimaryCtxRetain(&b, 0));
	CHECK(a == b);
	EQUAL(page->context_bytes, used(page));
	FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(a));
	OK(cuCtxSetCurrent(a));
	OK(cuMemAlloc_v2(&p, 1));
	OK(cuDevicePrimaryCtxRelease_v2(0));
	OK(cuMemFree_v2(p));
	OK(cuMemAlloc_v2(&p, 1));
	OK(cuDevicePrimaryCtxReset_v2(0));
	EQUAL(0, used(page));
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	EQUAL(0, active);
	FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc_v2(&p, 1));
	OK(cuDevicePrimaryCtxRetain(&b, 0));
	CHECK(a == b);
	OK(cuMemAlloc_v2(&p, 1));
	OK(cuDevicePrimaryCtxRelease_v2(0));
	OK(cuDevicePrimaryCtxRelease_v2(0));
	EQUAL(0, used(page));
	OK(cuCtxSetCurrent(NULL));
}

static void limits_cost_what_they_raise(void)
{
	CUcontext context = new_context(0);
	uint64_t before = used(page);
	size_t value;

	OK(cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE));
	EQUAL(8 * MIB, value);
	OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 72 * MIB));
	EQUAL(before + 64 * MIB, used(page));
	EQUAL(before + 64 * MIB, held(page, SIMCARD_CONTEXT));
	OK(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 2 * MIB));
	EQUAL(before + 66 * MIB, used(page));
	OK(cuCtxGetLimit(&value, CU_LIMIT_PRINTF_FIFO_SIZE));
	EQUAL(2 * MIB, value);
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, page->memory_total));
	OK(cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE));
	EQUAL(72 * MIB, value);
	OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 1));
	OK(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 1));
	EQUAL(before, used(page));
	OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048));
	CHECK(used(page) > before);
	FAILS(CUDA_ERROR_UNSUPPORTED_LIMIT, cuCtxSetLimit((CUlimit)77, 1));
	FAILS(CUDA_ERROR_UNSUPPORTED_LIMIT, cuCtxGetLimit(&value, (CUlimit)77));
	OK(cuCtxDestroy_v2(context));
	EQUAL(0, used(page));
}

static void a_context_that_does_not_fit_leaves_nothing(void)
{
	CUcontext context = new_context(0), other;
	CUdeviceptr a;

	OK(cuMemAlloc_v2(&a, page->memory_total - page->memory_driver - used(page) - page->context_bytes + 1));
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuCtxCreate_v2(&other, 0, 0));
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuDevicePrimaryCtxRetain(&other, 0));
	OK(cuMemFree_v2(a));
	EQUAL(page->context_bytes, used(page));
	OK(cuCtxDestroy_v2(context));
}

static void peers(void)
{
	CUcontext a, b;
	int can;

	OK(cuCtxCreate_v2(&b, 0, 1));
	OK(cuCtxCreate_v2(&a, 0, 0));
	OK(cuDeviceCanAccessPeer(&can, 0, 1));
	EQUAL(1, can);
	OK(cuDeviceCanAccessPeer(&can, 0, 0));
	EQUAL(0, can);
	FAILS(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(b));
	OK(cuCtxEnablePeerAccess(b, 0));
	FAILS(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(b, 0));
	OK(cuCtxDisablePeerAccess(b));
	FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxEnablePeerAccess(a, 0));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuCtxEnablePeerAccess(b, 1));
	OK(cuCtxSynchronize_v2(b));
	OK(cuCtxDestroy_v2(a));
	OK(cuCtxDestroy_v2(b));
}

int main(void)
{
	page = card_page(0);
	OK(cuInit(0));
	a_context_costs_and_frees_everything();
	each_thread_has_a_stack();
	the_primary_context_is_counted();
	limits_cost_what_they_raise();
	a_context_that_does_not_fit_leaves_nothing();
	peers();
	BOOKS(page);
	return 0;
}
