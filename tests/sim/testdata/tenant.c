/* SPDX-License-Identifier: Apache-2.0
 *
 * A process that keeps a card busy: tenant MICROSECONDS [COUNT [BYTES]] launches kernels that
 * take so long each, some 50 ms ahead, until its standard input ends or, if a number is
 * given, it launched so many, and copies so many bytes to the card beside each. It says "ready" once its
 * first kernel is done.
 */
#include <poll.h>
#include <stdint.h>
#include <stdbool.h>
#include <unistd.h>

#include "check.h"

enum { AHEAD_MAX = 500 };

static bool told_to_end(void)
{
	struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
	return poll(&in, 1, 0) > 0;
}

int main(int argc, char **argv)
{
	CUcontext context;
	CUmodule module;
	CUfunction spin;
	CUstream stream, beside;
	CUdeviceptr target;
	void *host;
	CUevent ahead[AHEAD_MAX];

	CHECK(argc > 1);
	uint64_t nanoseconds = strtoull(argv[1], NULL, 10) * 1000;
	uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : UINT64_MAX;
	unsigned many = nanoseconds <= 101000 ? AHEAD_MAX : (unsigned)(50000000 / nanoseconds) + 2;
	size_t bytes = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
	void *parameters[] = {&nanoseconds};
	OK(cuInit(0));
	OK(cuCtxCreate_v2(&context, 0, 0));
	OK(cuModuleLoadData(&module, ".version 7.0\n.target sm_50\n.address_size 64\n"
				     ".visible .entry spin(.param .u64 nanoseconds)\n{\n\tret;\n}\n"));
	OK(cuModuleGetFunction(&spin, module, "spin"));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING));
	if (bytes) {
		OK(cuMemHostAlloc(&host, bytes, 0));
		OK(cuMemAlloc_v2(&target, bytes));
	}
	for (unsigned i = 0; i < many; i++)
		OK(cuEventCreate(&ahead[i], CU_EVENT_DISABLE_TIMING));
	for (uint64_t i = 0; i < count && !(argc == 2 && i % 8 == 0 && told_to_end()); i++) {
		OK(cuEventSynchronize(ahead[i % many]));
		OK(cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
		OK(cuEventRecord(ahead[i % many], stream));
		if (bytes)
			OK(cuMemcpyHtoDAsync_v2(target, host, bytes, beside));
		if (i == 0) {
			OK(cuStreamSynchronize(stream));
			puts("ready");
			fflush(stdout);
		}
	}
	OK(cuStreamSynchronize(stream));
	OK(cuStreamSynchronize(beside));
	return 0;
}
