/* SPDX-License-Identifier: Apache-2.0
 *
 * handover released|freed-twice|kept|kept-released|kept-imported|inherited|give NAME|take NAME
 *
 * Memory whose charge passes from one to another, or is given up twice. released: the
 * maker lives, and looks again after another process has imported what it released.
 * freed-twice: two threads free the same memory. kept: makers end, and only descriptors of
 * what they made are left; released before they ended, or imported by others who ended
 * too. inherited: one process after another takes what only one of them can have, each as soon
 * as the one before it was waited for. give and take: one share's memory is imported by a process of another, which has no
 * room for it; they meet at an abstract socket.
 */
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "client.h"
#include "kinds.h"

#define EXPORTED (300 * MIB)

union control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(sizeof(int))];
};

static void send_fd(int socket, int fd)
{
	char byte = 1;
	struct iovec data = { &byte, 1 };
	union control control = { .header = { .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd) } };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };

	memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
	HOLDS(sendmsg(socket, &message, 0) == 1);
}

static int receive_fd(int socket)
{
	char byte;
	int fd;
	struct iovec data = { &byte, 1 };
	union control control;
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };

	HOLDS(recvmsg(socket, &message, 0) == 1);
	memcpy(&fd, CMSG_DATA(&control.header), sizeof fd);
	return fd;
}

