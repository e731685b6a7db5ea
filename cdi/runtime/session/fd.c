/* SPDX-License-Identifier: Apache-2.0 */
#include "line.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Programs count on low numbers: shells, daemons that close all up to some
 * number, select(). */
#define ASIDE 200

int fd_aside(int fd)
{
	int high = fcntl(fd, F_DUPFD_CLOEXEC, ASIDE);

	if (high < 0)
		return fd; /* the limit of open files is lower than that */
	close(fd);
	return high;
}

/* Not fstat: the C library has it under a new name since 2.33. */
static bool stat_of(int fd, struct stat *status)
{
	return fd >= 0 && syscall(SYS_fstat, fd, status) == 0;
}

bool fd_identify(int fd, uint64_t identity[2])
{
	struct stat status;

	if (!stat_of(fd, &status))
		return false;
	identity[0] = status.st_dev;
	identity[1] = status.st_ino;
	return true;
}

bool fd_is(int fd, const uint64_t identity[2])
{
	uint64_t now[2];

	return fd_identify(fd, now) && now[0] == identity[0] && now[1] == identity[1];
}

int64_t fd_size(int fd)
{
	struct stat status;

	return stat_of(fd, &status) ? (int64_t)status.st_size : -1;
}
