/* SPDX-License-Identifier: Apache-2.0
 *
 * starts COUNT ROUNDS PROGRAM ARGUMENT...
 *
 * Starts COUNT processes of a program at once and waits for all of them, ROUNDS
 * times. All must end well. Prints how long a round took: "starts count=N p50_ns=N
 * max_ns=N".
 */
#include <spawn.h>
#include <sys/wait.h>

#include "client.h"

#define MAX_ROUNDS 10000

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static uint64_t start_all(uint64_t count, char **program)
{
	extern char **environ;
	uint64_t start = now_ns();

	for (uint64_t i = 0; i < count; i++) {
		pid_t pid;
		int error = posix_spawn(&pid, program[0], NULL, NULL, program, environ);

		if (error)
			fail("%s does not start: %s", program[0], strerror(error));
	}
	for (uint64_t i = 0; i < count; i++) {
		int status;

		HOLDS(wait(&status) > 0);
		if (status)
			fail("%s ended with status %#x", program[0], (unsigned)status);
	}
	return now_ns() - start;
}

int main(int argc, char **argv)
{
	static uint64_t took[MAX_ROUNDS];
	uint64_t rounds;

	if (argc < 4)
		fail("usage: starts COUNT ROUNDS PROGRAM ARGUMENT...");
	rounds = number(argv[2]);
	HOLDS(rounds > 0 && rounds <= MAX_ROUNDS);
	for (uint64_t i = 0; i < rounds; i++)
		took[i] = start_all(number(argv[1]), argv + 3);
	qsort(took, rounds, sizeof took[0], by_size);
	say("starts count=%s p50_ns=%" PRIu64 " max_ns=%" PRIu64, argv[1], took[rounds / 2], took[rounds - 1]);
	return 0;
}
