/* SPDX-License-Identifier: Apache-2.0
 *
 * A program that does what it is told, line by line on stdin, and answers each
 * line with one of its own, "result=N ..." (a CUresult):
 *
 *   init                  cuInit, says how long it took
 *   context DEVICE        retains the primary context and makes it current
 *   take KIND BYTES       allocates by one of the ways in kinds.h
 *   drop                  frees what was allocated last
 *   launch NANOSECONDS    a kernel, and waits for it
 *   info                  cuMemGetInfo, with what cuDeviceTotalMem says
 *   devices               the cards that are visible, in their order
 *   closefds              closes all sockets and nameless files, as daemons do; the
 *                         driver's own files stay: without them no driver works
 *   pid                   the process's own number
 *   quit                  returns from main with everything still allocated
 */
#include "kernels.h"
#include "kinds.h"

#define MAX_BLOCKS 4096

static struct block blocks[MAX_BLOCKS];
static size_t count;
static struct kernels kernels;

static void take(const char *kind, uint64_t bytes)
{
	struct block b = {.kind = find_kind(kind), .bytes = bytes};
	CUresult result = b.kind->take(&b);

	HOLDS(count < MAX_BLOCKS);
	if (result == CUDA_SUCCESS)
		blocks[count++] = b;
	say("result=%d blocks=%zu", (int)result, count);
}

static void drop(void)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	if (count) {
		struct block *b = &blocks[--count];

		result = b->kind->drop(b);
	}
	say("result=%d blocks=%zu", (int)result, count);
}

static void launch(uint64_t nanoseconds)
{
	CUresult result = CUDA_SUCCESS;

	if (!kernels.module) {
		result = cuModuleLoadData(&kernels.module, kernels_text);
		if (result == CUDA_SUCCESS)
			result = cuModuleGetFunction(&kernels.spin, kernels.module, "spin");
	}
	if (result == CUDA_SUCCESS)
		result = launch_spin(&kernels, nanoseconds, NULL);
	if (result == CUDA_SUCCESS)
		result = cuCtxSynchronize();
	say("result=%d", (int)result);
}

static void info(void)
{
	size_t left = 0, total = 0, device_total = 0;
	CUdevice device = 0;
	CUresult result = cuMemGetInfo_v2(&left, &total);

	if (result == CUDA_SUCCESS)
		result = cuCtxGetDevice(&device);
	if (result == CUDA_SUCCESS)
		result = cuDeviceTotalMem_v2(&device_total, device);
	say("result=%d free=%zu total=%zu device_total=%zu", (int)result, left, total, device_total);
}

static void devices(void)
{
	int n = 0;
	CUresult result = cuDeviceGetCount(&n);

	printf("result=%d count=%d", (int)result, n);
	for (int i = 0; i < n; i++) {
		unsigned char *u;
		size_t total;
		CUuuid uuid;

		TRY(cuDeviceGetUuid(&uuid, i));
		TRY(cuDeviceTotalMem_v2(&total, i));
		u = (unsigned char *)uuid.bytes;
		printf(" uuid%d=GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x total%d=%zu", i, u[0], u[1], u[2], u[3],
			u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15], i, total);
	}
	say("%s", "");
}

static void context(int device)
{
	CUcontext c;
	CUresult result = cuDevicePrimaryCtxRetain(&c, device);

	if (result == CUDA_SUCCESS)
		result = cuCtxSetCurrent(c);
	say("result=%d", (int)result);
}

static void close_all(void)
{
	unsigned closed = 0;

	for (int fd = 3; fd < 4096; fd++) {
		char path[32], target[256] = "";

		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		if (readlink(path, target, sizeof target - 1) > 0 && (!strncmp(target, "socket:", 7) || !strncmp(target, "/memfd:", 7)))
			closed += !close(fd);
	}
	say("result=0 closed=%u", closed);
}

static void init(void)
{
	uint64_t start = now_ns();
	CUresult result = cuInit(0);

	say("result=%d ns=%" PRIu64, (int)result, now_ns() - start);
}

static bool obey(char *line)
{
	char word[32] = "", kind[32] = "";
	unsigned long long n = 0;

	if (sscanf(line, "take %31s %llu", kind, &n) == 2)
		take(kind, n);
	else if (sscanf(line, "launch %llu", &n) == 1)
		launch(n);
	else if (sscanf(line, "context %llu", &n) == 1)
		context((int)n);
	else if (sscanf(line, "%31s", word) != 1 || !strcmp(word, "quit"))
		return false;
	else if (!strcmp(word, "init"))
		init();
	else if (!strcmp(word, "drop"))
		drop();
	else if (!strcmp(word, "info"))
		info();
	else if (!strcmp(word, "devices"))
		devices();
	else if (!strcmp(word, "closefds"))
		close_all();
	else if (!strcmp(word, "pid"))
		say("result=0 pid=%d", (int)getpid());
	else
		fail("%s is no command", word);
	return true;
}

int main(void)
{
	char line[256];

	while (fgets(line, sizeof line, stdin) && obey(line))
		;
	return 0;
}
