/* SPDX-License-Identifier: Apache-2.0
 *
 * gate CASE
 *
 * What a program does whose launches wait for a lease. Says "ready" when it has its context, does
 * its work when a line comes, says on the way how far it is, and "ok" when all is done; ends with
 * stdin.
 */
#include <pthread.h>
#include <sys/wait.h>

#include "kernels.h"

#define SMALL (64ull << 10)
#define LARGE (4 * MIB)
#define BRIEF 20000u

static CUcontext primary;
static struct kernels k;

static void *in_vain(size_t bytes)
{
	void *memory = calloc(1, bytes);

	HOLDS(memory);
	return memory;
}

/* ---- copies ------------------------------------------------------------------------ */

static void copies(void)
{
	void *host = in_vain(LARGE);
	CUdeviceptr a, b;
	CUDA_MEMCPY2D rows = {
		.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = host, .srcPitch = MIB,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstPitch = MIB, .WidthInBytes = MIB, .Height = 4,
	};

	TRY(cuMemAlloc_v2(&a, LARGE));
	TRY(cuMemAlloc_v2(&b, LARGE));
	rows.dstDevice = a;
	TRY(cuMemcpyHtoD_v2(a, host, SMALL));
	TRY(cuMemcpyDtoD_v2(b, a, SMALL));
	TRY(cuMemsetD8_v2(a, 1, SMALL));
	say("small");
	TRY(cuMemcpyHtoD_v2(a, host, LARGE));
	say("large");
	TRY(cuMemcpyHtoDAsync_v2(a, host, LARGE, NULL));
	TRY(cuMemcpyDtoDAsync_v2(b, a, LARGE, CU_STREAM_PER_THREAD));
	TRY(cuMemcpyDtoH_v2(host, b, LARGE));
	TRY(cuMemsetD32_v2(a, 1, LARGE / 4));
	TRY(cuMemsetD2D8_v2(a, MIB, 1, MIB, 4));
	TRY(cuMemcpy2D_v2(&rows));
	TRY(cuCtxSynchronize());
}

/* ---- captures ----------------------------------------------------------------------- */

static int stop;

/* Launches on another thread while a capture is on. */
static void *launch_beside(void *unused)
{
	CUstream stream;

	(void)unused;
	TRY(cuCtxSetCurrent(primary));
	TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE))
		TRY(launch_spin(&k, BRIEF, stream));
	TRY(cuStreamDestroy_v2(stream));
	return NULL;
}

