/* SPDX-License-Identifier: Apache-2.0
 *
 * forks CASE
 *
 * A program that has CUDA in use makes processes in all ways. The parent must go on
 * undisturbed, with the same memory free. Says "ok".
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include "kinds.h"

static struct block held;

static size_t left_now(void)
{
	size_t left, total;

	TRY(cuMemGetInfo_v2(&left, &total));
	return left;
}

static void reap(pid_t pid, int want)
{
	int status;

	HOLDS(pid > 0);
	while (waitpid(pid, &status, 0) < 0)
		HOLDS(errno == EINTR);
	if (status != want)
		fail("the child ended with status %#x, wanted %#x", (unsigned)status, (unsigned)want);
}

/* All that a child of fork can do with CUDA, and every way to end. */
static _Noreturn void child(int how)
{
	CUdeviceptr a;
	CUcontext context;
	size_t left, total;

	WANT(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc_v2(&a, MIB));
	WANT(CUDA_ERROR_NOT_INITIALIZED, cuMemFree_v2(held.address));
	WANT(CUDA_ERROR_NOT_INITIALIZED, cuMemGetInfo_v2(&left, &total));
	WANT(CUDA_ERROR_NOT_INITIALIZED, cuDevicePrimaryCtxRetain(&context, 0));
	switch (how) {
	case 0:
		exit(0);
	case 1:
		_exit(0);
	case 2:
		raise(SIGKILL);
		break;
	default:
		abort();
	}
	_exit(1);
}

static void forked(void)
{
	static const int ends[] = {0, 0, SIGKILL, SIGABRT};

	for (int i = 0; i < 40; i++) {
		pid_t pid = fork();

		if (!pid)
			child(i % 4);
		reap(pid, ends[i % 4]);
	}
}

/* The child starts a program that uses CUDA: it gets room of its own. */
static void executed(void)
{
	for (int i = 0; i < 10; i++) {
		pid_t pid = fork();

		if (!pid) {
			execl("/proc/self/exe", "forks", "leaf", NULL);
			_exit(127);
		}
		reap(pid, 0);
	}
}

/* Apart, because variables that live across vfork may be lost. */
static pid_t vfork_leaf(void)
{
	pid_t pid = vfork();

	if (!pid) {
		execl("/proc/self/exe", "forks", "leaf", NULL);
		_exit(127);
	}
	return pid;
}

static void vforked(void)
{
	for (int i = 0; i < 10; i++)
		reap(vfork_leaf(), 0);
}

static void spawned(void)
{
	char *arguments[] = {"forks", "leaf", NULL};
	extern char **environ;

	for (int i = 0; i < 10; i++) {
		pid_t pid;

		HOLDS(!posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environ));
		reap(pid, 0);
	}
}

static int cloned_child(void *argument)
{
	(void)argument;
	execl("/proc/self/exe", "forks", "leaf", NULL);
	return 127;
}

static void cloned(void)
{
	static char stack[64 << 10] __attribute__((aligned(16)));

	for (int i = 0; i < 10; i++) {
		reap(clone(cloned_child, stack + sizeof stack, SIGCHLD, NULL), 0);
		reap(clone(cloned_child, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL), 0);
		reap(clone(cloned_child, stack + sizeof stack, CLONE_FS | CLONE_SIGHAND | CLONE_VM | CLONE_VFORK | SIGCHLD, NULL), 0);
	}
}

/* The child outlives its parent's interest: a daemon with everything open. */
static void daemonised(void)
{
	pid_t pid = fork();

	if (!pid) {
		pid_t inner = fork();

		if (!inner) {
			setsid();
			for (int fd = 3; fd < 1024; fd++)
				close(fd);
			execl("/proc/self/exe", "forks", "leaf", NULL);
			_exit(127);
		}
		_exit(inner < 0);
	}
	reap(pid, 0);
}

static void *fork_again(void *argument)
{
	(void)argument;
	for (int i = 0; i < 20; i++) {
		pid_t pid = fork();

		if (!pid)
			_exit(0);
		reap(pid, 0);
	}
	return NULL;
}

/* Several threads fork while another allocates. */
static void threaded(void)
{
	pthread_t thread[3];

	for (size_t i = 0; i < COUNT(thread); i++)
		HOLDS(!pthread_create(&thread[i], NULL, fork_again, NULL));
	for (int i = 0; i < 200; i++) {
		CUdeviceptr a;

		TRY(cuMemAlloc_v2(&a, 4 * MIB));
		TRY(cuMemFree_v2(a));
	}
	for (size_t i = 0; i < COUNT(thread); i++)
		HOLDS(!pthread_join(thread[i], NULL));
}

static void leaf(void)
{
	CUdeviceptr a;

	use_device(0);
	TRY(cuMemAlloc_v2(&a, 4 * MIB));
	TRY(cuMemFree_v2(a));
}

static const struct named cases[] = {
	{"fork", forked}, {"exec", executed}, {"vfork", vforked}, {"spawn", spawned}, {"clone", cloned},
	{"daemon", daemonised}, {"threads", threaded},
};

/* Memory of children that have ended comes back within the deadline. */
static void wait_for(size_t left)
{
	uint64_t deadline = now_ns() + 60000000000ull;

	while (left_now() != left) {
		if (now_ns() > deadline)
			fail("%zu bytes are free, before it were %zu", left_now(), left);
		usleep(1000);
	}
}

int main(int argc, char **argv)
{
	const struct named *one;
	size_t left;

	if (argc == 2 && !strcmp(argv[1], "leaf")) {
		leaf();
		return 0;
	}
	one = chosen(argc, argv, cases, COUNT(cases));
	use_device(0);
	held = (struct block){.kind = find_kind("alloc"), .bytes = 32 * MIB};
	TRY(held.kind->take(&held));
	left = left_now();
	one->run();
	wait_for(left);
	TRY(cuMemsetD8_v2(held.address, 1, held.bytes));
	TRY(held.kind->drop(&held));
	say("ok");
	return 0;
}
