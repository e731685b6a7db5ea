/* SPDX-License-Identifier: Apache-2.0
 *
 * killed SEED TIMES MIB
 *
 * TIMES times, several children at once do all that takes and frees memory of the
 * card, from cuInit on, and each is killed by SIGKILL at a moment that SEED
 * decides: anywhere in its start or in any of its calls. Every 50 times all that the
 * share has left must be there for the next one within a deadline: MIB in one
 * block. Prints how long that took at most.
 */
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "kernels.h"
#include "kinds.h"

#define AT_ONCE 3
#define HELD 16
#define DEADLINE_NS 20000000000ull

/* Until it is killed. */
static _Noreturn void victim(uint64_t seed)
{
	struct dice d = {seed};
	struct block held[HELD];
	size_t n = 0;
	CUcontext context;
	CUmodule module;
	CUresult result;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	TRY(cuInit(0));
	while ((result = cuDevicePrimaryCtxRetain(&context, 0)) == CUDA_ERROR_OUT_OF_MEMORY)
		;
	expect(result, CUDA_SUCCESS, "the context", __FILE__, __LINE__);
	TRY(cuCtxSetCurrent(context));
	for (;;) {
		if (n < HELD && below(&d, 5) < 3) {
			struct block *b = &held[n];

			*b = (struct block){.kind = &kinds[below(&d, COUNT(kinds))], .bytes = 1 + below(&d, 8 * MIB)};
			result = b->kind->take(b);
			if (result == CUDA_SUCCESS)
				n++;
			else
				expect(result, CUDA_ERROR_OUT_OF_MEMORY, b->kind->name, __FILE__, __LINE__);
		} else if (n) {
			n--;
			expect(held[n].kind->drop(&held[n]), CUDA_SUCCESS, held[n].kind->name, __FILE__, __LINE__);
		}
		if (!below(&d, 20) && cuModuleLoadData(&module, kernels_text) == CUDA_SUCCESS)
			TRY(cuModuleUnload(module));
	}
}

/* The moments are spread over start and calls alike: half of the victims die
 * within the first 3 ms. */
static void kill_after(pid_t pid, uint64_t ns)
{
	struct timespec t = {0, (long)ns};
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd p = {pidfd, POLLIN, 0};

	HOLDS(pidfd >= 0);
	if (ppoll(&p, 1, &t, NULL) > 0) { /* it ended by itself: why, its status says */
		close(pidfd);
		return;
	}
	HOLDS(!kill(pid, SIGKILL));
	close(pidfd);
}

static void reap(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		HOLDS(errno == EINTR);
	if (status != SIGKILL)
		fail("a victim ended with status %#x", (unsigned)status);
}

static void kill_some(struct dice *d)
{
	pid_t pid[AT_ONCE];

	for (size_t i = 0; i < AT_ONCE; i++) {
		uint64_t seed = roll(d);

		pid[i] = fork();
		HOLDS(pid[i] >= 0);
		if (!pid[i])
			victim(seed);
	}
	for (size_t i = 0; i < AT_ONCE; i++)
		kill_after(pid[i], below(d, below(d, 2) ? 3000000 : 12000000));
	for (size_t i = 0; i < AT_ONCE; i++)
		reap(pid[i]);
}

/* A process of its own takes all that there is. Returns how long it waited. */
static uint64_t all_is_back(size_t bytes)
{
	uint64_t start = now_ns();
	int status;
	pid_t pid = fork();

	HOLDS(pid >= 0);
	if (!pid) {
		CUdeviceptr address;
		CUcontext context;
		CUresult result;

		TRY(cuInit(0));
		while ((result = cuDevicePrimaryCtxRetain(&context, 0)) == CUDA_ERROR_OUT_OF_MEMORY && now_ns() < start + DEADLINE_NS)
			usleep(500);
		expect(result, CUDA_SUCCESS, "the context", __FILE__, __LINE__);
		TRY(cuCtxSetCurrent(context));
		while ((result = cuMemAlloc_v2(&address, bytes)) == CUDA_ERROR_OUT_OF_MEMORY && now_ns() < start + DEADLINE_NS)
			usleep(500);
		expect(result, CUDA_SUCCESS, "all of the memory", __FILE__, __LINE__);
		_exit(0);
	}
	HOLDS(waitpid(pid, &status, 0) == pid);
	if (status)
		fail("whoever wants all of the memory ended with status %#x", (unsigned)status);
	return now_ns() - start;
}

int main(int argc, char **argv)
{
	struct dice d;
	uint64_t longest = 0;

	if (argc != 4)
		fail("usage: killed SEED TIMES MIB");
	d.state = number(argv[1]);
	for (uint64_t done = 0, times = number(argv[2]); done < times; done += AT_ONCE) {
		kill_some(&d);
		if (done % 50 < AT_ONCE || done + AT_ONCE >= times) {
			uint64_t ns = all_is_back(number(argv[3]) * MIB);

			if (ns > longest)
				longest = ns;
		}
	}
	say("killed times=%" PRIu64 " longest_us=%" PRIu64, number(argv[2]), longest / 1000);
	return 0;
}