static CUresult import(CUmemGenericAllocationHandle *handle, int fd)
{
	return cuMemImportFromShareableHandle(handle, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

static _Noreturn void make(int socket)
{
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp properties;
	char byte;
	int fd;

	use_device(0);
	properties = vmm_properties();
	TRY(cuMemCreate(&handle, EXPORTED, &properties, 0));
	TRY(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	send_fd(socket, fd);
	close(fd);
	TRY(cuMemRelease(handle));
	while (read(socket, &byte, 1) == 1) {
		CUdeviceptr more;

		usleep(12000);
		TRY(cuCtxSynchronize());
		WANT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&more, EXPORTED));
		HOLDS(write(socket, &byte, 1) == 1);
	}
	_exit(0);
}

static int maker(pid_t *pid)
{
	int pair[2];

	HOLDS(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
	*pid = fork();
	HOLDS(*pid >= 0);
	if (*pid == 0) {
		close(pair[0]);
		make(pair[1]);
	}
	close(pair[1]);
	return pair[0];
}

static void released(void)
{
	CUmemGenericAllocationHandle handle;
	char byte = 1;
	pid_t pid;
	int status, socket = maker(&pid), fd = receive_fd(socket);

	usleep(100000);
	use_device(0);
	TRY(import(&handle, fd));
	close(fd);
	for (int i = 0; i < 10; i++) {
		HOLDS(write(socket, &byte, 1) == 1);
		HOLDS(read(socket, &byte, 1) == 1);
	}
	barrier("handed over");
	close(socket);
	HOLDS(waitpid(pid, &status, 0) == pid && status == 0);
}

/* Runs part in a child that ends, with a descriptor to take along (-1: none), and receives
 * one where the child succeeds. */
static int in_child(CUresult (*part)(int *fd), int fd)
{
	int pair[2], status;
	pid_t pid;

	HOLDS(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
	pid = fork();
	HOLDS(pid >= 0);
	if (pid == 0) {
		CUresult result;

		close(pair[0]);
		use_device(0);
		result = part(&fd);
		if (result == CUDA_SUCCESS)
			send_fd(pair[1], fd);
		_exit((int)result);
	}
	close(pair[1]);
	HOLDS(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	HOLDS(WEXITSTATUS(status) == CUDA_SUCCESS || WEXITSTATUS(status) == CUDA_ERROR_OUT_OF_MEMORY);
	fd = WEXITSTATUS(status) == CUDA_SUCCESS ? receive_fd(pair[0]) : -1;
	close(pair[0]);
	return fd;
}

static CUresult create_exported(CUmemGenericAllocationHandle *handle, int *fd)
{
	CUmemAllocationProp properties = vmm_properties();
	CUresult result = cuMemCreate(handle, EXPORTED, &properties, 0);

	if (result == CUDA_SUCCESS)
		TRY(cuMemExportToShareableHandle(fd, *handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	return result;
}

static CUresult leave_made(int *fd)
{
	CUmemGenericAllocationHandle handle;

	return create_exported(&handle, fd);
}

static CUresult leave_released(int *fd)
{
	CUmemGenericAllocationHandle handle;
	CUresult result = create_exported(&handle, fd);

	if (result == CUDA_SUCCESS)
		TRY(cuMemRelease(handle));
	return result;
}

static CUresult leave_imported(int *fd)
{
	CUmemGenericAllocationHandle handle;

	return import(&handle, *fd);
}

/* What makers that have ended made, as often as there seems to be room. */
static void kept(CUresult (*part)(int *fd), bool imports)
{
	int fds[6], count = 0;

	for (size_t i = 0; i < COUNT(fds); i++) {
		int fd = in_child(part, -1);

		if (fd < 0)
			continue;
		if (imports) {
			int again = in_child(leave_imported, fd);

			HOLDS(again >= 0);
			close(fd);
			fd = again;
		}
		fds[count++] = fd;
	}
	say("kept count=%d", count);
	barrier("kept");
	while (count != 0)
		close(fds[--count]);
	barrier("closed");
	/* The room is there again. */
	count = in_child(part, -1);
	HOLDS(count >= 0);
	close(count);
	barrier("anew");
}

/* Both ends: who gives listens. */
static int meet(const char *name, bool listens)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), other;

	HOLDS(fd >= 0 && strlen(name) < sizeof address.sun_path);
	memcpy(address.sun_path + 1, name, strlen(name));
	if (!listens) {
		HOLDS(!connect(fd, (struct sockaddr *)&address, length));
		return fd;
	}
	HOLDS(!bind(fd, (struct sockaddr *)&address, length) && !listen(fd, 1));
	say("listens");
	other = accept(fd, NULL, NULL);
	HOLDS(other >= 0);
	close(fd);
	return other;
}

static void give(const char *name)
{
	int fd = in_child(leave_made, -1), socket;

	HOLDS(fd >= 0);
	socket = meet(name, true);
	send_fd(socket, fd);
	close(fd);
	close(socket);
}

static void take(const char *name)
{
	int socket = meet(name, false), fd = receive_fd(socket);
	CUmemGenericAllocationHandle handle;

	use_device(0);
	barrier("received");
	for (int i = 0; i < 3; i++)
		WANT(CUDA_ERROR_OUT_OF_MEMORY, import(&handle, fd));
	close(fd);
	barrier("undone");
}

static CUcontext context;
static CUdeviceptr shared;
static pthread_barrier_t both;

static void *free_too(void *unused)
{
	(void)unused;
	TRY(cuCtxSetCurrent(context));
	for (;;) {
		pthread_barrier_wait(&both);
		if (!shared)
			return NULL;
		cuMemFree_v2(shared);
		pthread_barrier_wait(&both);
	}
}

static void freed_twice(void)
{
	pthread_t other;

	context = use_device(0);
	HOLDS(!pthread_barrier_init(&both, NULL, 2) && !pthread_create(&other, NULL, free_too, NULL));
	for (int i = 0; i < 2000; i++) {
		TRY(cuMemAlloc_v2(&shared, 4 * MIB));
		pthread_barrier_wait(&both);
		cuMemFree_v2(shared);
		pthread_barrier_wait(&both);
	}
	shared = 0;
	pthread_barrier_wait(&both);
	HOLDS(!pthread_join(other, NULL));
	barrier("freed");
}

static _Noreturn void inherit(int socket)
{
	CUdeviceptr memory;
	char byte = 1;

	use_device(0);
	HOLDS(write(socket, &byte, 1) == 1);
	HOLDS(read(socket, &byte, 1) == 1);
	TRY(cuMemAlloc_v2(&memory, EXPORTED));
	HOLDS(write(socket, &byte, 1) == 1);
	pause();
	_exit(1);
}

static void inherited(void)
{
	pid_t before = 0;
	char byte = 1;

	for (int i = 0; i < 50; i++) {
		int pair[2], status;
		pid_t pid;

		HOLDS(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
		pid = fork();
		HOLDS(pid >= 0);
		if (pid == 0)
			inherit(pair[1]);
		close(pair[1]);
		HOLDS(read(pair[0], &byte, 1) == 1);
		if (before)
			HOLDS(!kill(before, SIGKILL) && waitpid(before, &status, 0) == before);
		HOLDS(write(pair[0], &byte, 1) == 1 && read(pair[0], &byte, 1) == 1);
		close(pair[0]);
		before = pid;
	}
	HOLDS(!kill(before, SIGKILL));
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "released"))
		released();
	else if (argc == 2 && !strcmp(argv[1], "freed-twice"))
		freed_twice();
	else if (argc == 2 && !strcmp(argv[1], "kept"))
		kept(leave_made, false);
	else if (argc == 2 && !strcmp(argv[1], "kept-released"))
		kept(leave_released, false);
	else if (argc == 2 && !strcmp(argv[1], "kept-imported"))
		kept(leave_made, true);
	else if (argc == 2 && !strcmp(argv[1], "inherited"))
		inherited();
	else if (argc == 3 && !strcmp(argv[1], "give"))
		give(argv[2]);
	else if (argc == 3 && !strcmp(argv[1], "take"))
		take(argv[2]);
	else
		fail("usage: handover released|freed-twice|kept|kept-released|kept-imported|inherited|give NAME|take NAME");
	return 0;
}
