/* SPDX-License-Identifier: Apache-2.0
 *
 * awkward streams|several|threads|waits|full|hiccup
 *
 * Programs of which it is hard to know what they have in flight. streams, several, threads and waits
 * launch what was always short, and is long from then on: in turn on more streams than anybody
 * keeps account of, or on fewer, each from a thread that ends, or many before they wait. full: a context is
 * destroyed while another thread cannot launch, because its stream waits and is full. hiccup: a
 * graph waits for what another stream does, again and again, and once for long.
 */
#include <pthread.h>

#include "kernels.h"

#define SHORT_NS 1000
#define LONG_NS (5 * 1000000ull)
/* Long enough to be recorded at each launch. */
#define RECORDED_NS 200000
#define STREAMS 20
#define SEVERAL 8

static CUcontext primary;
static struct kernels kernels;

static void train(CUstream stream)
{
	for (int i = 0; i < 300; i++) {
		TRY(launch_spin(&kernels, SHORT_NS, stream));
		if (i % 10 == 0)
			TRY(cuStreamSynchronize(stream));
	}
	TRY(cuStreamSynchronize(stream));
}

static CUstream new_stream(void)
{
	CUstream stream;

	TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

static void in_turn(int count)
{
	CUstream streams[STREAMS];

	for (int i = 0; i < count; i++)
		train(streams[i] = new_stream());
	say("trained");
	for (unsigned round = 0;; round++)
		for (int i = 0; i < count; i++) {
			if (round % 4 == 3)
				TRY(cuStreamSynchronize(streams[i]));
			TRY(launch_spin(&kernels, LONG_NS, streams[i]));
		}
}

static void on_streams(void)
{
	in_turn(STREAMS);
}

static void on_several(void)
{
	in_turn(SEVERAL);
}

static void *launch_one(void *stream)
{
	TRY(cuCtxSetCurrent(primary));
	TRY(launch_spin(&kernels, LONG_NS, stream));
	return NULL;
}

static void by_threads(void)
{
	CUstream stream = new_stream();

	train(stream);
	say("trained");
	for (;;) {
		for (int i = 0; i < 30; i++) {
			pthread_t thread;

			HOLDS(!pthread_create(&thread, NULL, launch_one, stream));
			HOLDS(!pthread_join(thread, NULL));
		}
		TRY(cuStreamSynchronize(stream));
	}
}

static void with_waits(void)
{
	CUstream stream = new_stream();

	train(stream);
	say("trained");
	for (;;) {
		for (int i = 0; i < 30; i++)
			TRY(launch_spin(&kernels, LONG_NS, stream));
		TRY(cuStreamSynchronize(stream));
	}
}

static uint32_t launched;

static void *launch_many(void *stream)
{
	TRY(cuCtxSetCurrent(primary));
	for (unsigned i = 0; i < 1500; i++) {
		TRY(launch_spin(&kernels, RECORDED_NS, stream));
		__atomic_store_n(&launched, i + 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

/* Until the other thread has not got on for a while. */
static void await_full(void)
{
	uint32_t before = 0;

	for (int still = 0; still < 10; still++) {
		struct timespec nap = {.tv_nsec = 100000000};
		uint32_t now;

		nanosleep(&nap, NULL);
		now = __atomic_load_n(&launched, __ATOMIC_ACQUIRE);
		if (now == 0 || now != before)
			still = 0;
		before = now;
	}
}

static void full(void)
{
	CUstream stream = new_stream();
	struct kernels others;
	CUcontext other;
	CUdeviceptr flag;
	CUevent mark;
	pthread_t thread;

	TRY(cuMemAlloc_v2(&flag, 4096));
	TRY(cuMemsetD32_v2(flag, 0, 1));
	TRY(cuEventCreate(&mark, 0));
	for (int i = 0; i < 50; i++)
		TRY(launch_spin(&kernels, RECORDED_NS, NULL));
	TRY(cuCtxSynchronize());
	TRY(cuCtxCreate_v2(&other, 0, 0));
	others = load_kernels();
	for (int i = 0; i < 50; i++)
		TRY(launch_spin(&others, RECORDED_NS, NULL));
	TRY(cuCtxSynchronize());
	TRY(cuCtxSetCurrent(primary));
	TRY(cuStreamWaitValue32_v2(stream, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	TRY(cuEventRecord(mark, stream)); /* so that it is a record of the gate's that waits */
	HOLDS(!pthread_create(&thread, NULL, launch_many, stream));
	await_full();
	TRY(cuCtxDestroy_v2(other));
	TRY(cuStreamWriteValue32_v2(NULL, flag, 1, 0));
	HOLDS(!pthread_join(thread, NULL));
	TRY(cuCtxSynchronize());
}

/* A graph on one stream that a value lets go on, which it takes back. */
static CUgraphExec waiting_graph(CUdeviceptr flag)
{
	CUstreamBatchMemOpParams steps[2] = {
		{.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32, .address = flag, .value = 1, .flags = CU_STREAM_WAIT_VALUE_EQ}},
		{.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = flag, .value = 0}},
	};
	CUDA_BATCH_MEM_OP_NODE_PARAMS node = {.ctx = primary, .count = COUNT(steps), .paramArray = steps};
	CUgraphNode made;
	CUgraphExec exec;
	CUgraph graph;

	TRY(cuGraphCreate(&graph, 0));
	TRY(cuGraphAddBatchMemOpNode(&made, graph, NULL, 0, &node));
	TRY(cuGraphInstantiateWithFlags(&exec, graph, 0));
	return exec;
}

static void hiccup(void)
{
	CUstream waits = new_stream(), stream = new_stream();
	CUdeviceptr flag;
	CUgraphExec exec;

	TRY(cuMemAlloc_v2(&flag, 4096));
	TRY(cuMemsetD32_v2(flag, 0, 1));
	exec = waiting_graph(flag);
	for (int i = 0; i < 80; i++) {
		struct timespec nap = {.tv_sec = 4};

		TRY(cuGraphLaunch(exec, waits));
		if (i == 20)
			nanosleep(&nap, NULL);
		TRY(launch_spin(&kernels, SHORT_NS, stream));
		TRY(cuStreamWriteValue32_v2(stream, flag, 1, 0));
		TRY(cuStreamSynchronize(waits));
	}
}

static const struct named cases[] = {
	{"streams", on_streams}, {"several", on_several}, {"threads", by_threads}, {"waits", with_waits}, {"full", full}, {"hiccup", hiccup},
};

int main(int argc, char **argv)
{
	const struct named *one = chosen(argc, argv, cases, COUNT(cases));

	primary = use_device(0);
	kernels = load_kernels();
	one->run();
	return 0;
}
