/* SPDX-License-Identifier: Apache-2.0
 *
 * launches CASE
 *
 * Every way to start a kernel, in and outside of captures. Says "ok".
 */
#include <pthread.h>

#include "kernels.h"

static struct kernels k;
static uint64_t brief = 20000;
static void *parameters[] = {&brief};

static CUlaunchConfig config_for(CUstream stream)
{
	return (CUlaunchConfig){
		.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .hStream = stream,
	};
}

/* Launches by every function there is, into one stream. */
static void launch_all(CUstream stream)
{
	CUlaunchConfig config = config_for(stream);

	TRY(cuLaunchKernel(k.spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
	TRY(cuLaunchKernel_ptsz(k.spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
	TRY(cuLaunchKernelEx(&config, k.spin, parameters, NULL));
	TRY(cuLaunchKernelEx_ptsz(&config, k.spin, parameters, NULL));
	TRY(cuLaunchKernel(k.nothing, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
}

static void launch_cooperative(CUstream stream)
{
	TRY(cuLaunchCooperativeKernel(k.spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters));
	TRY(cuLaunchCooperativeKernel_ptsz(k.spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters));
}

static void plain(void)
{
	CUstream stream;

	TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	launch_all(NULL);
	launch_all(CU_STREAM_LEGACY);
	launch_all(CU_STREAM_PER_THREAD);
	launch_all(stream);
	launch_cooperative(stream);
	TRY(cuStreamSynchronize(stream));
	TRY(cuCtxSynchronize());
	TRY(cuStreamDestroy_v2(stream));
}

/* The oldest interface, with its parameters set one by one. */
static void oldest(void)
{
	TRY(cuFuncSetBlockShape(k.spin, 1, 1, 1));
	TRY(cuParamSetSize(k.spin, sizeof brief));
	TRY(cuParamSetv(k.spin, 0, &brief, sizeof brief));
	TRY(cuLaunch(k.spin));
	TRY(cuLaunchGrid(k.spin, 1, 1));
	TRY(cuLaunchGridAsync(k.spin, 1, 1, NULL));
	TRY(cuCtxSynchronize());
}

static CUgraph captured(CUstream stream, CUstreamCaptureMode mode)
{
	CUstreamCaptureStatus status;
	CUgraph graph;
	size_t nodes;

	TRY(cuStreamBeginCapture_v2(stream, mode));
	launch_all(stream);
	TRY(cuStreamIsCapturing(stream, &status));
	HOLDS(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
	TRY(cuStreamEndCapture(stream, &graph));
	TRY(cuGraphGetNodes(graph, NULL, &nodes));
	HOLDS(nodes == 5);
	return graph;
}

static void graphs(void)
{
	static const CUstreamCaptureMode modes[] = {
		CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED,
	};
	CUstream stream;

	TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (size_t i = 0; i < COUNT(modes); i++) {
		CUgraph graph = captured(stream, modes[i]);
		CUgraphExec exec;

		TRY(cuGraphInstantiateWithFlags(&exec, graph, 0));
		TRY(cuGraphUpload(exec, stream));
		for (int n = 0; n < 10; n++)
			TRY(cuGraphLaunch(exec, stream));
		TRY(cuGraphLaunch_ptsz(exec, stream));
		TRY(cuStreamSynchronize(stream));
		TRY(cuGraphExecDestroy(exec));
		TRY(cuGraphDestroy(graph));
	}
	TRY(cuStreamDestroy_v2(stream));
}

/* A capture in the strictest mode breaks where anybody waits or allocates on the
 * sly: neither must happen on the program's behalf. */
static void capture_undisturbed(void)
{
	CUstreamCaptureStatus status;
	size_t left, total;
	CUdeviceptr a;
	CUstream stream;
	CUgraph graph;

	TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	TRY(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	launch_all(stream);
	TRY(cuMemAllocAsync(&a, MIB, stream));
	TRY(cuMemsetD8Async(a, 1, MIB, stream));
	TRY(cuMemFreeAsync(a, stream));
	TRY(cuStreamIsCapturing(stream, &status));
	HOLDS(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
	TRY(cuMemGetInfo_v2(&left, &total));
	HOLDS(left <= total);
	TRY(cuStreamIsCapturing(stream, &status));
	HOLDS(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
	TRY(cuStreamEndCapture(stream, &graph));
	TRY(cuGraphDestroy(graph));
	TRY(cuStreamDestroy_v2(stream));
}

/* Of another thread, whose capture allows that this one allocates. */
static void *allocate(void *context)
{
	for (int i = 0; i < 200; i++) {
		CUdeviceptr a;

		TRY(cuCtxSetCurrent(context));
		TRY(cuMemAlloc_v2(&a, 4 * MIB));
		TRY(cuMemFree_v2(a));
	}
	return NULL;
}

static void capture_beside(void)
{
	CUcontext context;
	pthread_t thread;
	CUstream stream;

	TRY(cuCtxGetCurrent(&context));
	TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	HOLDS(!pthread_create(&thread, NULL, allocate, context));
	for (int i = 0; i < 100; i++)
		TRY(cuGraphDestroy(captured(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)));
	HOLDS(!pthread_join(thread, NULL));
	TRY(cuStreamDestroy_v2(stream));
}

static void host_function(void *argument)
{
	__atomic_add_fetch((int *)argument, 1, __ATOMIC_SEQ_CST);
}

/* Host functions and events between kernels. */
static void between(void)
{
	int calls = 0;
	CUevent start, end;
	float ms;

	TRY(cuEventCreate(&start, 0));
	TRY(cuEventCreate(&end, 0));
	TRY(cuEventRecord(start, NULL));
	for (int i = 0; i < 50; i++) {
		TRY(launch_spin(&k, brief, NULL));
		TRY(cuLaunchHostFunc(NULL, host_function, &calls));
	}
	TRY(cuEventRecord(end, NULL));
	TRY(cuEventSynchronize(end));
	HOLDS(__atomic_load_n(&calls, __ATOMIC_SEQ_CST) == 50);
	TRY(cuEventElapsedTime(&ms, start, end));
	HOLDS(ms * 1e6f >= 50.0f * (float)brief * 0.9f);
	TRY(cuEventDestroy_v2(start));
	TRY(cuEventDestroy_v2(end));
}

/* Many tiny ones, and a long one with a wait behind it. */
static void tiny_and_long(void)
{
	for (int i = 0; i < 20000; i++)
		TRY(cuLaunchKernel(k.nothing, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	TRY(launch_spin(&k, 100000000, NULL));
	TRY(cuCtxSynchronize());
}

static const struct named cases[] = {
	{"plain", plain}, {"oldest", oldest}, {"graphs", graphs}, {"capture-undisturbed", capture_undisturbed},
	{"capture-beside", capture_beside}, {"between", between}, {"tiny-and-long", tiny_and_long},
};

int main(int argc, char **argv)
{
	const struct named *one = chosen(argc, argv, cases, COUNT(cases));

	use_device(0);
	k = load_kernels();
	one->run();
	say("ok");
	return 0;
}
