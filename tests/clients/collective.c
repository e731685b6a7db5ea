/* SPDX-License-Identifier: Apache-2.0
 *
 * collective RANKS DEVICES STEPS
 *
 * Processes that work in step, as the ranks of a job with collective operations do: in
 * each step every rank computes, then has kernels that wait on the card until those of all others
 * run, and streams that wait for values of the others'. Rank r is on device r % DEVICES. Says
 * "ready", begins with the line "go EPOCH" as work does, and ends with "end steps=N ns=N".
 *
 * Where kernels cannot wait for each other, the streams alone do: on the simulated driver, where a kernel
 * computes nothing, and on cards before compute capability 6, which do not interrupt a kernel for another
 * process.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "kernels.h"

#define MOST 16
#define AHEAD 2
#define COMPUTE_NS 200000u
#define MEET_NS 20000u /* what meeting takes on the simulated card */

/* meet(nanoseconds, mine, all, count, step): says in mine that it is there, and waits until all have
 * said so, or for 20 s; then the word behind mine says that somebody did not come. */
static const char meet_text[] =
	".version 6.0\n"
	".target sm_50\n"
	".address_size 64\n"
	".visible .entry meet(.param .u64 meet_nanoseconds, .param .u64 meet_mine, .param .u64 meet_all, .param .u64 meet_count, "
	".param .u64 meet_step)\n"
	"{\n"
	"	.reg .u64 %mine, %flag, %count, %step, %seen, %now, %end;\n"
	"	.reg .pred %there, %more;\n"
	"	ld.param.u64 %mine, [meet_mine];\n"
	"	ld.param.u64 %flag, [meet_all];\n"
	"	ld.param.u64 %count, [meet_count];\n"
	"	ld.param.u64 %step, [meet_step];\n"
	"	mov.u64 %end, %globaltimer;\n"
	"	add.u64 %end, %end, 20000000000;\n"
	"	membar.sys;\n"
	"	st.volatile.u64 [%mine], %step;\n"
	"look:\n"
	"	ld.volatile.u64 %seen, [%flag];\n"
	"	setp.ge.u64 %there, %seen, %step;\n"
	"	@%there bra found;\n"
	"	mov.u64 %now, %globaltimer;\n"
	"	setp.lt.u64 %more, %now, %end;\n"
	"	@%more bra look;\n"
	"	st.volatile.u64 [%mine+8], %step;\n"
	"	ret;\n"
	"found:\n"
	"	add.u64 %flag, %flag, 64;\n"
	"	sub.u64 %count, %count, 1;\n"
	"	setp.ne.u64 %more, %count, 0;\n"
	"	@%more bra look;\n"
	"	ret;\n"
	"}\n";

/* What a rank says to the others, in memory that all of them and their cards have. */
static struct mark {
	_Alignas(64) uint64_t step; /* by its kernels */
	uint64_t late;              /* the step in which a kernel waited in vain */
	uint32_t value;             /* by its stream */
} *marks;

static struct plan {
	uint64_t ranks, devices, steps, epoch;
} plan;

static struct {
	struct kernels kernels;
	CUfunction meet;
	CUstream stream;
	CUevent end[AHEAD];
	bool values;       /* streams can wait for values */
	CUdeviceptr marks; /* as the card has them */
} rank;

