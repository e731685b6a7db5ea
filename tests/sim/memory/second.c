/* SPDX-License-Identifier: Apache-2.0
 *
 * A second copy of the library in one process, as dlmopen makes it, is a second user of the
 * card, and neither takes the other for dead.
 */
#include <dlfcn.h>

#include "check.h"

struct copy {
	CUresult (*init)(unsigned);
	CUresult (*create)(CUcontext *, unsigned, CUdevice);
	CUresult (*alloc)(CUdeviceptr *, size_t);
	CUresult (*info)(size_t *, size_t *);
	CUresult (*destroy)(CUcontext);
};

static struct copy open_copy(void)
{
	void *library = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	struct copy copy;

	if (!library)
		fail_at(__FILE__, __LINE__, "%s", dlerror());
	copy.init = (CUresult(*)(unsigned))dlsym(library, "cuInit");
	copy.create = (CUresult(*)(CUcontext *, unsigned, CUdevice))dlsym(library, "cuCtxCreate_v2");
	copy.alloc = (CUresult(*)(CUdeviceptr *, size_t))dlsym(library, "cuMemAlloc_v2");
	copy.info = (CUresult(*)(size_t *, size_t *))dlsym(library, "cuMemGetInfo_v2");
	copy.destroy = (CUresult(*)(CUcontext))dlsym(library, "cuCtxDestroy_v2");
	return copy;
}

int main(void)
{
	struct simcard *page = card_page(0);
	CUcontext mine = new_context(0), theirs;
	struct copy copy = open_copy();
	CUdeviceptr a, b;
	int pid = (int)getpid();

	OK(cuMemAlloc_v2(&a, FRAME));
	OK(copy.init(0));
	OK(copy.create(&theirs, 0, 0));
	OK(copy.alloc(&b, 3 * FRAME));
	EQUAL(2 * page->context_bytes + 4 * FRAME, used(page));
	OK(copy.info(NULL, NULL));
	OK(cuMemGetInfo_v2(NULL, NULL));
	EQUAL(2 * page->context_bytes + 4 * FRAME, used(page));
	CHECK(page->slot[0].ns_pid == pid && page->slot[1].ns_pid == pid);
	EQUAL(FRAME, page->slot[0].held[SIMCARD_LINEAR]);
	EQUAL(3 * FRAME, page->slot[1].held[SIMCARD_LINEAR]);
	BOOKS(page);
	OK(copy.destroy(theirs));
	EQUAL(page->context_bytes + FRAME, used(page));
	OK(cuCtxDestroy_v2(mine));
	EQUAL(0, used(page));
	return 0;
}
