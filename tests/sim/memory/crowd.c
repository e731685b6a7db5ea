/* SPDX-License-Identifier: Apache-2.0
 *
 * Many processes that begin at once. The argument is how many.
 */
#include "check.h"

static void member(int end)
{
	CUcontext context;
	CUdeviceptr a;

	await(end);
	OK(cuInit(0));
	OK(cuCtxCreate_v2(&context, 0, 0));
	OK(cuMemAlloc_v2(&a, 100));
	*(char *)(uintptr_t)a = 1;
	tell(end);
	await(end);
	OK(cuCtxDestroy_v2(context));
	tell(end);
	pause();
}

int main(int argc, char **argv)
{
	struct simcard *page = card_page(0);
	pid_t *pid;
	int *end, many;

	if (argc == 3) {
		member(atoi(argv[2]));
		return 0;
	}
	CHECK(argc == 2);
	many = atoi(argv[1]);
	pid = calloc((size_t)many, sizeof(*pid));
	end = calloc((size_t)many, sizeof(*end));
	for (int i = 0; i < many; i++)
		pid[i] = start("member", &end[i]);
	for (int i = 0; i < many; i++)
		tell(end[i]);
	for (int i = 0; i < many; i++)
		await(end[i]);
	EQUAL((uint64_t)many * (page->context_bytes + FRAME), used(page));
	BOOKS(page);
	/* Half of them end well, half are killed, all that they had is free. */
	for (int i = 0; i < many / 2; i++)
		tell(end[i]);
	for (int i = 0; i < many / 2; i++)
		await(end[i]);
	for (int i = 0; i < many; i++)
		murder(pid[i]);
	new_context(0);
	OK(cuMemGetInfo_v2(NULL, NULL));
	EQUAL(page->context_bytes, used(page));
	BOOKS(page);
	free(pid);
	free(end);
	return 0;
}
