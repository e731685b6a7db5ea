/* SPDX-License-Identifier: Apache-2.0
 *
 * scribble SEED
 *
 * A hostile tenant. It uses the card, then finds every page that it shares with
 * anybody, tries to get those writable that are not, and writes nonsense over all that
 * it can write, again and again while it calls the driver. It prints which of its
 * shared mappings were writable, "pages writable=N readonly=N opened=N", then
 * scribbles until a line comes on stdin. A crash of its own is its own business.
 */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "kinds.h"

#define MAX_AREAS 64

struct area {
	uint8_t *start;
	size_t bytes;
};

static struct area writable[MAX_AREAS];
static size_t areas, readonly, opened;

static void add(void *start, size_t bytes)
{
	if (areas < MAX_AREAS)
		writable[areas++] = (struct area){start, bytes};
}

/* Mappings of memory without a name on disk: the pages that tenant and arbiter share. */
static void find_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];

	HOLDS(maps);
	while (fgets(line, sizeof line, maps)) {
		unsigned long start, end;
		char rights[8];

		if (sscanf(line, "%lx-%lx %7s", &start, &end, rights) != 3 || rights[3] != 's' || !strstr(line, "/memfd:"))
			continue;
		if (rights[1] == 'w')
			add((void *)start, end - start);
		else if (!mprotect((void *)start, end - start, PROT_READ | PROT_WRITE))
			add((void *)start, end - start);
		else
			readonly++;
	}
	fclose(maps);
}

/* Descriptors, and the same files opened anew by their links in /proc. */
static void find_descriptors(const char *directory)
{
	DIR *d = opendir(directory);
	struct dirent *e;

	if (!d)
		return;
	while ((e = readdir(d))) {
		char path[512], target[256];
		struct stat st;
		ssize_t n;
		void *p;
		int fd;

		snprintf(path, sizeof path, "%s/%s", directory, e->d_name);
		n = readlink(path, target, sizeof target - 1);
		if (n < 0)
			continue;
		target[n] = 0;
		if (strncmp(target, "/memfd:", 7))
			continue;
		fd = open(path, O_RDWR);
		if (fd < 0 || fstat(fd, &st) || !st.st_size)
			continue;
		p = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (p != MAP_FAILED) {
			opened++;
			add(p, (size_t)st.st_size);
		}
		/* Neither smaller, which would kill others that read it, nor larger. */
		if (!ftruncate(fd, 0) || !ftruncate(fd, st.st_size * 2))
			say("size changed=1");
	}
	closedir(d);
}

static void scribble(struct dice *d)
{
	for (size_t i = 0; i < areas; i++) {
		uint64_t *words = (uint64_t *)writable[i].start;
		size_t n = writable[i].bytes / sizeof *words;

		for (size_t j = 0; j < n; j++) {
			uint64_t dice = roll(d);

			/* Nonsense, all ones, huge and negative numbers, zeros. */
			words[j] = dice % 4 == 0 ? dice : dice % 4 == 1 ? UINT64_MAX : dice % 4 == 2 ? 0 : 1ull << (dice >> 58);
		}
	}
}

static bool told_to_end(void)
{
	struct pollfd p = {STDIN_FILENO, POLLIN, 0};

	return poll(&p, 1, 0) > 0;
}

int main(int argc, char **argv)
{
	struct dice d = {argc > 1 ? number(argv[1]) : 1};
	struct block b = {.kind = find_kind("alloc"), .bytes = 16 * MIB};

	use_device(0);
	TRY(b.kind->take(&b));
	find_mappings();
	find_descriptors("/proc/self/fd");
	find_descriptors("/proc/self/map_files");
	say("pages writable=%zu readonly=%zu opened=%zu", areas, readonly, opened);
	while (!told_to_end()) {
		CUdeviceptr a;
		size_t left, total;

		scribble(&d);
		/* Whatever these give. */
		if (cuMemAlloc_v2(&a, MIB) == CUDA_SUCCESS)
			cuMemFree_v2(a);
		cuMemGetInfo_v2(&left, &total);
	}
	say("done");
	return 0;
}
