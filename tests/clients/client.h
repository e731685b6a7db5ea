/* SPDX-License-Identifier: Apache-2.0
 *
 * What the test programs have in common. A program prints lines of the form
 * "word key=value ..." for whoever started it, complaints go to stderr, and exit
 * status 1 means that something was not as it should be.
 */
#ifndef TRANCHE_CLIENT_H
#define TRANCHE_CLIENT_H

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cuda.h"

#define MIB (1ull << 20)
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Ends the program with a complaint. */
static inline _Noreturn __attribute__((format(printf, 1, 2))) void fail(const char *format, ...)
{
	va_list arguments;

	fflush(stdout);
	fprintf(stderr, "client %d: ", (int)getpid());
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	exit(1);
}

static inline void expect(CUresult got, CUresult want, const char *what, const char *file, int line)
{
	if (got != want)
		fail("%s:%d: %s gave %d, wanted %d", file, line, what, (int)got, (int)want);
}

/* The call has this result, or the program ends. */
#define WANT(result, call) expect((call), (result), #call, __FILE__, __LINE__)
#define TRY(call) WANT(CUDA_SUCCESS, call)
#define HOLDS(condition)                                                 \
	do {                                                                 \
		if (!(condition))                                                \
			fail("%s:%d: does not hold: %s", __FILE__, __LINE__, #condition); \
	} while (0)

/* One line to whoever started the program. */
static inline __attribute__((format(printf, 1, 2))) void say(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	putchar('\n');
	fflush(stdout);
}

/* Says that all is as it is until a line comes on stdin. The end of stdin ends
 * the program: nobody is interested any more. */
static inline void barrier(const char *name)
{
	char line[256];

	say("quiet %s", name);
	if (!fgets(line, sizeof line, stdin))
		exit(3);
}

static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void sleep_until(uint64_t ns)
{
	struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

static inline uint64_t number(const char *text)
{
	char *end;
	uint64_t n;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (errno || end == text || *end)
		fail("%s is not a number", text);
	return n;
}

/* Makes the primary context of a device current. */
static inline CUcontext use_device(int ordinal)
{
	CUcontext context;

	TRY(cuInit(0));
	TRY(cuDevicePrimaryCtxRetain(&context, ordinal));
	TRY(cuCtxSetCurrent(context));
	return context;
}

/* One of the cases that a program has. */
struct named {
	const char *name;
	void (*run)(void);
};

/* The case that the program's one argument names. */
static inline const struct named *chosen(int argc, char **argv, const struct named *cases, size_t count)
{
	if (argc != 2)
		fail("usage: %s CASE", argv[0]);
	for (size_t i = 0; i < count; i++)
		if (!strcmp(cases[i].name, argv[1]))
			return &cases[i];
	fail("%s is no case", argv[1]);
}

/* A sequence of random numbers that depends on the seed only. */
struct dice {
	uint64_t state;
};

static inline uint64_t roll(struct dice *d)
{
	uint64_t z = d->state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/* 0 to sides - 1. */
static inline uint64_t below(struct dice *d, uint64_t sides)
{
	return roll(d) % sides;
}

/* From 0 to below 1. */
static inline double uniform(struct dice *d)
{
	return (double)(roll(d) >> 11) / (double)(1ull << 53);
}

/* Exponentially distributed with the mean 1. By comparisons alone, as John von Neumann
 * found: the number of descents in a row is even with the probability e^-x. */
static inline double exponential(struct dice *d)
{
	for (unsigned whole = 0;; whole++) {
		double first = uniform(d), last = first, next;
		bool even = true;

		for (; (next = uniform(d)) < last; last = next)
			even = !even;
		if (even)
			return whole + first;
	}
}

#endif
