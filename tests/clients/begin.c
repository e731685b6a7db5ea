/* SPDX-License-Identifier: Apache-2.0
 *
 * begin nothing | init | context | exec
 *
 * A program that only starts: without a call of the driver, with cuInit, with a
 * context, or with all of it and then once more by exec.
 */
#include "client.h"

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "nothing";
	CUdeviceptr a;

	if (!strcmp(how, "init")) {
		TRY(cuInit(0));
	} else if (!strcmp(how, "context")) {
		use_device(0);
	} else if (!strcmp(how, "exec")) {
		use_device(0);
		TRY(cuMemAlloc_v2(&a, 64 * MIB));
		execl("/proc/self/exe", "begin", "after", NULL);
		fail("exec: %s", strerror(errno));
	} else if (!strcmp(how, "after")) {
		uint64_t deadline = now_ns() + 10000000000ull;
		size_t left, total;

		use_device(0);
		/* All but this program's own context is there, once the arbiter has seen. */
		do {
			TRY(cuMemGetInfo_v2(&left, &total));
			if (now_ns() > deadline)
				fail("what was there before exec is charged still: %zu of %zu are free", left, total);
		} while (cuMemAlloc_v2(&a, total - 128 * MIB) != CUDA_SUCCESS);
		say("ok");
	} else if (strcmp(how, "nothing")) {
		fail("%s is no way to begin", how);
	}
	return 0;
}