/* Launches that are captured do not wait, and break nothing. */
static CUgraph capture(CUstream stream, int launches)
{
	size_t nodes;
	CUgraph graph;

	TRY(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	for (int i = 0; i < launches; i++)
		TRY(launch_spin(&k, BRIEF, stream));
	TRY(cuStreamEndCapture(stream, &graph));
	TRY(cuGraphGetNodes(graph, NULL, &nodes));
	HOLDS(nodes == (size_t)launches);
	return graph;
}

static void captures(void)
{
	CUgraphExec exec;
	pthread_t thread;
	CUstream stream;
	CUgraph graph;

	TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	graph = capture(stream, 5);
	say("captured");
	TRY(cuGraphInstantiateWithFlags(&exec, graph, 0));
	TRY(cuGraphLaunch(exec, stream));
	say("launched");
	HOLDS(!pthread_create(&thread, NULL, launch_beside, NULL));
	for (int i = 0; i < 200; i++) {
		TRY(launch_spin(&k, BRIEF, stream));
		TRY(cuGraphDestroy(capture(stream, 100)));
		TRY(cuGraphLaunch(exec, stream));
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	HOLDS(!pthread_join(thread, NULL));
	TRY(cuStreamSynchronize(stream));
	TRY(cuGraphExecDestroy(exec));
	TRY(cuGraphDestroy(graph));
	TRY(cuStreamDestroy_v2(stream));
}

/* ---- streams that wait for each other --------------------------------------------------- */

/* What the one waits for comes behind a lot of work on the other. */
static void values(void)
{
	CUstream first, second;
	CUdeviceptr word;

	TRY(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
	TRY(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
	TRY(cuMemAlloc_v2(&word, 4));
	for (unsigned round = 1; round <= 10; round++) {
		TRY(cuStreamWaitValue32_v2(first, word, round, CU_STREAM_WAIT_VALUE_EQ));
		for (int i = 0; i < 100; i++)
			TRY(launch_spin(&k, BRIEF, first));
		for (int i = 0; i < 100; i++)
			TRY(launch_spin(&k, BRIEF, second));
		TRY(cuStreamWriteValue32_v2(second, word, round, 0));
		TRY(cuStreamSynchronize(first));
		TRY(cuStreamSynchronize(second));
	}
	TRY(cuMemFree_v2(word));
	TRY(cuStreamDestroy_v2(first));
	TRY(cuStreamDestroy_v2(second));
}

/* ---- a stream that is full ------------------------------------------------------------------ */

static unsigned launched;

/* More than fits into a stream. */
static void *fill(void *stream)
{
	TRY(cuCtxSetCurrent(primary));
	for (int i = 0; i < 2000; i++) {
		TRY(launch_spin(&k, BRIEF, stream));
		__atomic_add_fetch(&launched, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void wait_for_go(void *unused)
{
	(void)unused;
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE))
		sleep_until(now_ns() + 1000000);
}

/* A thread waits in a launch, for the stream waits for a host function. */
static void full(void)
{
	unsigned before = 0;
	pthread_t thread;
	CUstream stream;

	TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	TRY(launch_spin(&k, BRIEF, stream));
	TRY(cuLaunchHostFunc(stream, wait_for_go, NULL));
	HOLDS(!pthread_create(&thread, NULL, fill, stream));
	for (unsigned now = 0; now < 200 || now != before; now = __atomic_load_n(&launched, __ATOMIC_RELAXED)) {
		before = now;
		sleep_until(now_ns() + 100000000);
	}
	barrier("full");
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	HOLDS(!pthread_join(thread, NULL));
	TRY(cuStreamSynchronize(stream));
}

/* ---- contexts that end ---------------------------------------------------------------------- */

static void *use_context(void *unused)
{
	(void)unused;
	for (int round = 0; round < 10; round++) {
		struct kernels own;
		CUcontext context;

		TRY(cuCtxCreate_v2(&context, 0, 0));
		own = load_kernels();
		for (int i = 0; i < 300; i++)
			TRY(launch_spin(&own, BRIEF, i % 2 ? NULL : CU_STREAM_PER_THREAD));
		TRY(cuCtxDestroy_v2(context));
	}
	return NULL;
}

static void contexts(void)
{
	pthread_t thread[2];

	for (size_t i = 0; i < COUNT(thread); i++)
		HOLDS(!pthread_create(&thread[i], NULL, use_context, NULL));
	for (int i = 0; i < 2000; i++)
		TRY(launch_spin(&k, BRIEF, NULL));
	for (size_t i = 0; i < COUNT(thread); i++)
		HOLDS(!pthread_join(thread[i], NULL));
	for (int round = 0; round < 5; round++) {
		TRY(cuDevicePrimaryCtxReset_v2(0));
		TRY(cuDevicePrimaryCtxRetain(&primary, 0));
		TRY(cuCtxSetCurrent(primary));
		k = load_kernels();
		for (int i = 0; i < 300; i++)
			TRY(launch_spin(&k, BRIEF, NULL));
	}
}

/* ---- threads and streams ---------------------------------------------------------------------- */

static void *use_streams(void *argument)
{
	struct dice dice = {(uintptr_t)argument};
	CUstream stream[6];

	TRY(cuCtxSetCurrent(primary));
	for (size_t i = 0; i < COUNT(stream); i++)
		TRY(cuStreamCreate(&stream[i], i % 2 ? CU_STREAM_NON_BLOCKING : 0));
	for (int i = 0; i < 1000; i++) {
		size_t n = below(&dice, COUNT(stream));

		TRY(launch_spin(&k, 1000 + below(&dice, 2 * BRIEF), stream[n]));
		TRY(cuLaunchKernel_ptsz(k.nothing, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
		if (below(&dice, 10))
			continue;
		TRY(cuStreamDestroy_v2(stream[n]));
		TRY(cuStreamCreate(&stream[n], CU_STREAM_NON_BLOCKING));
	}
	for (size_t i = 0; i < COUNT(stream); i++)
		TRY(cuStreamDestroy_v2(stream[i]));
	return NULL;
}

static void streams(void)
{
	for (uintptr_t round = 0; round < 3; round++) {
		pthread_t thread[4];

		for (uintptr_t i = 0; i < COUNT(thread); i++)
			HOLDS(!pthread_create(&thread[i], NULL, use_streams, (void *)(round * COUNT(thread) + i)));
		for (size_t i = 0; i < COUNT(thread); i++)
			HOLDS(!pthread_join(thread[i], NULL));
	}
	TRY(cuCtxSynchronize());
}

/* ---- children ------------------------------------------------------------------------------------ */

static void children(void)
{
	for (int i = 0; i < 10; i++) {
		int status;
		pid_t child;

		TRY(launch_spin(&k, BRIEF, NULL));
		child = fork();
		HOLDS(child >= 0);
		if (child == 0) {
			CUresult result = launch_spin(&k, BRIEF, NULL);

			_exit(result == CUDA_SUCCESS ? 1 : 0);
		}
		HOLDS(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
		errno = 1234;
		TRY(launch_spin(&k, BRIEF, NULL));
		HOLDS(errno == 1234);
	}
	TRY(cuCtxSynchronize());
}

/* ---- programs that do not tidy up -------------------------------------------------------------------- */

static void unfinished(void)
{
	for (int i = 0; i < 200; i++)
		TRY(launch_spin(&k, 10 * BRIEF, i % 2 ? NULL : CU_STREAM_PER_THREAD));
}

static void replaced(void)
{
	unfinished();
	execl("/proc/self/exe", "gate", "unfinished", NULL);
	fail("exec: %s", strerror(errno));
}

/* ---- what is recorded late --------------------------------------------------------------------------- */

static void *launch_once(void *unused)
{
	(void)unused;
	TRY(cuCtxSetCurrent(primary));
	TRY(launch_spin(&k, BRIEF, CU_STREAM_PER_THREAD));
	return NULL;
}

/* A launch that is one of a batch is recorded only when the thread waits for it, while another thread
 * waits for the lease. */
static void late(void)
{
	pthread_t thread;
	CUstream stream;

	TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 100; i++)
		TRY(launch_spin(&k, BRIEF, stream));
	TRY(cuStreamSynchronize(stream));
	TRY(launch_spin(&k, BRIEF, stream));
	barrier("tallied");
	HOLDS(!pthread_create(&thread, NULL, launch_once, NULL));
	barrier("beside");
	TRY(cuStreamSynchronize(stream));
	say("synchronized");
	HOLDS(!pthread_join(thread, NULL));
	TRY(cuStreamDestroy_v2(stream));
}

/* ---- launches on several cards at once --------------------------------------------------------------- */

static void together(void)
{
	uint64_t ns = 50 * BRIEF;
	void *parameters[] = {&ns};
	CUDA_LAUNCH_PARAMS list = {
		.function = k.spin, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1,
		.kernelParams = parameters,
	};

	TRY(cuStreamCreate(&list.hStream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 200; i++)
		TRY(cuLaunchCooperativeKernelMultiDevice(&list, 1, 0));
	TRY(cuStreamSynchronize(list.hStream));
}

static const struct named cases[] = {
	{"copies", copies}, {"captures", captures}, {"values", values}, {"contexts", contexts},
	{"streams", streams}, {"children", children}, {"unfinished", unfinished}, {"replaced", replaced}, {"together", together},
	{"late", late}, {"full", full},
};

int main(int argc, char **argv)
{
	const struct named *one = chosen(argc, argv, cases, COUNT(cases));
	char line[64];

	primary = use_device(0);
	k = load_kernels();
	say("ready");
	HOLDS(fgets(line, sizeof line, stdin));
	one->run();
	say("ok");
	while (fgets(line, sizeof line, stdin))
		;
	return 0;
}
