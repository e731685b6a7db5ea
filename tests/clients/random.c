/* SPDX-License-Identifier: Apache-2.0
 *
 * random SEED ROUNDS STEPS THREADS
 *
 * Says "quiet start" when it has a context, then ROUNDS times: THREADS threads do STEPS things each, chosen by SEED, then all is
 * quiet until a line comes on stdin: "quiet N". Between the threads' own steps the first
 * one starts children, which are this program again and end in one of the ways
 * that programs end: by themselves, without freeing anything, by _exit or by
 * SIGKILL. At last the program ends so itself. Only success and out of memory, or what
 * a step must give, may come back.
 */
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include "kernels.h"
#include "kinds.h"

#define HELD 48
#define MAX_MODULES 3
#define LARGEST (24 * MIB)

struct worker {
	struct dice dice;
	unsigned index;
	struct block held[HELD];
	size_t count;
	CUmodule module[MAX_MODULES];
	size_t modules;
	CUcontext extra;
};

static CUcontext context;
static struct kernels kernels;
static unsigned rounds, steps, threads;
static pthread_barrier_t together;
static bool is_child;

/* Success, or out of memory; says which. */
static bool had(CUresult result, const char *what)
{
	if (result != CUDA_ERROR_OUT_OF_MEMORY)
		expect(result, CUDA_SUCCESS, what, __FILE__, __LINE__);
	return result == CUDA_SUCCESS;
}

static void step_take(struct worker *w)
{
	struct block *b = &w->held[w->count];

	if (w->count == HELD)
		return;
	/* Each size class is as likely as any other. */
	*b = (struct block){.kind = &kinds[below(&w->dice, COUNT(kinds))], .bytes = 1 + below(&w->dice, LARGEST >> below(&w->dice, 20))};
	if (had(b->kind->take(b), b->kind->name))
		w->count++;
}

static void step_drop(struct worker *w)
{
	size_t i;

	if (!w->count)
		return;
	i = below(&w->dice, w->count);
	expect(w->held[i].kind->drop(&w->held[i]), CUDA_SUCCESS, w->held[i].kind->name, __FILE__, __LINE__);
	w->held[i] = w->held[--w->count];
}

static void step_drop_all(struct worker *w)
{
	while (w->count)
		step_drop(w);
}

static void step_launch(struct worker *w)
{
	TRY(launch_spin(&kernels, below(&w->dice, 20000), NULL));
	if (!below(&w->dice, 4))
		TRY(cuCtxSynchronize());
}

static void step_info(struct worker *w)
{
	size_t left, total;

	(void)w;
	TRY(cuMemGetInfo_v2(&left, &total));
	HOLDS(left <= total);
}

static void step_module(struct worker *w)
{
	if (w->modules < MAX_MODULES && below(&w->dice, 2)) {
		if (had(cuModuleLoadData(&w->module[w->modules], kernels_text), "a module"))
			w->modules++;
	} else if (w->modules) {
		TRY(cuModuleUnload(w->module[--w->modules]));
	}
}

/* A second context, of the first thread only. */
static void step_context(struct worker *w)
{
	if (w->index)
		return;
	if (w->extra) {
		TRY(cuCtxDestroy_v2(w->extra));
		w->extra = NULL;
	} else if (had(cuCtxCreate_v2(&w->extra, 0, 0), "a context")) {
		TRY(cuCtxPopCurrent_v2(NULL));
	} else {
		w->extra = NULL;
	}
}

static void step_limit(struct worker *w)
{
	had(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024 << below(&w->dice, 4)), "a limit");
}

static void step_pool(struct worker *w)
{
	uint64_t threshold = below(&w->dice, 2) ? UINT64_MAX : 0;
	CUmemoryPool pool;

	TRY(cuDeviceGetDefaultMemPool(&pool, 0));
	if (below(&w->dice, 2))
		TRY(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	else
		TRY(cuMemPoolTrimTo(pool, below(&w->dice, 4) * 4 * MIB));
}

/* What is not ours to free is the driver's to refuse. */
static void step_unknown(struct worker *w)
{
	WANT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(0x1230000 + below(&w->dice, 100)));
}

/* Another handle of the same memory costs nothing and keeps it. */
static void step_retain(struct worker *w)
{
	for (size_t i = 0; i < w->count; i++) {
		struct block *b = &w->held[i];
		CUmemGenericAllocationHandle handle;

		if (strcmp(b->kind->name, "vmm"))
			continue;
		TRY(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)b->address));
		TRY(cuMemRelease(handle));
		return;
	}
}

