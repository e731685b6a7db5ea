/* SPDX-License-Identifier: Apache-2.0
 *
 * fork and exec.
 */
#include "check.h"

static struct simcard *page;

/* Runs function in a child of fork. */
static void in_child(void (*function)(void))
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		function();
		_exit(0);
	}
	join(pid);
}

static void uses_it_for_the_first_time(void)
{
	CUcontext context = new_context(0);

	EQUAL(page->context_bytes, used(page));
	OK(cuCtxDestroy_v2(context));
}

static void finds_it_unusable(void)
{
	CUdeviceptr a;
	CUcontext context;
	int count, version;

	FAILS(CUDA_ERROR_NOT_INITIALIZED, cuInit(0));
	FAILS(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
	FAILS(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc_v2(&a, 1));
	FAILS(CUDA_ERROR_NOT_INITIALIZED, cuCtxGetCurrent(&context));
	FAILS(CUDA_ERROR_NOT_INITIALIZED, cuCtxCreate_v2(&context, 0, 0));
	OK(cuDriverGetVersion(&version));
}

static void begins_anew_by_exec(void)
{
	execl("/proc/self/exe", "again", "fresh", (char *)NULL);
	_exit(127);
}

/* Takes memory, then becomes another program that says so and stays. */
static void becomes_another_program(int end)
{
	CUdeviceptr a;

	new_context(0);
	OK(cuMemAlloc_v2(&a, FRAME));
	tell(end);
	await(end);
	/* The shell takes one digit only. */
	CHECK(dup2(end, 9) == 9);
	execl("/bin/sh", "sh", "-c", "printf x >&9; exec sleep 60", (char *)NULL);
	_exit(127);
}

static void who_executes_another_program_has_ended(void)
{
	uint64_t before = used(page);
	int end;
	pid_t other = start("becomes", &end);

	await(end);
	EQUAL(before + page->context_bytes + FRAME, used(page));
	tell(end);
	await(end);
	OK(cuMemGetInfo_v2(NULL, NULL));
	EQUAL(before, used(page));
	murder(other);
	close(end);
}

int main(int argc, char **argv)
{
	CUcontext context;
	CUdeviceptr a;

	page = card_page(0);
	if (argc == 2) {
		context = new_context(0);
		EQUAL(2 * page->context_bytes + 5 * FRAME, used(page));
		OK(cuCtxDestroy_v2(context));
		return 0;
	}
	if (argc == 3)
		becomes_another_program(atoi(argv[2]));
	/* A parent that has not begun leaves its children free to. */
	in_child(uses_it_for_the_first_time);
	context = new_context(0);
	OK(cuMemAlloc_v2(&a, 5 * FRAME));
	*(char *)(uintptr_t)a = 1;
	in_child(finds_it_unusable);
	in_child(begins_anew_by_exec);
	OK(cuMemGetInfo_v2(NULL, NULL));
	EQUAL(page->context_bytes + 5 * FRAME, used(page));
	EQUAL(1, *(char *)(uintptr_t)a);
	OK(cuMemFree_v2(a));
	who_executes_another_program_has_ended();
	OK(cuCtxDestroy_v2(context));
	EQUAL(0, used(page));
	return 0;
}