static int attribute(CUdevice_attribute which, CUdevice device)
{
	int value;

	return cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

static void prepare(unsigned number)
{
	CUmodule module;
	CUdevice device;

	use_device((int)(number % plan.devices));
	TRY(cuCtxGetDevice(&device));
	rank.kernels = load_kernels();
	if (attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) >= 6) {
		TRY(cuModuleLoadData(&module, meet_text));
		TRY(cuModuleGetFunction(&rank.meet, module, "meet"));
	}
	/* Drivers that have only the first version of these functions have it switched off as a
	 * rule. This attribute is of the second. */
	rank.values = attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, device);
	TRY(cuStreamCreate(&rank.stream, CU_STREAM_NON_BLOCKING));
	for (unsigned i = 0; i < AHEAD; i++)
		TRY(cuEventCreate(&rank.end[i], CU_EVENT_DISABLE_TIMING));
	TRY(cuMemHostRegister_v2(marks, MOST * sizeof *marks, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
	TRY(cuMemHostGetDevicePointer_v2(&rank.marks, marks, 0));
}

static CUdeviceptr mark_of(unsigned number)
{
	return rank.marks + number * sizeof *marks;
}

static void meet(unsigned number, uint64_t step)
{
	uint64_t nanoseconds = MEET_NS;
	CUdeviceptr mine = mark_of(number), all = mark_of(0);
	void *parameters[] = {&nanoseconds, &mine, &all, &plan.ranks, &step};

	if (rank.meet)
		TRY(cuLaunchKernel(rank.meet, 1, 1, 1, 1, 1, 1, 0, rank.stream, parameters, NULL));
	if (!rank.values)
		return;
	TRY(cuStreamWriteValue32_v2(rank.stream, mine + offsetof(struct mark, value), (cuuint32_t)step, 0));
	for (unsigned other = 0; other < plan.ranks; other++)
		TRY(cuStreamWaitValue32_v2(rank.stream, mark_of(other) + offsetof(struct mark, value), (cuuint32_t)step, CU_STREAM_WAIT_VALUE_GEQ));
}

static _Noreturn void child(unsigned number, int ready, int go)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prepare(number);
	HOLDS(write(ready, "", 1) == 1 && !close(ready));
	HOLDS(read(go, &plan.epoch, sizeof plan.epoch) == sizeof plan.epoch);
	sleep_until(plan.epoch);
	for (uint64_t step = 1; step <= plan.steps; step++) {
		if (step > AHEAD)
			TRY(cuEventSynchronize(rank.end[step % AHEAD]));
		TRY(launch_spin(&rank.kernels, COMPUTE_NS, rank.stream));
		meet(number, step);
		TRY(cuEventRecord(rank.end[step % AHEAD], rank.stream));
	}
	TRY(cuStreamSynchronize(rank.stream));
	if (marks[number].late)
		fail("rank %u waited in vain in step %" PRIu64, number, marks[number].late);
	exit(0);
}

int main(int argc, char **argv)
{
	int ready[2], go[2], status;
	unsigned long long epoch;
	char line[64], byte;

	HOLDS(argc == 4);
	plan.ranks = number(argv[1]);
	plan.devices = number(argv[2]);
	plan.steps = number(argv[3]);
	HOLDS(plan.ranks && plan.ranks <= MOST && plan.devices);
	marks = mmap(NULL, MOST * sizeof *marks, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	HOLDS(marks != MAP_FAILED && !pipe(ready) && !pipe(go));
	for (unsigned i = 0; i < plan.ranks; i++)
		if (!fork())
			child(i, ready[1], go[0]);
	close(ready[1]); /* as who is ready does: so the end of who is not is seen */
	for (unsigned i = 0; i < plan.ranks; i++)
		if (read(ready[0], &byte, 1) != 1)
			fail("a rank ended before it was ready");
	say("ready");
	if (!fgets(line, sizeof line, stdin) || sscanf(line, "go %llu", &epoch) != 1)
		return 3;
	plan.epoch = epoch;
	for (unsigned i = 0; i < plan.ranks; i++)
		HOLDS(write(go[1], &plan.epoch, sizeof plan.epoch) == sizeof plan.epoch);
	for (unsigned i = 0; i < plan.ranks; i++) {
		HOLDS(wait(&status) > 0);
		if (status)
			fail("a rank ended with status %d", status);
	}
	say("end steps=%" PRIu64 " ns=%" PRIu64, plan.steps, now_ns() - plan.epoch);
	return 0;
}
