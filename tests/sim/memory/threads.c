/* SPDX-License-Identifier: Apache-2.0
 *
 * Many threads of one process at once.
 */
#include <pthread.h>

#include "check.h"

enum { THREADS = 8, ROUNDS = 300 };

static CUcontext shared;

static void *allocate(void *argument)
{
	unsigned seed = (unsigned)(uintptr_t)argument;
	CUdeviceptr live[16] = {0}, a;
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
	CUmodule module;
	CUfunction function;
	CUcontext own;
	CUstream stream;
	unsigned type;

	OK(cuInit(0));
	OK(cuCtxSetCurrent(shared));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int round = 0; round < ROUNDS; round++) {
		int i = rand_r(&seed) % 16;

		if (live[i]) {
			OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, live[i]));
			OK(cuMemFree_v2(live[i]));
			live[i] = 0;
		} else {
			OK(cuMemAlloc_v2(&live[i], 1 + (size_t)rand_r(&seed) % (3 * MIB)));
			*(volatile char *)(uintptr_t)live[i] = 1;
		}
		OK(cuMemAllocAsync(&a, 1 + (size_t)rand_r(&seed) % 100000, stream));
		OK(cuMemFreeAsync(a, stream));
		if (round % 10 == 0)
			OK(cuStreamSynchronize(stream));
		if (round % 30 == 0) {
			OK(cuMemCreate(&handle, FRAME, &properties, 0));
			OK(cuMemRelease(handle));
			OK(cuModuleLoadData(&module, PTX_HEAD ".entry k() { }"));
			OK(cuModuleGetFunction(&function, module, "k"));
			OK(cuModuleUnload(module));
			OK(cuMemGetInfo_v2(NULL, NULL));
		}
		if (round % 100 == 50) {
			OK(cuCtxCreate_v2(&own, 0, 1));
			OK(cuMemAlloc_v2(&a, MIB));
			OK(cuCtxDestroy_v2(own));
			OK(cuCtxSetCurrent(shared));
		}
	}
	for (int i = 0; i < 16; i++)
		OK(cuMemFree_v2(live[i]));
	OK(cuStreamDestroy_v2(stream));
	return NULL;
}

int main(void)
{
	struct simcard *page = card_page(0);
	pthread_t threads[THREADS];

	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&shared, 0));
	OK(cuCtxSetCurrent(shared));
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, allocate, (void *)(i + 1)) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	OK(cuCtxSynchronize());
	EQUAL(page->context_bytes, used(page));
	OK(cuDevicePrimaryCtxRelease_v2(0));
	EQUAL(0, used(page));
	EQUAL(0, used(card_page(1)));
	BOOKS(page);
	return 0;
}
