/* SPDX-License-Identifier: Apache-2.0
 *
 * storm PROCESSES THREADS ROUNDS [BYTES]
 *
 * (PROCESSES may be "self": the program itself, and no other; or "tells", which is the same, and says
 * "round racer=N at=NS" whenever a thread has ended a round.) A line "races" says that a process is
 * at it.
 *
 * Processes race for the memory of one card, each with some threads: every
 * thread takes blocks by all kinds until it is refused, and frees them again,
 * ROUNDS times. Nothing but success and out of memory may come back.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "kinds.h"

#define HELD 64

struct racer {
	CUcontext context;
	uint64_t seed;
	unsigned rounds;
	bool tells; /* of each round when it ends */
	size_t bytes;
	uint64_t takes, refusals;
};

static void drop_all(struct block *held, size_t n)
{
	while (n--)
		expect(held[n].kind->drop(&held[n]), CUDA_SUCCESS, held[n].kind->name, __FILE__, __LINE__);
}

static void *race(void *argument)
{
	struct racer *r = argument;
	struct dice d = {r->seed};
	struct block held[HELD];

	TRY(cuCtxSetCurrent(r->context));
	for (unsigned round = 0; round < r->rounds; round++) {
		size_t n = 0;

		while (n < HELD) {
			struct block *b = &held[n];
			CUresult result;

			*b = (struct block){.kind = &kinds[below(&d, COUNT(kinds))], .bytes = 1 + below(&d, r->bytes)};
			result = b->kind->take(b);
			if (result == CUDA_ERROR_OUT_OF_MEMORY) {
				r->refusals++;
				break;
			}
			expect(result, CUDA_SUCCESS, b->kind->name, __FILE__, __LINE__);
			r->takes++;
			n++;
		}
		drop_all(held, n);
		if (r->tells) {
			printf("round racer=%" PRIu64 " at=%" PRIu64 "\n", r->seed, now_ns());
			fflush(stdout);
		}
	}
	return NULL;
}

static void run_threads(unsigned threads, unsigned rounds, size_t bytes, uint64_t seed, bool tells)
{
	struct racer racer[64];
	pthread_t thread[64];
	uint64_t takes = 0, refusals = 0;
	CUcontext context;

	HOLDS(threads > 0 && threads <= COUNT(thread));
	TRY(cuInit(0));
	/* Processes race for contexts too; one that gets none has lost. */
	for (;;) {
		CUresult result = cuDevicePrimaryCtxRetain(&context, 0);

		if (result == CUDA_SUCCESS)
			break;
		expect(result, CUDA_ERROR_OUT_OF_MEMORY, "a context", __FILE__, __LINE__);
		usleep(1000);
	}
	say("races");
	for (unsigned i = 0; i < threads; i++) {
		racer[i] = (struct racer){.context = context, .seed = seed * 1000 + i, .rounds = rounds, .tells = tells, .bytes = bytes};
		HOLDS(!pthread_create(&thread[i], NULL, race, &racer[i]));
	}
	for (unsigned i = 0; i < threads; i++) {
		HOLDS(!pthread_join(thread[i], NULL));
		takes += racer[i].takes;
		refusals += racer[i].refusals;
	}
	TRY(cuCtxSetCurrent(NULL));
	TRY(cuDevicePrimaryCtxRelease_v2(0));
	say("racer takes=%" PRIu64 " refusals=%" PRIu64, takes, refusals);
}

int main(int argc, char **argv)
{
	unsigned processes, threads, rounds;
	size_t bytes = 32 * MIB;

	if (argc < 4)
		fail("usage: storm PROCESSES THREADS ROUNDS [BYTES]");
	threads = (unsigned)number(argv[2]);
	rounds = (unsigned)number(argv[3]);
	if (argc > 4)
		bytes = number(argv[4]);
	if (!strcmp(argv[1], "self") || !strcmp(argv[1], "tells")) {
		run_threads(threads, rounds, bytes, 1, !strcmp(argv[1], "tells"));
		return 0;
	}
	processes = (unsigned)number(argv[1]);
	/* Forked before CUDA is used. */
	for (unsigned i = 0; i < processes; i++) {
		pid_t pid = fork();

		HOLDS(pid >= 0);
		if (!pid) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			run_threads(threads, rounds, bytes, i + 1, false);
			exit(0);
		}
	}
	for (unsigned i = 0; i < processes; i++) {
		int status;
		pid_t pid = wait(&status);

		HOLDS(pid > 0);
		if (status)
			fail("process %d ended with status %#x", (int)pid, (unsigned)status);
	}
	return 0;
}
