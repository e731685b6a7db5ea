/* SPDX-License-Identifier: Apache-2.0
 *
 * A process that is killed between any two instructions of a call leaves nothing. A
 * victim is run through one call step by step; how many steps that takes is counted first, then
 * others are killed after some of them. The argument is how many.
 */
#include <sys/ptrace.h>

#include "check.h"

static struct simcard *page;

/* What victims have before the call, and what they offer. */
static struct {
	CUdeviceptr small, large;
	CUmemGenericAllocationHandle handle;
	CUmemoryPool pool;
	CUcontext context;
} v;

struct offer {
	CUipcMemHandle ipc;
	bool has_ipc;
};

static CUmemAllocationProp exportable(void)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
}

static void alloc_large(void)
{
	OK(cuMemAlloc_v2(&v.large, 7 * MIB));
}

static void free_large(void)
{
	OK(cuMemFree_v2(v.large));
}

static void alloc_small(void)
{
	OK(cuMemAlloc_v2(&v.small, 100));
}

static void free_small(void)
{
	OK(cuMemFree_v2(v.small));
}

static void make_handle(void)
{
	CUmemAllocationProp properties = exportable();

	OK(cuMemCreate(&v.handle, 3 * FRAME, &properties, 0));
}

static void export_handle(void)
{
	int fd;

	OK(cuMemExportToShareableHandle(&fd, v.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
}

static void release_handle(void)
{
	OK(cuMemRelease(v.handle));
}

static void make_shared_handle(void)
{
	make_handle();
	export_handle();
}

static void new_one(void)
{
	OK(cuCtxCreate_v2(&v.context, 0, 0));
}

static void end_one(void)
{
	OK(cuCtxDestroy_v2(v.context));
}

static void alloc_async(void)
{
	OK(cuMemAllocAsync(&v.large, 5 * MIB, NULL));
}

static void trim(void)
{
	OK(cuMemPoolTrimTo(v.pool, 0));
}

static void fill_pool(void)
{
	OK(cuDeviceGetDefaultMemPool(&v.pool, 0));
	alloc_async();
	OK(cuMemFree_v2(v.large));
}

/* What is done the first time only is not what is looked at. */
static void large_before(void)
{
	alloc_large();
	free_large();
}

static void small_before(void)
{
	alloc_small();
	free_small();
}

static void handle_before(void)
{
	make_handle();
	release_handle();
}

static void context_before(void)
{
	new_one();
	end_one();
	new_context(0);
}

static void async_before(void)
{
	fill_pool();
	trim();
}

static const struct {
	const char *name;
	void (*before)(void);
	void (*call)(void);
	bool offers; /* the large allocation by IPC; the survivor has it open */
} rows[] = {
	{"a large allocation", large_before, alloc_large, false},
	{"a large free", alloc_large, free_large, false},
	{"a free of what another process has open", alloc_large, free_large, true},
	{"a small allocation", small_before, alloc_small, false},
	{"a small free", alloc_small, free_small, false},
	{"cuMemCreate", handle_before, make_handle, false},
	{"cuMemExportToShareableHandle", make_handle, export_handle, false},
	{"cuMemRelease", make_handle, release_handle, false},
	{"cuMemRelease of what was exported", make_shared_handle, release_handle, false},
	{"cuCtxCreate", context_before, new_one, false},
	{"cuCtxDestroy", new_one, end_one, false},
	{"cuMemAllocAsync", async_before, alloc_async, false},
	{"cuMemPoolTrimTo", fill_pool, trim, false},
};

static void victim(size_t row, int end)
{
	struct offer offer = {.has_ipc = rows[row].offers};

	new_context(0);
	rows[row].before();
	if (offer.has_ipc) {
		OK(cuIpcGetMemHandle(&offer.ipc, v.large));
		*(char *)(uintptr_t)v.large = 77;
	}
	put(end, &offer, sizeof(offer));
	await(end);
	CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
	raise(SIGSTOP);
	rows[row].call();
	raise(SIGSTOP);
	_exit(0);
}

/* Whether the victim stopped by itself. */
static bool stopped(pid_t pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFSTOPPED(status));
	return WSTOPSIG(status) == SIGSTOP;
}

/* Runs a victim for at most so many steps of its call, kills it and looks at what is left. Returns
 * how many it took. */
static unsigned long run(size_t row, unsigned long steps)
{
	char number[16];
	struct offer offer;
	CUdeviceptr open = 0;
	uint64_t before = used(page);
	unsigned long step = 0;
	pid_t pid;
	int end;

	snprintf(number, sizeof(number), "%zu", row);
	pid = start(number, &end);
	get(end, &offer, sizeof(offer));
	if (offer.has_ipc)
		OK(cuIpcOpenMemHandle_v2(&open, offer.ipc, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	tell(end);
	CHECK(stopped(pid));
	while (step < steps) {
		CHECK(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) == 0);
		if (stopped(pid))
			break;
		step++;
	}
	murder(pid);
	close(end);
	OK(cuMemGetInfo_v2(NULL, NULL));
	if (open) {
		EQUAL(before + 4 * FRAME, used(page));
		EQUAL(77, *(char *)(uintptr_t)open);
		BOOKS(page);
		OK(cuIpcCloseMemHandle(open));
	}
	if (used(page) != before)
		fail_at(rows[row].name, (int)step, "%llu bytes are left", (unsigned long long)(used(page) - before));
	BOOKS(page);
	/* Others go on. */
	OK(cuMemAlloc_v2(&open, 5 * MIB));
	OK(cuMemFree_v2(open));
	return step;
}

int main(int argc, char **argv)
{
	CUcontext context;

	page = card_page(0);
	if (argc == 3) {
		victim((size_t)atoi(argv[1]), atoi(argv[2]));
		return 0;
	}
	CHECK(argc == 2);
	context = new_context(0);
	for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		unsigned long all = run(row, 100000000), many = strtoul(argv[1], NULL, 10);

		CHECK(all > 0);
		for (unsigned long i = 0; i < many; i++)
			run(row, all * i / many);
	}
	OK(cuCtxDestroy_v2(context));
	EQUAL(0, used(page));
	return 0;
}
