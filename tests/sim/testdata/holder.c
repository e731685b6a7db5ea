/* SPDX-License-Identifier: Apache-2.0
 *
 * A process as the simulated libcuda would make it, without libcuda: takes a slot of the
 * card in the directory argv[1], then obeys lines:
 *   context N   claims N frames for a context
 *   linear N    claims N frames
 *   runs N P    writes to the log that it ran P percent of each of the last N milliseconds,
 *               and of the next ones for some seconds: who asks may be slow
 *   copies N P  the same of copies
 *   nvml        starts and ends NVML, also by loading it anew; it must not open more each time
 * and answers "ok" to each.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "card/card.h"

static struct card card;

static void claim(enum simcard_kind kind, uint64_t count)
{
	uint32_t *frames = calloc(count, sizeof(*frames));

	if (card_claim(&card, kind, frames, count) != 0)
		exit(3);
	free(frames);
}

/* As simcard.h says: the word `what` last. */
static void log_run(uint64_t start, uint64_t end, enum simcard_what what)
{
	uint64_t index = __atomic_fetch_add(&card.page->log_next, 1, __ATOMIC_ACQ_REL);
	struct simcard_run *run = &card.page->log[index % SIMCARD_LOG];

	__atomic_store_n(&run->start, start, __ATOMIC_RELAXED);
	__atomic_store_n(&run->end, end, __ATOMIC_RELAXED);
	__atomic_store_n(&run->slot, (uint32_t)card.slot, __ATOMIC_RELAXED);
	__atomic_store_n(&run->what, (uint32_t)(index / SIMCARD_LOG) << 8 | what, __ATOMIC_RELEASE);
}

static void log_past(char *numbers, enum simcard_what what)
{
	uint64_t milliseconds = strtoull(numbers, &numbers, 10), percent = strtoull(numbers, NULL, 10), now;
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
	/* As if the process had lived then. */
	card.page->slot[card.slot].started = now - milliseconds * 1000000;
	now -= milliseconds * 1000000;
	for (uint64_t i = 0; i < milliseconds + 10000 && percent > 0; i++)
		log_run(now + i * 1000000, now + i * 1000000 + percent * 10000, what);
}

/* The lowest descriptor that is not in use. */
static int next_descriptor(void)
{
	int fd = dup(0);

	close(fd);
	return fd;
}

static void use_nvml(void)
{
	int next = -1;

	for (int i = 0; i < 3; i++) {
		void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
		int (*start)(void), (*end)(void), (*count)(unsigned *);
		unsigned n;

		if (!library)
			exit(4);
		*(void **)&start = dlsym(library, "nvmlInit_v2");
		*(void **)&end = dlsym(library, "nvmlShutdown");
		*(void **)&count = dlsym(library, "nvmlDeviceGetCount_v2");
		if (start() || count(&n) || n == 0 || end() || end() != 1 || start() || end())
			exit(5);
		dlclose(library);
		if (next >= 0 && next_descriptor() != next)
			exit(6);
		next = next_descriptor();
	}
}

int main(int argc, char **argv)
{
	char line[64];

	if (argc != 2 || card_open(argv[1], CARD_USE, &card) != 0 || card_take_slot(&card) != 0)
		return 2;
	do {
		puts("ok");
		fflush(stdout);
		if (!fgets(line, sizeof(line), stdin))
			return 0;
		char *rest = strchr(line, ' ');
		if (strncmp(line, "context ", 8) == 0)
			claim(SIMCARD_CONTEXT, strtoull(rest, NULL, 10));
		else if (strncmp(line, "linear ", 7) == 0)
			claim(SIMCARD_LINEAR, strtoull(rest, NULL, 10));
		else if (strncmp(line, "runs ", 5) == 0)
			log_past(rest, SIMCARD_KERNELS);
		else if (strncmp(line, "copies ", 7) == 0)
			log_past(rest, SIMCARD_COPIES);
		else
			use_nvml();
	} while (true);
}
