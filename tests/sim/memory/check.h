/* SPDX-License-Identifier: Apache-2.0
 *
 * What the programs of this directory have in common. A program tests the
 * simulated driver, reads the truth from the card's page, and ends with the first thing that is
 * wrong.
 */
#ifndef TRANCHE_TEST_CHECK_H
#define TRANCHE_TEST_CHECK_H

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cuda.h"
#include "simcard.h"

#define MIB ((uint64_t)1 << 20)
#define FRAME SIMCARD_FRAME

static inline void fail_at(const char *file, int line, const char *format, ...)
{
	va_list args;

	fprintf(stderr, "%s:%d: ", file, line);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	_exit(1);
}

static inline const char *name_of(CUresult result)
{
	const char *name = NULL;

	cuGetErrorName(result, &name);
	return name ? name : "?";
}

#define CHECK(condition)                                          \
	do {                                                          \
		if (!(condition))                                         \
			fail_at(__FILE__, __LINE__, "not true: %s", #condition); \
	} while (0)

#define FAILS(wanted, call)                                                                                          \
	do {                                                                                                             \
		CUresult result_ = (call);                                                                               \
		if (result_ != (wanted))                                                                                 \
			fail_at(__FILE__, __LINE__, "%s gives %s, not %s", #call, name_of(result_), name_of(wanted));    \
	} while (0)

#define OK(call) FAILS(CUDA_SUCCESS, call)

#define EQUAL(wanted, value)                                                                                                 \
	do {                                                                                                                     \
		unsigned long long wanted_ = (unsigned long long)(wanted), value_ = (unsigned long long)(value);                 \
		if (wanted_ != value_)                                                                                           \
			fail_at(__FILE__, __LINE__, "%s is %llu, not %llu", #value, value_, wanted_);                            \
	} while (0)

/* The card with this index of the directory of cards; programs get its path as TEST_CARD_0, .... */
static inline struct simcard *card_page(int index)
{
	char name[32], path[512];
	struct simcard *page;
	int fd;

	snprintf(name, sizeof(name), "TEST_CARD_%d", index);
	snprintf(path, sizeof(path), "%s/card", getenv(name) ? getenv(name) : "");
	fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	page = mmap(NULL, sizeof(*page), PROT_READ, MAP_SHARED, fd, 0);
	CHECK(page != MAP_FAILED);
	close(fd);
	return page;
}

static inline uint64_t used(const struct simcard *page)
{
	return __atomic_load_n(&page->used, __ATOMIC_SEQ_CST);
}

/* What all processes hold for a kind. */
static inline uint64_t held(const struct simcard *page, enum simcard_kind kind)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < SIMCARD_MAX_SLOTS; i++)
		sum += __atomic_load_n(&page->slot[i].held[kind], __ATOMIC_SEQ_CST);
	return sum;
}

/* Frames in the table that belong to somebody. */
static inline uint64_t frames(const struct simcard *page)
{
	uint64_t count = 0;

	for (uint64_t i = 0; i < page->memory_total / FRAME; i++)
		count += __atomic_load_n(&page->frame[i], __ATOMIC_SEQ_CST) != 0;
	return count;
}

/* The books agree: nothing is in flight. */
#define BOOKS(page)                                      \
	do {                                                 \
		uint64_t sum_ = 0;                               \
		for (int kind_ = 0; kind_ < SIMCARD_KINDS; kind_++) \
			sum_ += held(page, kind_);                   \
		EQUAL(frames(page) * FRAME, sum_);               \
		EQUAL(used(page), sum_);                         \
	} while (0)

static inline CUcontext new_context(int device)
{
	CUcontext context;

	OK(cuInit(0));
	OK(cuCtxCreate_v2(&context, 0, device));
	return context;
}

/* ---- two processes ------------------------------------------------------------ */

/* The same program again, with a word and one end of a socket as its arguments; *end is
 * the other end. */
static inline pid_t start(const char *word, int *end)
{
	char number[16];
	int ends[2];
	pid_t pid;

	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		fcntl(ends[1], F_SETFD, 0);
		snprintf(number, sizeof(number), "%d", ends[1]);
		execl("/proc/self/exe", "again", word, number, (char *)NULL);
		_exit(127);
	}
	close(ends[1]);
	*end = ends[0];
	return pid;
}

static inline void put(int end, const void *data, size_t size)
{
	CHECK(write(end, data, size) == (ssize_t)size);
}

static inline void get(int end, void *data, size_t size)
{
	CHECK(read(end, data, size) == (ssize_t)size);
}

static inline void tell(int end)
{
	put(end, "", 1);
}

static inline void await(int end)
{
	char byte;

	get(end, &byte, 1);
}

static inline void put_fd(int end, int fd)
{
	char byte = 0, room[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec vector = {&byte, 1};
	struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
	struct cmsghdr *control = CMSG_FIRSTHDR(&message);

	control->cmsg_level = SOL_SOCKET;
	control->cmsg_type = SCM_RIGHTS;
	control->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(control), &fd, sizeof(fd));
	CHECK(sendmsg(end, &message, 0) == 1);
}

static inline int get_fd(int end)
{
	char byte, room[CMSG_SPACE(sizeof(int))];
	struct iovec vector = {&byte, 1};
	struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
	int fd;

	CHECK(recvmsg(end, &message, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&message));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	return fd;
}

/* Waits for a child that is to end well. */
static inline void join(pid_t pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static inline void murder(pid_t pid)
{
	int status;

	CHECK(kill(pid, SIGKILL) == 0);
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFSIGNALED(status));
}

/* ---- modules ---------------------------------------------------------------------- */

#define PTX_HEAD ".version 7.0\n.target sm_50\n.address_size 64\n"

#endif
