/* SPDX-License-Identifier: Apache-2.0
 *
 * races primary|graph ROUNDS BYTES
 *
 * Threads that give up what another one is about to use again, while another process
 * takes BYTES as soon as there is room. primary: the context, by the last release. graph: the
 * memory of a graph of BYTES, by trimming. The card's high-water mark tells whether
 * what was used again was charged before.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "client.h"
#include "kinds.h"

static uint64_t rounds, bytes;
static CUgraphExec graph;
static CUcontext context;
static bool over;

/* Waits for room, and takes it for a moment, once it is told to begin. */
static _Noreturn void take_what_is_left(int begin)
{
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	use_device(0);
	HOLDS(read(begin, &byte, 1) == 1);
	for (;;) {
		CUdeviceptr address;

		if (cuMemAlloc_v2(&address, bytes) == CUDA_SUCCESS)
			TRY(cuMemFree_v2(address));
	}
}

static void *retain_and_release(void *unused)
{
	for (uint64_t i = 0; i < rounds; i++) {
		CUcontext retained;

		if (cuDevicePrimaryCtxRetain(&retained, 0) == CUDA_SUCCESS)
			TRY(cuDevicePrimaryCtxRelease_v2(0));
	}
	return unused;
}

static void *trim(void *unused)
{
	TRY(cuCtxSetCurrent(context));
	while (!__atomic_load_n(&over, __ATOMIC_RELAXED))
		TRY(cuDeviceGraphMemTrim(0));
	return unused;
}

static void make_graph(void)
{
	CUDA_MEM_ALLOC_NODE_PARAMS parameters = {
		.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here() },
		.bytesize = bytes,
	};
	CUgraphNode made, freed;
	CUgraph whole;

	TRY(cuGraphCreate(&whole, 0));
	TRY(cuGraphAddMemAllocNode(&made, whole, NULL, 0, &parameters));
	TRY(cuGraphAddMemFreeNode(&freed, whole, &made, 1, parameters.dptr));
	/* The other process's context, just made, may be counted twice for an instant. */
	while (cuGraphInstantiateWithFlags(&graph, whole, 0) == CUDA_ERROR_OUT_OF_MEMORY)
		continue;
	TRY(cuGraphDestroy(whole));
}

static void launch_again_and_again(void)
{
	for (uint64_t i = 0; i < rounds; i++)
		if (cuGraphLaunch(graph, NULL) == CUDA_SUCCESS)
			TRY(cuCtxSynchronize());
	__atomic_store_n(&over, true, __ATOMIC_RELAXED);
}

int main(int argc, char **argv)
{
	bool primary = argc == 4 && !strcmp(argv[1], "primary");
	pthread_t other;
	int begin[2];
	pid_t pid;

	if (!primary && (argc != 4 || strcmp(argv[1], "graph") != 0))
		fail("usage: races primary|graph ROUNDS BYTES");
	rounds = number(argv[2]);
	bytes = number(argv[3]);
	HOLDS(!pipe(begin));
	pid = fork();
	HOLDS(pid >= 0);
	if (pid == 0)
		take_what_is_left(begin[0]);
	TRY(cuInit(0));
	if (!primary) {
		context = use_device(0);
		make_graph();
	}
	HOLDS(write(begin[1], "", 1) == 1);
	HOLDS(!pthread_create(&other, NULL, primary ? retain_and_release : trim, NULL));
	if (primary)
		retain_and_release(NULL);
	else
		launch_again_and_again();
	HOLDS(!pthread_join(other, NULL));
	HOLDS(!kill(pid, SIGKILL) && waitpid(pid, NULL, 0) == pid);
	return 0;
}
