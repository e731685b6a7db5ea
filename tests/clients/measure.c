/* SPDX-License-Identifier: Apache-2.0
 *
 * measure [BESIDE]
 *
 * How long calls of the driver take: "time NAME p50_ps=N p99_ps=N", in picoseconds,
 * with the cost of looking at the clock taken off. What takes a few nanoseconds is timed in
 * batches, whose mean counts as one time. BESIDE other processes of the same share
 * allocate and free without a pause meanwhile, and then only "allocate large" is
 * measured. A BESIDE of 0 leaves the process there until the end of its stdin, for who
 * looks at it.
 */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <x86intrin.h>

#include "kernels.h"
#include "kinds.h"

#define SAMPLES 20000
#define BATCH 64

static double ps_per_tick;
static uint64_t overhead;
static uint64_t ticks[SAMPLES];
static struct kernels k;
static CUdeviceptr standing[1000];

static inline uint64_t clock_ticks(void)
{
	unsigned cpu;
	uint64_t t = __rdtscp(&cpu);

	_mm_lfence();
	return t;
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void calibrate(void)
{
	uint64_t start = now_ns(), t = clock_ticks();

	while (now_ns() - start < 50000000)
		;
	ps_per_tick = (double)(now_ns() - start) * 1000 / (double)(clock_ticks() - t);
	for (size_t i = 0; i < SAMPLES; i++) {
		t = clock_ticks();
		ticks[i] = clock_ticks() - t;
	}
	qsort(ticks, SAMPLES, sizeof ticks[0], by_size);
	overhead = ticks[SAMPLES / 2];
}

static void report(const char *name, size_t samples, unsigned batch)
{
	qsort(ticks, samples, sizeof ticks[0], by_size);
	say("time %s p50_ps=%.0f p99_ps=%.0f", name, (double)ticks[samples / 2] * ps_per_tick / batch,
		(double)ticks[samples * 99 / 100] * ps_per_tick / batch);
}

static void linear(size_t bytes)
{
	CUdeviceptr a;

	TRY(cuMemAlloc_v2(&a, bytes));
	TRY(cuMemFree_v2(a));
}

static void small(void)
{
	linear(4096);
}

static void large(void)
{
	linear(64 * MIB);
}

static void stream_ordered(void)
{
	CUdeviceptr a;

	TRY(cuMemAllocAsync(&a, 4 * MIB, NULL));
	TRY(cuMemFreeAsync(a, NULL));
}

static void handle(void)
{
	static CUmemAllocationProp properties;
	CUmemGenericAllocationHandle h;

	if (!properties.type)
		properties = vmm_properties();
	TRY(cuMemCreate(&h, 4 * MIB, &properties, 0));
	TRY(cuMemRelease(h));
}

static void launch(void)
{
	TRY(cuLaunchKernel(k.nothing, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
}

static void entry(void)
{
	void *pointer;

	TRY(cuGetProcAddress("cuMemAlloc", &pointer, 11040, 0));
}

static void info(void)
{
	size_t left, total;

	TRY(cuMemGetInfo_v2(&left, &total));
}

static void pass(void)
{
	CUcontext context;

	TRY(cuCtxGetCurrent(&context));
}

static CUdeviceptr target;

static void copy(void)
{
	static char source[4096];

	TRY(cuMemcpyHtoDAsync_v2(target, source, sizeof source, NULL));
}

/* The queue must not fill up: launches would wait for the kernels. */
static void drain(void)
{
	TRY(cuCtxSynchronize());
}

static void one(const char *name, void (*call)(void), unsigned batch, size_t samples, void (*after)(void))
{
	for (unsigned i = 0; i < 200; i++)
		call();
	for (size_t i = 0; i < samples; i++) {
		uint64_t t = clock_ticks(), took;

		for (unsigned j = 0; j < batch; j++)
			call();
		took = clock_ticks() - t;
		ticks[i] = took > overhead ? took - overhead : 0;
		if (after)
			after();
	}
	report(name, samples, batch);
}

static _Noreturn void compete(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	use_device(0);
	say("competes");
	for (;;)
		large();
}

int main(int argc, char **argv)
{
	unsigned beside = argc > 1 ? (unsigned)number(argv[1]) : 0;
	pid_t others[64];

	HOLDS(beside <= COUNT(others));
	for (unsigned i = 0; i < beside; i++)
		if (!(others[i] = fork()))
			compete();
	use_device(0);
	calibrate();
	if (beside) {
		usleep(200000); /* until the others are at it: only figures depend on it */
		one("contended", large, 1, SAMPLES, NULL);
		for (unsigned i = 0; i < beside; i++)
			kill(others[i], SIGKILL);
		return 0;
	}
	k = load_kernels();
	one("launch", launch, BATCH, SAMPLES / 20, drain);
	TRY(cuMemAlloc_v2(&target, 4096));
	one("copy", copy, BATCH, SAMPLES / 20, drain);
	TRY(cuMemFree_v2(target));
	one("pass", pass, BATCH, SAMPLES / 20, NULL);
	one("entry", entry, BATCH, SAMPLES / 20, NULL);
	one("info", info, 1, SAMPLES, NULL);
	one("small", small, 1, SAMPLES, NULL);
	one("large", large, 1, SAMPLES, NULL);
	one("async", stream_ordered, 1, SAMPLES, NULL);
	one("handle", handle, 1, SAMPLES, NULL);
	for (size_t i = 0; i < COUNT(standing); i++)
		TRY(cuMemAlloc_v2(&standing[i], 64 << 10));
	one("standing", large, 1, SAMPLES, NULL);
	while (argc > 1 && getchar() != EOF)
		continue;
	return 0;
}
