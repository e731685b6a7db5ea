/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands where a program looks for libcuda.so.1, in front of the substitute
 * SUBSTITUTE (which it also needs by this path), and writes down to the file
 * RECORD which library every function comes from that is asked for by
 * cuGetProcAddress:
 *
 *	NAME VERSION FLAGS LIBRARY SYMBOL
 *
 * All else falls through to the substitute.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int cuGetProcAddress(const char *name, void **out, int version, uint64_t flags);
int cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *status);

typedef int get_v1(const char *, void **, int, uint64_t);
typedef int get_v2(const char *, void **, int, uint64_t, int *);

static void *next(const char *name)
{
	const char *path = getenv("SUBSTITUTE");
	void *library = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;

	if (library == NULL)
		abort();
	return dlsym(library, name);
}

static void record(const char *name, void **out, int version, uint64_t flags)
{
	const char *path = getenv("RECORD");
	FILE *file = path ? fopen(path, "a") : NULL;
	Dl_info info = {0};

	if (file == NULL)
		abort();
	if (out != NULL && *out != NULL && dladdr(*out, &info))
		fprintf(file, "%s %d %d %s %s\n", *name ? name : "-", version, (int)flags, info.dli_fname, info.dli_sname ? info.dli_sname : "?");
	fclose(file);
}

/* Who asks for cuGetProcAddress by itself goes on asking the recorder. */
static void again(void **out, void *theirs, void *ours)
{
	if (out != NULL && *out == theirs)
		*out = ours;
}

int cuGetProcAddress(const char *name, void **out, int version, uint64_t flags)
{
	get_v1 *real = (get_v1 *)next("cuGetProcAddress");
	int result = real(name, out, version, flags);

	if (result == 0)
		record(name, out, version, flags);
	again(out, next("cuGetProcAddress_v2"), (void *)cuGetProcAddress_v2);
	again(out, (void *)real, (void *)cuGetProcAddress);
	return result;
}

int cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *status)
{
	get_v2 *real = (get_v2 *)next("cuGetProcAddress_v2");
	int result = real(name, out, version, flags, status);

	if (result == 0)
		record(name, out, version, flags);
	again(out, (void *)real, (void *)cuGetProcAddress_v2);
	again(out, next("cuGetProcAddress"), (void *)cuGetProcAddress);
	return result;
}
