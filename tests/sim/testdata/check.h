/* SPDX-License-Identifier: Apache-2.0
 *
 * For programs that test the simulated libcuda: each case is a function, chosen by
 * the first argument, that ends the program where something is wrong.
 */
#ifndef TRANCHE_TEST_CHECK_H
#define TRANCHE_TEST_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"

#define FAIL(...)                                              \
	do {                                                   \
		fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
		fprintf(stderr, __VA_ARGS__);                  \
		fputc('\n', stderr);                           \
		_Exit(1);                                      \
	} while (0)

#define CHECK(condition)                              \
	do {                                          \
		if (!(condition))                     \
			FAIL("not so: %s", #condition); \
	} while (0)

#define GIVES(wanted, call)                                                                    \
	do {                                                                                   \
		CUresult got_ = (call);                                                        \
		if (got_ != (wanted))                                                          \
			FAIL("%s gave %d, not %d (%s)", #call, got_, (int)(wanted), #wanted); \
	} while (0)

#define OK(call) GIVES(CUDA_SUCCESS, call)

/* Elapsed times, in milliseconds, are rounded to half a microsecond each. */
#define CLOSE(a, b)                                                     \
	do {                                                            \
		float a_ = (a), b_ = (b);                               \
		if (a_ - b_ > 0.002F || b_ - a_ > 0.002F)               \
			FAIL("%s is %f, not %f", #a, (double)a_, (double)b_); \
	} while (0)

struct test {
	const char *name;
	void (*run)(void);
};

static inline int run_test(const struct test *tests, int argc, char **argv)
{
	for (; argc > 1 && tests->name; tests++)
		if (!strcmp(tests->name, argv[1])) {
			tests->run();
			return 0;
		}
	fprintf(stderr, "there is no such test\n");
	return 2;
}

#endif
