/* SPDX-License-Identifier: Apache-2.0 */
#include "files.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int sim_duplicate(int fd)
{
	return fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

bool sim_is_memfd(int fd, const char *name, uint64_t *size)
{
	char link[64], target[256], wanted[128];
	struct stat st;
	ssize_t length;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, target, sizeof(target) - 1);
	if (length <= 0 || fstat(fd, &st) != 0)
		return false;
	target[length] = '\0';
	*size = (uint64_t)st.st_size;
	if (!name)
		return strncmp(target, "/memfd:", strlen("/memfd:")) == 0;
	snprintf(wanted, sizeof(wanted), "/memfd:%s ", name);
	return strncmp(target, wanted, strlen(wanted)) == 0;
}
