/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes that are killed at any instant of any call leave nothing: neither memory nor
 * anything that others wait for. The argument is the number of rounds.
 */
#include "check.h"

enum { CHILDREN = 3 };

static const char text[] = PTX_HEAD "// tranche_sim_module 3000000\n.entry k() { }";

static CUmemAllocationProp exportable(void)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
}

/* One turn of what programs do with memory. Out of memory is not wrong here. */
static void turn(int end)
{
	CUmemAllocationProp properties = exportable();
	CUmemGenericAllocationHandle handle;
	CUDA_ARRAY_DESCRIPTOR two = {1000, 1000, CU_AD_FORMAT_FLOAT, 1};
	CUdeviceptr small, large, pooled;
	CUipcMemHandle ipc;
	CUmodule module;
	CUfunction function;
	CUarray array;
	int fd;

	OK(cuMemAlloc_v2(&small, 1000));
	if (cuMemAlloc_v2(&large, 9 * MIB) == CUDA_SUCCESS) {
		OK(cuIpcGetMemHandle(&ipc, large));
		/* The other side opens it, if it gets to that. */
		(void)!send(end, &ipc, sizeof(ipc), MSG_DONTWAIT);
		OK(cuMemFree_v2(large));
	}
	if (cuMemAllocAsync(&pooled, 5 * MIB, NULL) == CUDA_SUCCESS)
		OK(cuMemFreeAsync(pooled, NULL));
	if (cuMemCreate(&handle, 3 * FRAME, &properties, 0) == CUDA_SUCCESS) {
		OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
		close(fd);
		OK(cuMemRelease(handle));
	}
	if (cuArrayCreate_v2(&array, &two) == CUDA_SUCCESS)
		OK(cuArrayDestroy(array));
	OK(cuModuleLoadData(&module, text));
	(void)cuModuleGetFunction(&function, module, "k");
	OK(cuModuleUnload(module));
	OK(cuStreamSynchronize(NULL));
	OK(cuMemFree_v2(small));
}

static void victim(int end)
{
	CUcontext context;
	CUresult result;

	OK(cuInit(0));
	tell(end);
	for (;;) {
		result = cuCtxCreate_v2(&context, 0, 0);
		if (result == CUDA_ERROR_OUT_OF_MEMORY)
			continue;
		OK(result);
		for (int i = 0; i < 20; i++)
			turn(end);
		OK(cuCtxDestroy_v2(context));
	}
}

/* Opens what the victim offers, so that memory changes hands in all directions. */
static void take_part(int end)
{
	CUipcMemHandle handle;
	CUdeviceptr address;

	while (recv(end, &handle, sizeof(handle), MSG_DONTWAIT) == (ssize_t)sizeof(handle)) {
		CUresult result = cuIpcOpenMemHandle_v2(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);

		if (result == CUDA_ERROR_INVALID_HANDLE)
			continue;
		OK(result);
		*(volatile char *)(uintptr_t)address = 1;
		OK(cuIpcCloseMemHandle(address));
	}
}

int main(int argc, char **argv)
{
	struct simcard *page;
	CUcontext context;
	CUdeviceptr mine;
	uint64_t before;

	if (argc == 3) {
		victim(atoi(argv[2]));
		return 0;
	}
	CHECK(argc == 2);
	page = card_page(0);
	context = new_context(0);
	OK(cuMemAlloc_v2(&mine, 9 * MIB));
	memset((void *)(uintptr_t)mine, 7, 9 * MIB);
	before = used(page);
	srand((unsigned)getpid());
	for (int round = 0; round < atoi(argv[1]); round++) {
		pid_t child[CHILDREN];
		int end[CHILDREN];

		for (int i = 0; i < CHILDREN; i++)
			child[i] = start("victim", &end[i]);
		for (int i = 0; i < CHILDREN; i++)
			await(end[i]);
		for (int i = 0; i < CHILDREN; i++) {
			usleep((useconds_t)(rand() % 3000));
			take_part(end[i]);
			murder(child[i]);
			take_part(end[i]);
			close(end[i]);
		}
		OK(cuMemGetInfo_v2(NULL, NULL));
		EQUAL(before, used(page));
		BOOKS(page);
		for (uint64_t i = 0; i < 9 * MIB; i += 4096)
			EQUAL(7, *(char *)(uintptr_t)(mine + i));
	}
	OK(cuMemFree_v2(mine));
	OK(cuCtxDestroy_v2(context));
	EQUAL(0, used(page));
	return 0;
}
