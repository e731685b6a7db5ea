/* SPDX-License-Identifier: Apache-2.0
 *
 * habits host | turns
 *
 * What the driver and the card do by themselves. host says what waiting for work costs a thread:
 *   record ns=N          an event between two launches
 *   query ns=N           asking for one that has ended
 *   compile us=N         loading a module of PTX that was never loaded before
 *   wake blocking_us=N polling_us=N   how late a thread knows that a kernel has ended
 * turns has two processes on the card, each with a kernel that looks at the clock without a pause, and says
 * of each how often and how long it was not running:
 *   turns count=N median_us=N longest_us=N away=PERCENT
 * The simulated driver computes nothing: there count is 0.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "kernels.h"

#define ROUNDS 2000u
#define WAKES 300u
#define WAKE_NS 300000u
#define WATCH_NS 300000000u
#define ROOM 4096u

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static uint64_t median(uint64_t *values, size_t count)
{
	qsort(values, count, sizeof *values, by_size);
	return count ? values[count / 2] : 0;
}

/* ---- host ------------------------------------------------------------------- */

static struct kernels k;

/* A launch, and an event after it or not: the difference is the event's. */
static uint64_t launches(CUevent event)
{
	static uint64_t took[ROUNDS];

	for (size_t i = 0; i < ROUNDS; i++) {
		uint64_t start = now_ns();

		TRY(cuLaunchKernel(k.nothing, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
		if (event)
			TRY(cuEventRecord(event, NULL));
		took[i] = now_ns() - start;
		if (i % 64 == 63)
			TRY(cuCtxSynchronize()); /* the queue must not fill up */
	}
	return median(took, ROUNDS);
}

static uint64_t query(CUevent event)
{
	static uint64_t took[ROUNDS];

	TRY(cuEventSynchronize(event));
	for (size_t i = 0; i < ROUNDS; i++) {
		uint64_t start = now_ns();

		TRY(cuEventQuery(event));
		took[i] = now_ns() - start;
	}
	return median(took, ROUNDS);
}

static uint64_t compile(void)
{
	char text[1024];
	CUmodule module;
	uint64_t start;

	/* The time makes another kernel of it than any that a driver may have kept. */
	snprintf(text, sizeof text,
		".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry fresh(.param .u64 fresh_out)\n{\n"
		"	.reg .u64 %%out;\n	ld.param.u64 %%out, [fresh_out];\n	cvta.to.global.u64 %%out, %%out;\n"
		"	st.global.u64 [%%out], %" PRIu64 ";\n	ret;\n}\n", now_ns());
	start = now_ns();
	TRY(cuModuleLoadData(&module, text));
	return (now_ns() - start) / 1000;
}

static struct {
	volatile uint32_t *flag; /* the stream writes it */
	uint32_t awaited;
	uint64_t seen;
} poll;

static void *look(void *unused)
{
	while (*poll.flag != poll.awaited)
		;
	poll.seen = now_ns();
	return unused;
}

/* How long after a thread that does nothing but look at memory one that waits for the event
 * goes on. */
static uint64_t wake(CUevent event, CUdeviceptr flag)
{
	static uint64_t late[WAKES];

	for (size_t i = 0; i < WAKES; i++) {
		pthread_t thread;
		uint64_t woke;

		poll.awaited++;
		TRY(launch_spin(&k, WAKE_NS, NULL));
		TRY(cuStreamWriteValue32_v2(NULL, flag, poll.awaited, 0));
		TRY(cuEventRecord(event, NULL));
		HOLDS(!pthread_create(&thread, NULL, look, NULL));
		TRY(cuEventSynchronize(event));
		woke = now_ns();
		HOLDS(!pthread_join(thread, NULL));
		late[i] = woke > poll.seen ? woke - poll.seen : 0;
	}
	return median(late, WAKES);
}

static void host(void)
{
	CUevent polling, blocking;
	CUdeviceptr flag;
	uint64_t without;
	int values = 0;
	void *memory;

	use_device(0);
	k = load_kernels();
	TRY(cuEventCreate(&polling, CU_EVENT_DISABLE_TIMING));
	TRY(cuEventCreate(&blocking, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
	launches(NULL);
	without = launches(NULL);
	say("record ns=%" PRId64, (int64_t)(launches(polling) - without));
	say("query ns=%" PRIu64, query(polling));
	say("compile us=%" PRIu64, compile());
	if (cuDeviceGetAttribute(&values, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0) || !values)
		return;
	TRY(cuMemHostAlloc(&memory, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	memset(memory, 0, 4096);
	poll.flag = memory;
	TRY(cuMemHostGetDevicePointer_v2(&flag, memory, 0));
	say("wake blocking_us=%.1f polling_us=%.1f", (double)wake(blocking, flag) / 1000, (double)wake(polling, flag) / 1000);
}

/* ---- turns ------------------------------------------------------------------- */

/* watch(nanoseconds, gaps, room): the times of more than 0.1 ms that pass between two looks at the
 * clock; the first word is how many they are. */
static const char watch_text[] =
	".version 6.0\n"
	".target sm_50\n"
	".address_size 64\n"
	".visible .entry watch(.param .u64 watch_nanoseconds, .param .u64 watch_gaps, .param .u64 watch_room)\n"
	"{\n"
	"	.reg .u64 %end, %now, %last, %gap, %gaps, %room, %count, %at;\n"
	"	.reg .pred %more, %none;\n"
	"	ld.param.u64 %end, [watch_nanoseconds];\n"
	"	ld.param.u64 %gaps, [watch_gaps];\n"
	"	ld.param.u64 %room, [watch_room];\n"
	"	cvta.to.global.u64 %gaps, %gaps;\n"
	"	mov.u64 %at, %gaps;\n"
	"	mov.u64 %count, 0;\n"
	"	mov.u64 %last, %globaltimer;\n"
	"	add.u64 %end, %end, %last;\n"
	"again:\n"
	"	mov.u64 %now, %globaltimer;\n"
	"	sub.u64 %gap, %now, %last;\n"
	"	mov.u64 %last, %now;\n"
	"	setp.lt.u64 %none, %gap, 100000;\n"
	"	@%none bra next;\n"
	"	setp.ge.u64 %none, %count, %room;\n"
	"	@%none bra next;\n"
	"	add.u64 %count, %count, 1;\n"
	"	add.u64 %at, %at, 8;\n"
	"	st.global.u64 [%at], %gap;\n"
	"next:\n"
	"	setp.lt.u64 %more, %now, %end;\n"
	"	@%more bra again;\n"
	"	st.global.u64 [%gaps], %count;\n"
	"	ret;\n"
	"}\n";

static _Noreturn void watcher(int ready, int go)
{
	static uint64_t gaps[ROOM];
	uint64_t nanoseconds = WATCH_NS, room = ROOM - 1, away = 0, longest = 0;
	void *parameters[] = {&nanoseconds, NULL, &room};
	CUfunction function;
	CUmodule module;
	CUdeviceptr buffer;
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	use_device(0);
	TRY(cuModuleLoadData(&module, watch_text));
	TRY(cuModuleGetFunction(&function, module, "watch"));
	TRY(cuMemAlloc_v2(&buffer, sizeof gaps));
	TRY(cuMemsetD8_v2(buffer, 0, sizeof gaps));
	TRY(cuCtxSynchronize());
	parameters[1] = &buffer;
	HOLDS(write(ready, "", 1) == 1 && !close(ready) && read(go, &byte, 1) == 1);
	TRY(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
	TRY(cuCtxSynchronize());
	TRY(cuMemcpyDtoH_v2(gaps, buffer, sizeof gaps));
	for (uint64_t i = 1; i <= gaps[0]; i++) {
		away += gaps[i];
		longest = gaps[i] > longest ? gaps[i] : longest;
	}
	say("turns count=%" PRIu64 " median_us=%" PRIu64 " longest_us=%" PRIu64 " away=%.1f", gaps[0], median(gaps + 1, gaps[0]) / 1000, longest / 1000,
		100 * (double)away / WATCH_NS);
	exit(0);
}

static void turns(void)
{
	int ready[2], go[2], status;
	char byte;

	HOLDS(!pipe(ready) && !pipe(go));
	for (unsigned i = 0; i < 2; i++)
		if (!fork())
			watcher(ready[1], go[0]);
	close(ready[1]); /* as who is ready does: so the end of who is not is seen */
	for (unsigned i = 0; i < 2; i++)
		if (read(ready[0], &byte, 1) != 1)
			fail("a process ended before it was ready");
	HOLDS(write(go[1], "go", 2) == 2);
	for (unsigned i = 0; i < 2; i++) {
		HOLDS(wait(&status) > 0);
		if (status)
			fail("a process ended with status %d", status);
	}
}

int main(int argc, char **argv)
{
	const char *what = argc == 2 ? argv[1] : "";

	if (!strcmp(what, "host"))
		host();
	else if (!strcmp(what, "turns"))
		turns();
	else
		fail("host or turns");
	return 0;
}
