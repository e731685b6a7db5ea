/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that the driver refuses, or answers, without reading what it is given. */
#include <sys/mman.h>

#include "kernels.h"

#define NOWHERE ((void *)0xdead0000)

/* The array ends where memory does, and the count says more. */
static void enumerate(void)
{
	long page = sysconf(_SC_PAGESIZE);
	char *place = mmap(NULL, 2 * (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CUkernel *kernels;
	CUlibrary library;

	HOLDS(place != MAP_FAILED && mprotect(place + page, (size_t)page, PROT_NONE) == 0);
	use_device(0);
	TRY(cuLibraryLoadData(&library, kernels_text, NULL, NULL, 0, NULL, NULL, 0));
	kernels = (CUkernel *)(void *)(place + page) - 3;
	kernels[2] = (CUkernel)NOWHERE;
	TRY(cuLibraryEnumerateKernels(kernels, UINT32_MAX, library));
	HOLDS(kernels[0] && kernels[1] && kernels[2] == (CUkernel)NOWHERE);
}

static void launch_many(void)
{
	CUDA_LAUNCH_PARAMS one = { .gridDimX = 1 };

	use_device(0);
	load_kernels();
	WANT(CUDA_ERROR_INVALID_VALUE, cuLaunchCooperativeKernelMultiDevice(&one, UINT32_MAX, 0));
}

static void before_init(void)
{
	CUmipmappedArray mipmap;
	CUgraphNode node;
	CUlibrary library;
	CUmodule module;
	CUarray array;

	WANT(CUDA_ERROR_NOT_INITIALIZED, cuArrayCreate_v2(&array, NOWHERE));
	WANT(CUDA_ERROR_NOT_INITIALIZED, cuArray3DCreate_v2(&array, NOWHERE));
	WANT(CUDA_ERROR_NOT_INITIALIZED, cuMipmappedArrayCreate(&mipmap, NOWHERE, 1));
	WANT(CUDA_ERROR_NOT_INITIALIZED, cuModuleLoadData(&module, NOWHERE));
	WANT(CUDA_ERROR_NOT_INITIALIZED, cuModuleLoadDataEx(&module, NOWHERE, 0, NULL, NULL));
	WANT(CUDA_ERROR_NOT_INITIALIZED, cuLibraryLoadData(&library, NOWHERE, NULL, NULL, 0, NULL, NULL, 0));
	WANT(CUDA_ERROR_NOT_INITIALIZED, cuGraphAddNode(&node, NOWHERE, NULL, 0, NOWHERE));
}

/* On a card that there is not: the driver says why not, which need not be the card. */
static void no_card(void)
{
	CUexecAffinityParam affinity = { .type = CU_EXEC_AFFINITY_TYPE_SM_COUNT };
	CUcontext context;
	CUgreenCtx green;

	TRY(cuInit(0));
	WANT(CUDA_ERROR_INVALID_DEVICE, cuCtxCreate_v2(&context, 0, 99));
	WANT(CUDA_ERROR_INVALID_DEVICE, cuDevicePrimaryCtxRetain(&context, 99));
	WANT(CUDA_ERROR_INVALID_DEVICE, cuDevicePrimaryCtxRelease_v2(99));
	WANT(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, cuCtxCreate_v3(&context, &affinity, 1, 0, 99));
	WANT(CUDA_ERROR_INVALID_VALUE, cuCtxCreate_v3(&context, NULL, -1, 0, 99));
	WANT(CUDA_ERROR_NOT_SUPPORTED, cuGreenCtxCreate(&green, NULL, 99, 0));
}

/* No room for what a kernel loads: it does not get into a graph. */
static void graph_lazy(void)
{
	static char text[4096];
	CUDA_KERNEL_NODE_PARAMS params = { .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1 };
	CUdeviceptr memory;
	CUlibrary library;
	CUgraphNode node;
	CUkernel kernel;
	CUgraph graph;

	snprintf(text, sizeof(text), "// tranche_sim_module %llu\n%s", 300 * MIB, kernels_text);
	use_device(0);
	TRY(cuMemAlloc_v2(&memory, 420 * MIB));
	TRY(cuLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0));
	TRY(cuLibraryGetKernel(&kernel, library, "nothing"));
	TRY(cuGraphCreate(&graph, 0));
	params.kern = kernel;
	WANT(CUDA_ERROR_OUT_OF_MEMORY, cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &params));
	TRY(cuMemFree_v2(memory));
	TRY(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &params));
}

static const struct named cases[] = {
	{"enumerate", enumerate}, {"launch-many", launch_many}, {"before-init", before_init}, {"no-card", no_card}, {"graph-lazy", graph_lazy},
};

int main(int argc, char **argv)
{
	chosen(argc, argv, cases, COUNT(cases))->run();
	say("ok");
	return 0;
}
