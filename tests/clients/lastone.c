/* SPDX-License-Identifier: Apache-2.0
 *
 * lastone PROCESSES ROUNDS BYTES
 *
 * PROCESSES ask for BYTES at the very same moment, ROUNDS times. BYTES is more than half
 * of what is free: exactly one may get it, and one must.
 */
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "client.h"

/* What the processes share: a barrier, and how many had luck in a round. */
struct start {
	uint32_t arrived;
	uint32_t round;
	uint32_t lucky;
};

static struct start *start;
static uint32_t processes;

/* All of them leave it within some nanoseconds of each other. */
static void together(void)
{
	uint32_t round = __atomic_load_n(&start->round, __ATOMIC_ACQUIRE);

	if (__atomic_add_fetch(&start->arrived, 1, __ATOMIC_ACQ_REL) == processes) {
		__atomic_store_n(&start->arrived, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&start->round, round + 1, __ATOMIC_RELEASE);
		return;
	}
	for (unsigned spins = 0; __atomic_load_n(&start->round, __ATOMIC_ACQUIRE) == round; spins++)
		if (spins > 20000)
			sched_yield();
}

static void run(uint64_t rounds, size_t bytes)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	use_device(0);
	for (uint64_t i = 0; i < rounds; i++) {
		CUdeviceptr address;
		CUresult result;
		uint32_t lucky;

		together();
		result = cuMemAlloc_v2(&address, bytes);
		if (result == CUDA_SUCCESS)
			__atomic_add_fetch(&start->lucky, 1, __ATOMIC_SEQ_CST);
		else
			expect(result, CUDA_ERROR_OUT_OF_MEMORY, "the last block", __FILE__, __LINE__);
		together();
		lucky = __atomic_load_n(&start->lucky, __ATOMIC_SEQ_CST);
		if (lucky != 1)
			fail("in round %" PRIu64 " %u processes got the last block", i, lucky);
		together();
		__atomic_store_n(&start->lucky, 0, __ATOMIC_SEQ_CST);
		if (result == CUDA_SUCCESS)
			TRY(cuMemFree_v2(address));
	}
}

int main(int argc, char **argv)
{
	if (argc != 4)
		fail("usage: lastone PROCESSES ROUNDS BYTES");
	processes = (uint32_t)number(argv[1]);
	start = mmap(NULL, sizeof *start, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	HOLDS(start != MAP_FAILED);
	for (uint32_t i = 0; i < processes; i++) {
		pid_t pid = fork();

		HOLDS(pid >= 0);
		if (!pid) {
			run(number(argv[2]), number(argv[3]));
			exit(0);
		}
	}
	for (uint32_t i = 0; i < processes; i++) {
		int status;

		HOLDS(wait(&status) > 0);
		if (status)
			fail("a process ended with status %#x", (unsigned)status);
	}
	return 0;
}
