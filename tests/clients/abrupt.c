/* SPDX-License-Identifier: Apache-2.0
 *
 * abrupt contexts|primary|waits|cancelled
 *
 * Programs that end what is at work, or hold it up. Says "ready" and begins when a line comes.
 *   contexts  makes contexts and destroys each with a kernel in flight, without end
 *   primary   the same with the primary context, which it releases
 *   waits     launches as much as a stream holds, which waits for a value that it writes after another line
 *   cancelled cancels threads while they launch, and does nothing more until a line comes
 */
#include <pthread.h>

#include "kernels.h"

#define LONG_NS 30000000u
/* Long enough to be recorded at each launch. */
#define RECORDED_NS 200000u
/* A stream has room for a thousand. */
#define DEPTH 850

static void contexts(void)
{
	for (;;) {
		struct kernels kernels;
		CUcontext context;

		TRY(cuCtxCreate_v2(&context, 0, 0));
		kernels = load_kernels();
		TRY(launch_spin(&kernels, LONG_NS, NULL));
		TRY(cuCtxDestroy_v2(context));
	}
}

static void primary(void)
{
	for (;;) {
		struct kernels kernels;

		use_device(0);
		kernels = load_kernels();
		TRY(launch_spin(&kernels, LONG_NS, NULL));
		TRY(cuDevicePrimaryCtxRelease_v2(0));
	}
}

static void waits(void)
{
	struct kernels kernels;
	CUstream stream, other;
	CUdeviceptr word;

	use_device(0);
	kernels = load_kernels();
	TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	TRY(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	TRY(cuMemAlloc_v2(&word, 4));
	TRY(cuMemsetD32_v2(word, 0, 1));
	for (int i = 0; i < 50; i++)
		TRY(launch_spin(&kernels, RECORDED_NS, stream));
	TRY(cuStreamSynchronize(stream));
	TRY(cuStreamWaitValue32_v2(stream, word, 1, CU_STREAM_WAIT_VALUE_EQ));
	for (int i = 0; i < DEPTH; i++)
		TRY(launch_spin(&kernels, RECORDED_NS, stream));
	barrier("launched");
	TRY(cuStreamWriteValue32_v2(other, word, 1, 0));
	TRY(launch_spin(&kernels, RECORDED_NS, other)); /* so that the card is wanted again */
	TRY(cuStreamSynchronize(stream));
	barrier("ended");
}

static CUcontext used;
static struct kernels kernels_used;

static _Noreturn void *launch_on(void *stream)
{
	TRY(cuCtxSetCurrent(used));
	for (;;) {
		TRY(launch_spin(&kernels_used, 5 * RECORDED_NS, stream));
		pthread_testcancel();
	}
}

static void cancelled(void)
{
	CUstream stream;

	used = use_device(0);
	kernels_used = load_kernels();
	TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int round = 0; round < 20; round++) {
		pthread_t thread[4];

		for (size_t i = 0; i < COUNT(thread); i++)
			HOLDS(!pthread_create(&thread[i], NULL, launch_on, stream));
		sleep_until(now_ns() + 10000000);
		for (size_t i = 0; i < COUNT(thread); i++)
			HOLDS(!pthread_cancel(thread[i]));
		for (size_t i = 0; i < COUNT(thread); i++)
			HOLDS(!pthread_join(thread[i], NULL));
	}
	TRY(cuCtxSynchronize());
	barrier("cancelled");
}

static const struct named cases[] = {{"contexts", contexts}, {"primary", primary}, {"waits", waits}, {"cancelled", cancelled}};

int main(int argc, char **argv)
{
	const struct named *one = chosen(argc, argv, cases, COUNT(cases));
	char line[64];

	TRY(cuInit(0));
	say("ready");
	HOLDS(fgets(line, sizeof line, stdin));
	one->run();
	say("ok");
	return 0;
}