/* A child of fork cannot use CUDA, as with any driver, and must not disturb. */
static void step_fork(struct worker *w)
{
	int status;
	pid_t pid;

	if (w->index)
		return;
	pid = fork();
	HOLDS(pid >= 0);
	if (!pid) {
		CUdeviceptr address;
		CUresult result = cuMemAlloc_v2(&address, MIB);

		_exit(result == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
	}
	while (waitpid(pid, &status, 0) < 0)
		HOLDS(errno == EINTR);
	if (status)
		fail("the child of a fork ended with status %#x", (unsigned)status);
}

static void step_child(struct worker *w)
{
	char seed[24], some[16];
	char *arguments[] = {"random", seed, "1", some, "1", "child", NULL};
	extern char **environ;
	int status;
	pid_t pid;

	if (w->index || is_child)
		return;
	snprintf(seed, sizeof seed, "%" PRIu64, roll(&w->dice));
	snprintf(some, sizeof some, "%u", (unsigned)below(&w->dice, steps + 1));
	HOLDS(!posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environ));
	while (waitpid(pid, &status, 0) < 0)
		HOLDS(errno == EINTR);
	if (status && status != SIGKILL)
		fail("a child with seed %s ended with status %#x", seed, (unsigned)status);
}

static const struct {
	void (*run)(struct worker *w);
	unsigned weight;
} all_steps[] = {
	{step_take, 400}, {step_drop, 260}, {step_drop_all, 6}, {step_launch, 60}, {step_info, 60}, {step_module, 30},
	{step_context, 12}, {step_limit, 10}, {step_pool, 20}, {step_unknown, 20}, {step_retain, 30}, {step_fork, 2}, {step_child, 6},
};

static void one_step(struct worker *w)
{
	uint64_t sum = 0, at;
	size_t i = 0;

	for (size_t j = 0; j < COUNT(all_steps); j++)
		sum += all_steps[j].weight;
	for (at = below(&w->dice, sum); at >= all_steps[i].weight; i++)
		at -= all_steps[i].weight;
	all_steps[i].run(w);
}

static void *work(void *argument)
{
	struct worker *w = argument;

	TRY(cuCtxSetCurrent(context));
	for (unsigned round = 0; round < rounds; round++) {
		for (unsigned i = 0; i < steps; i++)
			one_step(w);
		pthread_barrier_wait(&together);
		if (!w->index && !is_child) {
			char name[16];

			TRY(cuCtxSynchronize());
			snprintf(name, sizeof name, "%u", round);
			barrier(name);
		}
		pthread_barrier_wait(&together);
	}
	return NULL;
}

static void end(struct worker *w)
{
	uint64_t how = below(&w[0].dice, 4);

	if (how == 0) {
		for (unsigned i = 0; i < threads; i++) {
			step_drop_all(&w[i]);
			while (w[i].modules)
				TRY(cuModuleUnload(w[i].module[--w[i].modules]));
		}
		TRY(cuCtxSetCurrent(NULL));
		TRY(cuDevicePrimaryCtxRelease_v2(0));
	} else if (how == 1) {
		exit(0);
	} else if (how == 2) {
		_exit(0);
	} else {
		raise(SIGKILL);
	}
}

int main(int argc, char **argv)
{
	static struct worker worker[16];
	pthread_t thread[COUNT(worker)];
	CUresult result;

	if (argc < 5)
		fail("usage: random SEED ROUNDS STEPS THREADS");
	rounds = (unsigned)number(argv[2]);
	steps = (unsigned)number(argv[3]);
	threads = (unsigned)number(argv[4]);
	is_child = argc > 5;
	HOLDS(threads > 0 && threads <= COUNT(worker));
	TRY(cuInit(0));
	result = cuDevicePrimaryCtxRetain(&context, 0);
	if (is_child && result == CUDA_ERROR_OUT_OF_MEMORY)
		return 0; /* the share is full: no context for a child */
	expect(result, CUDA_SUCCESS, "the context", __FILE__, __LINE__);
	TRY(cuCtxSetCurrent(context));
	/* Loaded lazily, the module takes its memory only when the function is asked for. */
	result = cuModuleLoadData(&kernels.module, kernels_text);
	if (result == CUDA_SUCCESS)
		result = cuModuleGetFunction(&kernels.spin, kernels.module, "spin");
	if (is_child && result == CUDA_ERROR_OUT_OF_MEMORY)
		return 0;
	expect(result, CUDA_SUCCESS, "the kernels", __FILE__, __LINE__);
	if (!is_child)
		barrier("start");
	HOLDS(!pthread_barrier_init(&together, NULL, threads));
	for (unsigned i = 0; i < threads; i++) {
		worker[i].index = i;
		worker[i].dice.state = number(argv[1]) * 64 + i;
	}
	for (unsigned i = 1; i < threads; i++)
		HOLDS(!pthread_create(&thread[i], NULL, work, &worker[i]));
	work(&worker[0]);
	for (unsigned i = 1; i < threads; i++)
		HOLDS(!pthread_join(thread[i], NULL));
	end(worker);
	return 0;
}
