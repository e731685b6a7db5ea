/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that processes share: exported allocations, IPC handles, pools, external
 * memory; and what becomes of it when its maker ends. Makers are this program again, because
 * a child of fork cannot use CUDA.
 */
#include "check.h"

static struct simcard *page;

static CUmemGenericAllocationHandle create_exportable(uint64_t size)
{
	CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
	CUmemGenericAllocationHandle handle;

	OK(cuMemCreate(&handle, size, &properties, 0));
	return handle;
}

static int export(CUmemGenericAllocationHandle handle)
{
	int fd = -1;

	OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	CHECK(fd >= 0);
	return fd;
}

static CUmemGenericAllocationHandle import(int fd)
{
	CUmemGenericAllocationHandle handle;

	OK(cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	return handle;
}

static char *map(CUmemGenericAllocationHandle handle, uint64_t size)
{
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdeviceptr address;

	OK(cuMemAddressReserve(&address, size, 0, 0, 0));
	OK(cuMemMap(address, size, 0, handle, 0));
	OK(cuMemSetAccess(address, size, &access, 1));
	return (char *)(uintptr_t)address;
}

static void unmap(char *address, uint64_t size)
{
	OK(cuMemUnmap((uintptr_t)address, size));
	OK(cuMemAddressFree((uintptr_t)address, size));
}

/* Waits until the card says so; a process that died is found by who looks. */
static void wait_for_used(uint64_t bytes)
{
	for (int i = 0; i < 1000 && used(page) != bytes; i++) {
		OK(cuMemGetInfo_v2(NULL, NULL));
		usleep(1000);
	}
	EQUAL(bytes, used(page));
	BOOKS(page);
}

/* ---- exported allocations ------------------------------------------------------------ */

static void exporter(int end)
{
	CUmemGenericAllocationHandle handle;
	CUcontext context = new_context(0);
	char *memory;
	int fd;

	handle = create_exportable(3 * FRAME);
	memory = map(handle, 3 * FRAME);
	strcpy(memory + 2 * FRAME, "made elsewhere");
	fd = export(handle);
	put_fd(end, fd);
	close(fd);
	await(end);
	strcpy(memory, "and changed");
	tell(end);
	await(end);
	unmap(memory, 3 * FRAME);
	OK(cuMemRelease(handle));
	tell(end);
	await(end);
	OK(cuCtxDestroy_v2(context));
}

static void an_exported_allocation_is_the_same_memory(void)
{
	CUmemGenericAllocationHandle handle, again;
	uint64_t before = used(page);
	char *memory;
	int end, fd;
	pid_t child = start("exporter", &end);

	fd = get_fd(end);
	handle = import(fd);
	again = import(fd);
	CHECK(handle == again);
	close(fd);
	memory = map(handle, 3 * FRAME);
	CHECK(strcmp(memory + 2 * FRAME, "made elsewhere") == 0);
	tell(end);
	await(end);
	CHECK(strcmp(memory, "and changed") == 0);
	EQUAL(3 * FRAME, held(page, SIMCARD_VMM));
	tell(end);
	await(end);
	/* The maker has let go: it is ours. */
	EQUAL(3 * FRAME, held(page, SIMCARD_VMM));
	BOOKS(page);
	tell(end);
	join(child);
	CHECK(strcmp(memory + 2 * FRAME, "made elsewhere") == 0);
	unmap(memory, 3 * FRAME);
	OK(cuMemRelease(handle));
	EQUAL(3 * FRAME, held(page, SIMCARD_VMM));
	OK(cuMemRelease(again));
	close(end);
	wait_for_used(before);
}

static void memory_survives_a_maker_that_is_killed(void)
{
	CUmemGenericAllocationHandle handle;
	uint64_t before = used(page);
	char *memory;
	int end, fd;
	pid_t child = start("exporter", &end);

	fd = get_fd(end);
	handle = import(fd);
	close(fd);
	memory = map(handle, 3 * FRAME);
	murder(child);
	wait_for_used(before + 3 * FRAME);
	EQUAL(3 * FRAME, held(page, SIMCARD_VMM));
	CHECK(strcmp(memory + 2 * FRAME, "made elsewhere") == 0);
	unmap(memory, 3 * FRAME);
	OK(cuMemRelease(handle));
	close(end);
	wait_for_used(before);
}

static void a_descriptor_alone_keeps_memory(void)
{
	CUmemGenericAllocationHandle handle;
	uint64_t before = used(page);
	char *memory;
	int end, fd, copy;
	pid_t child = start("exporter", &end);

	fd = get_fd(end);
	murder(child);
	wait_for_used(before + 3 * FRAME);
	copy = dup(fd);
	close(fd);
	wait_for_used(before + 3 * FRAME);
	handle = import(copy);
	close(copy);
	memory = map(handle, 3 * FRAME);
	CHECK(strcmp(memory + 2 * FRAME, "made elsewhere") == 0);
	wait_for_used(before + 3 * FRAME);
	OK(cuMemRelease(handle));
	unmap(memory, 3 * FRAME);
	wait_for_used(before);

	close(end);
	child = start("exporter", &end);
	fd = get_fd(end);
	murder(child);
	wait_for_used(before + 3 * FRAME);
	close(fd);
	close(end);
	wait_for_used(before);
}

static void what_is_no_export_is_refused(void)
{
	CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
	CUmemGenericAllocationHandle handle;
	int fd = open("/dev/null", O_RDONLY);

	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	FAILS(CUDA_ERROR_NOT_SUPPORTED, cuMemImportFromShareableHandle(&handle, NULL, CU_MEM_HANDLE_TYPE_FABRIC));
	OK(cuMemCreate(&handle, FRAME, &properties, 0));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	OK(cuMemRelease(handle));
}

/* ---- IPC handles -------------------------------------------------------------------- */

static void ipc_maker(int end)
{
	CUcontext context = new_context(0);
	CUipcMemHandle handle;
	CUdeviceptr small, other, large, opened;

	OK(cuMemAlloc_v2(&other, 100));
	OK(cuMemAlloc_v2(&small, 1000));
	OK(cuMemAlloc_v2(&large, 5 * MIB));
	strcpy((char *)(uintptr_t)small, "small");
	strcpy((char *)(uintptr_t)large, "large");
	OK(cuIpcGetMemHandle(&handle, small));
	FAILS(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle_v2(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	put(end, &handle, sizeof(handle));
	OK(cuIpcGetMemHandle(&handle, large));
	put(end, &handle, sizeof(handle));
	await(end);
	OK(cuMemFree_v2(large));
	OK(cuMemFree_v2(small));
	tell(end);
	await(end);
	OK(cuMemFree_v2(other));
	OK(cuCtxDestroy_v2(context));
	tell(end);
	await(end);
}

static void ipc_memory_is_the_same_and_changes_hands(void)
{
	CUipcMemHandle small_handle, large_handle, wrong = {{1}};
	CUdeviceptr small, again, large;
	uint64_t before = used(page);
	int end;
	pid_t child = start("ipc_maker", &end);

	get(end, &small_handle, sizeof(small_handle));
	get(end, &large_handle, sizeof(large_handle));
	OK(cuIpcOpenMemHandle_v2(&small, small_handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	OK(cuIpcOpenMemHandle_v2(&again, small_handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	OK(cuIpcOpenMemHandle(&large, large_handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	CHECK(small == again);
	CHECK(strcmp((char *)(uintptr_t)small, "small") == 0 && strcmp((char *)(uintptr_t)large, "large") == 0);
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuIpcOpenMemHandle_v2(&again, wrong, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(large));
	EQUAL(4 * FRAME, held(page, SIMCARD_LINEAR));
	tell(end);
	await(end);
	EQUAL(4 * FRAME, held(page, SIMCARD_LINEAR));
	tell(end);
	await(end);
	/* The other's context is gone, this one has all of it. */
	EQUAL(before + 4 * FRAME, used(page));
	CHECK(strcmp((char *)(uintptr_t)large, "large") == 0);
	OK(cuIpcCloseMemHandle(large));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(large));
	EQUAL(FRAME, held(page, SIMCARD_LINEAR));
	OK(cuIpcCloseMemHandle(small));
	EQUAL(FRAME, held(page, SIMCARD_LINEAR));
	OK(cuIpcCloseMemHandle(small));
	EQUAL(0, held(page, SIMCARD_LINEAR));
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuIpcOpenMemHandle_v2(&again, small_handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	tell(end);
	join(child);
	close(end);
	wait_for_used(before);
}

static void ipc_memory_survives_a_maker_that_is_killed(void)
{
	CUipcMemHandle small_handle, large_handle;
	CUdeviceptr large;
	uint64_t before = used(page);
	int end;
	pid_t child = start("ipc_maker", &end);

	get(end, &small_handle, sizeof(small_handle));
	get(end, &large_handle, sizeof(large_handle));
	OK(cuIpcOpenMemHandle_v2(&large, large_handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	murder(child);
	wait_for_used(before + 3 * FRAME);
	CHECK(strcmp((char *)(uintptr_t)large, "large") == 0);
	OK(cuIpcCloseMemHandle(large));
	close(end);
	wait_for_used(before);
}

static void what_ipc_does_not_carry(void)
{
	CUipcMemHandle handle;
	CUdeviceptr a;

	OK(cuMemAllocManaged(&a, 100, CU_MEM_ATTACH_GLOBAL));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, a));
	OK(cuMemFree_v2(a));
	OK(cuMemAllocAsync(&a, 100, NULL));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, a));
	OK(cuMemFreeAsync(a, NULL));
	OK(cuCtxSynchronize());
	FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, 0x1234));
}

/* ---- pools --------------------------------------------------------------------------- */

static void pool_maker(int end)
{
	CUmemPoolProps properties = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
	CUmemPoolPtrExportData data;
	CUmemoryPool pool, standard;
	CUcontext context = new_context(0);
	CUdeviceptr a, b;
	int fd;

	OK(cuDeviceGetDefaultMemPool(&standard, 0));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolExportToShareableHandle(&fd, standard, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	OK(cuMemPoolCreate(&pool, &properties));
	OK(cuMemAllocFromPoolAsync(&a, 1000, pool, NULL));
	OK(cuMemAllocFromPoolAsync(&b, 3 * MIB, pool, NULL));
	strcpy((char *)(uintptr_t)a, "first");
	strcpy((char *)(uintptr_t)b, "second");
	OK(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	put_fd(end, fd);
	close(fd);
	OK(cuMemPoolExportPointer(&data, a));
	put(end, &data, sizeof(data));
	OK(cuMemPoolExportPointer(&data, b));
	put(end, &data, sizeof(data));
	await(end);
	OK(cuMemFreeAsync(b, NULL));
	OK(cuCtxSynchronize());
	tell(end);
	await(end);
	OK(cuCtxDestroy_v2(context));
}

static void a_pool_is_shared(bool killed)
{
	CUmemPoolPtrExportData first, second, wrong = {{9}};
	uint64_t before = used(page);
	CUmemoryPool pool;
	CUdeviceptr a, b, c;
	int end, fd;
	pid_t child = start("pool_maker", &end);

	fd = get_fd(end);
	get(end, &first, sizeof(first));
	get(end, &second, sizeof(second));
	OK(cuMemPoolImportFromShareableHandle(&pool, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	close(fd);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&a, 10, pool, NULL));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceSetMemPool(0, pool));
	OK(cuMemPoolImportPointer(&a, pool, &first));
	OK(cuMemPoolImportPointer(&b, pool, &second));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolImportPointer(&c, pool, &wrong));
	CHECK(strcmp((char *)(uintptr_t)a, "first") == 0 && strcmp((char *)(uintptr_t)b, "second") == 0);
	EQUAL(3 * FRAME, held(page, SIMCARD_POOL));
	if (killed) {
		murder(child);
		wait_for_used(before + 3 * FRAME);
	} else {
		tell(end);
		await(end);
		EQUAL(3 * FRAME, held(page, SIMCARD_POOL));
	}
	CHECK(strcmp((char *)(uintptr_t)b, "second") == 0);
	OK(cuMemFreeAsync(b, NULL));
	EQUAL(FRAME, held(page, SIMCARD_POOL));
	OK(cuMemFree_v2(a));
	EQUAL(killed ? 0 : FRAME, held(page, SIMCARD_POOL));
	OK(cuMemPoolDestroy(pool));
	if (!killed) {
		tell(end);
		join(child);
	}
	close(end);
	wait_for_used(before);
}

/* ---- external memory ------------------------------------------------------------------ */

static void external_memory_costs_nothing_again(void)
{
	CUmemGenericAllocationHandle handle = create_exportable(2 * FRAME);
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .size = 2 * FRAME + 1};
	CUDA_EXTERNAL_MEMORY_BUFFER_DESC part = {.offset = FRAME + 100, .size = 1000}, beyond = {.offset = FRAME + 100, .size = FRAME};
	CUexternalMemory memory;
	CUdeviceptr buffer, base;
	uint64_t before = used(page);
	char *mine = map(handle, 2 * FRAME);
	size_t size;

	strcpy(mine + FRAME + 100, "out there");
	desc.handle.fd = export(handle);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuImportExternalMemory(&memory, &desc));
	desc.size = 2 * FRAME;
	OK(cuImportExternalMemory(&memory, &desc));
	CHECK(fcntl(desc.handle.fd, F_GETFD) == -1);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuExternalMemoryGetMappedBuffer(&buffer, memory, &beyond));
	OK(cuExternalMemoryGetMappedBuffer(&buffer, memory, &part));
	CHECK(strcmp((char *)(uintptr_t)buffer, "out there") == 0);
	OK(cuMemGetAddressRange_v2(&base, &size, buffer + 999));
	CHECK(base == buffer && size == 1000);
	EQUAL(before, used(page));
	unmap(mine, 2 * FRAME);
	OK(cuMemRelease(handle));
	OK(cuDestroyExternalMemory(memory));
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuDestroyExternalMemory(memory));
	EQUAL(2 * FRAME, held(page, SIMCARD_VMM));
	CHECK(strcmp((char *)(uintptr_t)buffer, "out there") == 0);
	OK(cuMemFree_v2(buffer));
	EQUAL(0, held(page, SIMCARD_VMM));
}

static void external_memory_of_the_host(void)
{
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .size = 8192};
	CUDA_EXTERNAL_MEMORY_BUFFER_DESC all = {.size = 8192};
	CUexternalMemory memory;
	CUdeviceptr buffer;
	int fd = memfd_create("mine", MFD_CLOEXEC);
	char byte = 0;

	CHECK(ftruncate(fd, 4096) == 0);
	desc.handle.fd = dup(fd);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuImportExternalMemory(&memory, &desc));
	CHECK(ftruncate(fd, 8192) == 0);
	OK(cuImportExternalMemory(&memory, &desc));
	OK(cuExternalMemoryGetMappedBuffer(&buffer, memory, &all));
	OK(cuMemsetD8_v2(buffer, 5, 8192));
	CHECK(pread(fd, &byte, 1, 8191) == 1 && byte == 5);
	OK(cuMemFree_v2(buffer));
	OK(cuDestroyExternalMemory(memory));
	desc.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_HEAP;
	FAILS(CUDA_ERROR_NOT_SUPPORTED, cuImportExternalMemory(&memory, &desc));
	close(fd);
}

static const struct {
	const char *name;
	void (*function)(int);
} makers[] = {
	{"exporter", exporter},
	{"ipc_maker", ipc_maker},
	{"pool_maker", pool_maker},
};

int main(int argc, char **argv)
{
	CUcontext context;

	for (size_t i = 0; argc == 3 && i < sizeof(makers) / sizeof(makers[0]); i++) {
		if (strcmp(argv[1], makers[i].name) == 0) {
			makers[i].function(atoi(argv[2]));
			return 0;
		}
	}
	page = card_page(0);
	context = new_context(0);
	an_exported_allocation_is_the_same_memory();
	memory_survives_a_maker_that_is_killed();
	a_descriptor_alone_keeps_memory();
	what_is_no_export_is_refused();
	ipc_memory_is_the_same_and_changes_hands();
	ipc_memory_survives_a_maker_that_is_killed();
	what_ipc_does_not_carry();
	a_pool_is_shared(false);
	a_pool_is_shared(true);
	external_memory_costs_nothing_again();
	external_memory_of_the_host();
	OK(cuCtxDestroy_v2(context));
	EQUAL(0, used(page));
	BOOKS(page);
	return 0;
}
