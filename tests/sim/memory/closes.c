/* SPDX-License-Identifier: Apache-2.0
 *
 * A program that closes all descriptors has lost the card, as with the real driver, and what
 * it opens instead is not mistaken for the card's files.
 */
#include "check.h"

int main(void)
{
	struct simcard *page = card_page(0);
	char path[] = "/tmp/closes-XXXXXX", content[8192];
	CUdeviceptr large, small, other;
	struct stat before, after;
	int fd = mkstemp(path);

	CHECK(fd >= 0);
	memset(content, 7, sizeof(content));
	for (int i = 0; i < 4096; i++)
		CHECK(write(fd, content, sizeof(content)) == (ssize_t)sizeof(content));
	new_context(0);
	OK(cuMemAlloc_v2(&small, 100));
	OK(cuMemAlloc_v2(&large, 8 * MIB));
	memset((void *)(uintptr_t)large, 1, 8 * MIB);
	for (int i = 3; i < 256; i++)
		close(i);
	for (int i = 3; i < 256; i++)
		CHECK(open(path, O_RDWR | O_CLOEXEC) == i);
	CHECK(stat(path, &before) == 0);
	FAILS(CUDA_ERROR_DEVICE_UNAVAILABLE, cuMemAlloc_v2(&other, 8 * MIB));
	OK(cuMemGetInfo_v2(NULL, NULL));
	OK(cuMemFree_v2(large));
	OK(cuMemFree_v2(small));
	CHECK(stat(path, &after) == 0);
	CHECK(before.st_blocks == after.st_blocks && before.st_size == after.st_size);
	for (off_t at = 0; at < after.st_size; at += (off_t)sizeof(content)) {
		CHECK(pread(3, content, sizeof(content), at) == (ssize_t)sizeof(content));
		for (size_t i = 0; i < sizeof(content); i++)
			EQUAL(7, content[i]);
	}
	unlink(path);
	/* Who looks finds the process gone. */
	CHECK(used(page) > 0);
	return 0;
}
