/* SPDX-License-Identifier: Apache-2.0
 *
 * witness MIB
 *
 * Takes MIB of a card, fills them with numbers, and looks again and again whether
 * they are still there, running a kernel in between. Prints a line each round, ends
 * with status 1 as soon as anything is not as it was, and with 0 when stdin ends.
 */
#include <poll.h>

#include "kernels.h"

#define ROUND_MS 20

/* A number that no other place has. */
static uint64_t at(uint64_t i)
{
	i += 0x9e3779b97f4a7c15u;
	i = (i ^ (i >> 30)) * 0xbf58476d1ce4e5b9u;
	return i ^ (i >> 27);
}

static bool is_wanted(void)
{
	struct pollfd in = {.fd = 0, .events = POLLIN};

	return poll(&in, 1, ROUND_MS) == 0;
}

int main(int argc, char **argv)
{
	size_t bytes, words, left, total, first_total = 0;
	uint64_t *here, rounds = 0;
	CUdeviceptr there;
	struct kernels k;

	if (argc != 2)
		fail("usage: witness MIB");
	bytes = number(argv[1]) * MIB;
	words = bytes / sizeof *here;
	here = malloc(bytes);
	HOLDS(here);
	use_device(0);
	k = load_kernels();
	TRY(cuMemAlloc_v2(&there, bytes));
	for (size_t i = 0; i < words; i++)
		here[i] = at(i);
	TRY(cuMemcpyHtoD_v2(there, here, bytes));
	do {
		memset(here, 0, bytes);
		TRY(launch_spin(&k, 100000, NULL));
		TRY(cuCtxSynchronize());
		TRY(cuMemcpyDtoH_v2(here, there, bytes));
		for (size_t i = 0; i < words; i++)
			HOLDS(here[i] == at(i));
		TRY(cuMemGetInfo_v2(&left, &total));
		first_total = first_total ? first_total : total;
		HOLDS(total == first_total && left <= total);
		say("witness rounds=%" PRIu64, ++rounds);
	} while (is_wanted());
	TRY(cuMemFree_v2(there));
	return 0;
}
