/* SPDX-License-Identifier: Apache-2.0
 * links: nothing
 *
 * loader METHOD [PATH]
 *
 * Gets at the driver in one of the ways in which programs and plug-ins do, and
 * takes blocks of 16 MiB until it is refused. Prints "full bytes=N total=N".
 *
 *   dlopen, global, deepbind   dlopen with RTLD_LOCAL, RTLD_GLOBAL, RTLD_DEEPBIND
 *   default                    as global, then dlsym(RTLD_DEFAULT)
 *   dlmopen                    in a namespace of its own
 *   dlvsym                     dlvsym where dlsym would do, and dlsym itself found by dlvsym
 *   entry                      every function by cuGetProcAddress
 * PATH is opened in place of libcuda.so.1.
 */
#include <dlfcn.h>

#include "client.h"

#define CHUNK (16 * MIB)

static void *library;
static void *(*find)(const char *name);

static void *by_dlsym(const char *name)
{
	return dlsym(library, name);
}

static void *by_default(const char *name)
{
	return dlsym(RTLD_DEFAULT, name);
}

/* The way around those who replace dlsym. */
static void *by_dlvsym(const char *name)
{
	void *(*real_dlsym)(void *, const char *) = dlvsym(RTLD_DEFAULT, "dlsym", "GLIBC_2.2.5");

	HOLDS(real_dlsym);
	return real_dlsym(library, name);
}

static void *by_entry(const char *name)
{
	CUresult (*get)(const char *, void **, int, cuuint64_t) = dlsym(library, "cuGetProcAddress");
	void *pointer = NULL;
	char plain[64];

	HOLDS(get);
	/* This interface is asked without the suffix. */
	snprintf(plain, sizeof plain, "%s", name);
	if (strlen(plain) > 3 && !strcmp(plain + strlen(plain) - 3, "_v2"))
		plain[strlen(plain) - 3] = 0;
	TRY(get(plain, &pointer, 11040, CU_GET_PROC_ADDRESS_DEFAULT));
	return pointer;
}

static void *need(const char *name)
{
	void *function = find(name);

	if (!function)
		fail("%s is not found", name);
	return function;
}

static void open_library(const char *method, const char *path)
{
	static const struct {
		const char *name;
		int flags;
		void *(*find)(const char *);
	} methods[] = {
		{"dlopen", RTLD_NOW, by_dlsym},
		{"global", RTLD_NOW | RTLD_GLOBAL, by_dlsym},
		{"deepbind", RTLD_LAZY | RTLD_DEEPBIND, by_dlsym},
		{"default", RTLD_NOW | RTLD_GLOBAL, by_default},
		{"dlmopen", RTLD_NOW, by_dlsym},
		{"dlvsym", RTLD_NOW, by_dlvsym},
		{"entry", RTLD_NOW, by_entry},
	};

	for (size_t i = 0; i < COUNT(methods); i++) {
		if (strcmp(methods[i].name, method))
			continue;
		find = methods[i].find;
		library = strcmp(method, "dlmopen") ? dlopen(path, methods[i].flags) : dlmopen(LM_ID_NEWLM, path, methods[i].flags);
		if (!library)
			fail("%s", dlerror());
		return;
	}
	fail("%s is no method", method);
}

int main(int argc, char **argv)
{
	CUresult (*init)(unsigned), (*retain)(CUcontext *, CUdevice), (*current)(CUcontext);
	CUresult (*allocate)(CUdeviceptr *, size_t), (*info)(size_t *, size_t *), result;
	size_t left, total;
	uint64_t bytes = 0;
	CUdeviceptr address;
	CUcontext context;

	if (argc < 2)
		fail("usage: loader METHOD [PATH]");
	open_library(argv[1], argc > 2 ? argv[2] : "libcuda.so.1");
	*(void **)&init = need("cuInit");
	*(void **)&retain = need("cuDevicePrimaryCtxRetain");
	*(void **)&current = need("cuCtxSetCurrent");
	*(void **)&allocate = need("cuMemAlloc_v2");
	*(void **)&info = need("cuMemGetInfo_v2");
	TRY(init(0));
	TRY(retain(&context, 0));
	TRY(current(context));
	while ((result = allocate(&address, CHUNK)) == CUDA_SUCCESS)
		bytes += CHUNK;
	expect(result, CUDA_ERROR_OUT_OF_MEMORY, "the last block", __FILE__, __LINE__);
	TRY(info(&left, &total));
	say("full bytes=%" PRIu64 " total=%zu", bytes, total);
	return 0;
}
