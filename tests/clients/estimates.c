/* SPDX-License-Identifier: Apache-2.0
 *
 * estimates CASE
 *
 * Programs whose work takes longer than it did before. Says "ready" when it has its context, and
 * does its work when a line comes:
 *
 *   held     ROUNDS times twice: a graph waits for what comes behind a kernel on another stream, LATE_NS later and
 *            then at once
 *   beside   after the same, long kernels and short ones on two streams, without end
 *   longer   for each line kernels until all is known of them, and one that takes much longer and is not waited for
 *   grown    kernels that were short until then, on STREAMS streams in turn, GROWN_ROUNDS on each
 *   past     for each line kernels until a turn is about to be over, and then one that takes much longer than they did
 */
#include <pthread.h>

#include "kernels.h"

#define BRIEF 20000u
#define SHORT (30 * BRIEF)
#define USUAL (250 * BRIEF)
#define TINY (BRIEF / 4)
#define LATE_NS 50000000u
#define ROUNDS 40
#define STREAMS 16
#define GROWN_ROUNDS 10

static CUcontext primary;
static struct kernels k;

/* By the number of blocks, too, kernels are told apart. */
static CUresult spin(uint64_t nanoseconds, unsigned blocks, CUstream stream)
{
	void *parameters[] = {&nanoseconds};

	return cuLaunchKernel(k.spin, blocks, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

static CUstream new_stream(void)
{
	CUstream stream;

	TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

/* ---- work that waits for what is yet to be launched ------------------------------------- */

static CUdeviceptr word;

static CUgraphExec waiting_graph(CUstream stream)
{
	CUgraphExec exec;
	CUgraph graph;

	TRY(cuMemAlloc_v2(&word, 4));
	TRY(cuMemsetD32_v2(word, 0, 1));
	TRY(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	TRY(spin(BRIEF, 1, stream));
	TRY(cuStreamWaitValue32_v2(stream, word, 1, CU_STREAM_WAIT_VALUE_EQ));
	TRY(cuStreamWriteValue32_v2(stream, word, 0, 0));
	TRY(cuStreamEndCapture(stream, &graph));
	TRY(cuGraphInstantiateWithFlags(&exec, graph, 0));
	return exec;
}

static void go_round(CUgraphExec exec, CUstream waits, CUstream helps, uint64_t late)
{
	TRY(cuGraphLaunch(exec, waits));
	if (late)
		sleep_until(now_ns() + late);
	TRY(spin(BRIEF, 2, helps));
	TRY(cuStreamWriteValue32_v2(helps, word, 1, 0));
	TRY(cuStreamSynchronize(waits));
	TRY(cuStreamSynchronize(helps));
}

static void held(void)
{
	CUstream waits = new_stream(), helps = new_stream();
	CUgraphExec exec = waiting_graph(waits);

	for (int i = 0; i < ROUNDS; i++) {
		go_round(exec, waits, helps, LATE_NS);
		go_round(exec, waits, helps, 0);
	}
}

static void *launch_long(void *stream)
{
	TRY(cuCtxSetCurrent(primary));
	for (;;)
		TRY(spin(1000 * BRIEF, 4, stream));
	return NULL;
}

static void beside(void)
{
	CUstream stream = new_stream();
	pthread_t thread;

	held();
	say("beside");
	HOLDS(!pthread_create(&thread, NULL, launch_long, new_stream()));
	for (;;)
		TRY(spin(40 * BRIEF, 8, stream));
}

/* ---- work that takes longer than it did --------------------------------------------------- */

/* All is known of kernels of that length. */
static void learn(uint64_t nanoseconds, CUstream stream)
{
	for (int i = 0; i < 20; i++) {
		TRY(spin(nanoseconds, 1, stream));
		TRY(cuStreamSynchronize(stream));
	}
}

static void longer(void)
{
	CUstream stream = new_stream();
	char line[64];

	while (fgets(line, sizeof line, stdin)) {
		learn(USUAL, stream);
		TRY(spin(20 * USUAL, 1, stream));
		say("launched");
	}
}

static void grown(void)
{
	CUstream streams[STREAMS];

	for (int i = 0; i < STREAMS; i++)
		learn(TINY, streams[i] = new_stream());
	for (int round = 0; round < 10; round++)
		for (int i = 0; i < STREAMS; i++) {
			TRY(spin(TINY, 1, streams[i]));
			TRY(cuStreamSynchronize(streams[i]));
		}
	for (int round = 0; round < GROWN_ROUNDS; round++)
		for (int i = 0; i < STREAMS; i++)
			TRY(spin(8 * BRIEF, 1, streams[i]));
	say("launched");
	TRY(cuCtxSynchronize());
}

static void past(void)
{
	CUstream stream = new_stream();

	for (;;) {
		uint64_t began;

		learn(SHORT, stream);
		barrier("learned");
		TRY(spin(SHORT, 1, stream));
		began = now_ns();
		while (now_ns() - began < SHORT)
			TRY(spin(SHORT, 1, stream));
		TRY(spin(25 * SHORT, 1, stream));
		TRY(cuStreamSynchronize(stream));
		barrier("past");
	}
}

static const struct named cases[] = {{"held", held}, {"beside", beside}, {"longer", longer}, {"grown", grown}, {"past", past}};

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
