/* SPDX-License-Identifier: Apache-2.0
 *
 * outgrows CASE
 *
 * Programs that compute for longer than anybody expects, without end, and do not mean to. Says "ready" when it has its
 * context, and does its work when a line comes:
 *
 *   grows    kernels that are short, until that is known of their function, and then some that are long
 *   contexts each in a context of its own, which is destroyed at once
 *   behind   kernels behind a wait for the host's memory
 *   deep     long queues on many streams
 */
#include "kernels.h"

#define SHORT 10000u
#define LONG 20000000u
#define STREAMS 8

static struct kernels k;

static CUstream new_stream(void)
{
	CUstream stream;

	TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

static void launch(unsigned n, uint64_t nanoseconds, CUstream stream)
{
	while (n--)
		TRY(launch_spin(&k, nanoseconds, stream));
}

static void grows(void)
{
	CUstream stream = new_stream();

	for (;;) {
		for (unsigned i = 0; i < 20; i++) {
			launch(20, SHORT, stream);
			TRY(cuStreamSynchronize(stream));
		}
		launch(20, LONG, stream);
		TRY(cuStreamSynchronize(stream));
	}
}

static void contexts(void)
{
	for (;;) {
		CUcontext context;

		TRY(cuCtxCreate_v2(&context, 0, 0));
		k = load_kernels();
		launch(1, 2 * LONG, NULL);
		TRY(cuCtxDestroy_v2(context));
	}
}

static void behind(void)
{
	CUstream waits = new_stream(), writes = new_stream();
	CUdeviceptr word;

	TRY(cuMemAlloc_v2(&word, 4));
	TRY(cuMemsetD32_v2(word, 0, 1));
	for (uint32_t i = 1;; i++) {
		TRY(cuStreamWaitValue32_v2(waits, word, i, CU_STREAM_WAIT_VALUE_GEQ));
		launch(100, LONG / 20, waits);
		sleep_until(now_ns() + LONG / 2);
		TRY(cuStreamWriteValue32_v2(writes, word, i, 0));
		TRY(cuStreamSynchronize(waits));
	}
}

static void deep(void)
{
	CUstream streams[STREAMS];

	for (unsigned i = 0; i < STREAMS; i++)
		streams[i] = new_stream();
	for (;;) {
		for (unsigned i = 0; i < STREAMS; i++)
			launch(900, LONG / 2, streams[i]);
		say("queued");
		TRY(cuCtxSynchronize());
	}
}

static const struct named cases[] = {{"grows", grows}, {"contexts", contexts}, {"behind", behind}, {"deep", deep}};

int main(int argc, char **argv)
{
	const struct named *one = chosen(argc, argv, cases, COUNT(cases));
	char line[64];

	use_device(0);
	k = load_kernels();
	say("ready");
	HOLDS(fgets(line, sizeof line, stdin));
	one->run();
}
