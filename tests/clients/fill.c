/* SPDX-License-Identifier: Apache-2.0
 *
 * fill KIND [MIB [DEVICE]]
 *
 * Allocates blocks of MIB (default 64) on a device until the driver refuses,
 * by one of the ways in kinds.h, then frees one and allocates it again, and frees all.
 * KIND can also be "ipc" or "import": a second process opens the blocks of the
 * first, which must cost nothing, and fills up what is left; or "all": what each kind
 * leaves is filled by the next.
 *
 * Prints what it sees at the start, when it is full, and at the end. With
 * TRANCHE_TEST_BARRIERS in the environment it waits for a line at each of these.
 */
#include <spawn.h>
#include <sys/wait.h>

#include "kernels.h"
#include "kinds.h"

#define MAX_BLOCKS 65536

static struct block *blocks;
static size_t count;
static uint64_t taken;

static void pause_at(const char *where)
{
	size_t left, total;

	TRY(cuMemGetInfo_v2(&left, &total));
	HOLDS(left <= total);
	say("%s total=%zu free=%zu blocks=%zu bytes=%" PRIu64, where, total, left, count, taken);
	if (getenv("TRANCHE_TEST_BARRIERS"))
		barrier(where);
}

/* Takes blocks until one is refused. */
static void fill(const struct kind *kind, size_t bytes)
{
	for (;;) {
		struct block *b = &blocks[count];
		CUresult result;

		HOLDS(count < MAX_BLOCKS);
		*b = (struct block){.kind = kind, .bytes = bytes};
		result = kind->take(b);
		if (result == CUDA_ERROR_OUT_OF_MEMORY)
			return;
		expect(result, CUDA_SUCCESS, kind->name, __FILE__, __LINE__);
		taken += b->bytes;
		count++;
	}
}

static void drop_last(void)
{
	struct block *b = &blocks[--count];

	expect(b->kind->drop(b), CUDA_SUCCESS, b->kind->name, __FILE__, __LINE__);
	taken -= b->bytes;
}

/* After a refusal the program goes on: kernels run, and what is freed can be had
 * again. */
static void go_on(const struct kernels *k)
{
	struct block *b;

	TRY(launch_spin(k, 1000, NULL));
	TRY(cuCtxSynchronize());
	if (!count)
		fail("not a single block fits");
	b = &blocks[count - 1];
	drop_last();
	expect(b->kind->take(b), CUDA_SUCCESS, "the block that was freed", __FILE__, __LINE__);
	taken += b->bytes;
	count++;
}

/* Runs this program again as the one who opens what is here. */
static void run_second(const char *how, const char *bytes, const char *device, const char *what)
{
	char *arguments[] = {"fill", (char *)how, (char *)bytes, (char *)device, (char *)what, NULL};
	extern char **environ;
	int status;
	pid_t pid;

	if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environ))
		fail("the second process does not start");
	while (waitpid(pid, &status, 0) < 0)
		HOLDS(errno == EINTR);
	if (status)
		fail("the second process ended with status %#x", (unsigned)status);
}

static void first_of_two(const char *how, const char *mib, const char *device)
{
	char what[2 * sizeof(CUipcMemHandle) + 1];
	bool ipc = !strcmp(how, "ipc");
	struct block *b = &blocks[0];

	*b = (struct block){.kind = find_kind(ipc ? "alloc" : "vmm"), .bytes = number(mib) * MIB};
	expect(b->kind->take(b), CUDA_SUCCESS, "the first block", __FILE__, __LINE__);
	taken = b->bytes;
	count = 1;
	pause_at("first");
	if (ipc) {
		CUipcMemHandle handle;

		TRY(cuIpcGetMemHandle(&handle, b->address));
		for (size_t i = 0; i < sizeof handle; i++)
			snprintf(what + 2 * i, 3, "%02x", (unsigned char)handle.reserved[i]);
	} else {
		int fd;

		TRY(cuMemExportToShareableHandle(&fd, b->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
		fd = dup(fd); /* without close-on-exec */
		snprintf(what, sizeof what, "%d", fd);
	}
	run_second(how, mib, device, what);
	drop_last();
	pause_at("end");
}

/* Opens the first process's block, which costs nothing. */
static void open_first(const char *how, const char *what, size_t bytes)
{
	size_t before, after, total;
	CUdeviceptr address;

	TRY(cuMemGetInfo_v2(&before, &total));
	if (!strcmp(how, "ipc")) {
		CUipcMemHandle handle;

		for (size_t i = 0; i < sizeof handle; i++) {
			unsigned byte;

			HOLDS(sscanf(what + 2 * i, "%2x", &byte) == 1);
			handle.reserved[i] = (char)byte;
		}
		TRY(cuIpcOpenMemHandle_v2(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	} else {
		CUmemGenericAllocationHandle handle;

		TRY(cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)number(what), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
		TRY(vmm_map(handle, bytes, &address));
	}
	TRY(cuMemsetD8_v2(address, 1, bytes));
	TRY(cuMemGetInfo_v2(&after, &total));
	if (before != after)
		fail("opening memory of the other process took %zd bytes", before - after);
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "alloc", *mib = argc > 2 ? argv[2] : "64", *device = argc > 3 ? argv[3] : "0";
	bool two = !strcmp(how, "ipc") || !strcmp(how, "import");
	struct kernels k;

	blocks = calloc(MAX_BLOCKS + 1, sizeof *blocks);
	HOLDS(blocks);
	use_device((int)number(device));
	k = load_kernels();
	pause_at("start");
	if (two && argc < 5) {
		first_of_two(how, mib, device);
		return 0;
	}
	if (two)
		open_first(how, argv[4], number(mib) * MIB);
	if (!strcmp(how, "all"))
		for (size_t i = 0; i < COUNT(kinds); i++)
			fill(&kinds[i], number(mib) * MIB);
	else
		fill(find_kind(two ? "alloc" : how), number(mib) * MIB);
	pause_at("full");
	go_on(&k);
	pause_at("again");
	while (count)
		drop_last();
	pause_at("end");
	return 0;
}
