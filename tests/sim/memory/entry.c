/* SPDX-License-Identifier: Apache-2.0
 *
 * Entry points. Arguments: files of answers of cuGetProcAddress and of exported
 * symbols, as in tests/testdata/cuda, and the version of the driver. What a driver says
 * before and without cuInit.
 */
#include <dlfcn.h>

#include "check.h"

static int newest;

static void *symbol(const char *name)
{
	static void *library;

	if (!library)
		library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	CHECK(library);
	return dlsym(library, name);
}

/* "cuMemAlloc flags=0 since=3020 -> cuMemAlloc_v2": from that version on until the next line
 * of that name and flags. */
static void answers_are_those_of_the_real_driver(const char *path)
{
	FILE *file = fopen(path, "r");
	char name[128], wanted[128], last[128] = "";
	int flags, since, last_flags = -1;
	CUdriverProcAddressQueryResult status;
	void *function;

	CHECK(file);
	while (fscanf(file, "%127s flags=%d since=%d -> %127s", name, &flags, &since, wanted) == 4) {
		OK(cuGetProcAddress_v2(name, &function, since, (cuuint64_t)flags, &status));
		if (function != symbol(wanted) || status != CU_GET_PROC_ADDRESS_SUCCESS)
			fail_at(path, since, "%s with flags %d is not %s", name, flags, wanted);
		if (flags == 0) {
			OK(cuGetProcAddress_v2(name, &function, since, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status));
			CHECK(function == symbol(wanted));
		}
		OK(cuGetProcAddress(name, &function, since, (cuuint64_t)flags));
		CHECK(function == symbol(wanted));
		OK(cuGetProcAddress_v2(name, &function, since - 1, (cuuint64_t)flags, &status));
		if (strcmp(last, name) == 0 && last_flags == flags) {
			CHECK(status == CU_GET_PROC_ADDRESS_SUCCESS && function != symbol(wanted));
		} else {
			CHECK(status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT && function == NULL);
			FAILS(CUDA_ERROR_NOT_FOUND, cuGetProcAddress(name, &function, since - 1, (cuuint64_t)flags));
		}
		strcpy(last, name);
		last_flags = flags;
	}
	CHECK(feof(file) && last[0]);
	fclose(file);
}

static void what_a_profile_lacks_is_not_given(int version)
{
	CUdriverProcAddressQueryResult status;
	void *function;

	OK(cuGetProcAddress_v2("cuMemGetMemPool", &function, newest, 0, &status));
	CHECK((status == CU_GET_PROC_ADDRESS_SUCCESS) == (version >= 13000));
	CHECK((function != NULL) == (version >= 13000));
	OK(cuGetProcAddress_v2("cuGreenCtxCreate", &function, newest, 0, &status));
	CHECK((function != NULL) == (version >= 12040));
	CHECK(status == (version >= 12040 ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND));
	OK(cuGetProcAddress_v2("cuGetProcAddress", &function, newest, 0, &status));
	CHECK(function == (version >= 12000 ? symbol("cuGetProcAddress_v2") : symbol("cuGetProcAddress")));
}

static void nonsense_is_refused(void)
{
	CUdriverProcAddressQueryResult status;
	const void *table;
	const char *text;
	CUuuid id = {{0}};
	void *function;

	OK(cuGetProcAddress_v2("", &function, 0, 0, &status));
	CHECK(function == NULL && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	OK(cuGetProcAddress_v2("cuMemAlloc_v2", &function, newest, 0, NULL));
	CHECK(function == NULL);
	FAILS(CUDA_ERROR_NOT_FOUND, cuGetProcAddress("cuNothing", &function, newest, 0));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress("cuInit", &function, newest, 3));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress("cuInit", &function, newest + 10, 0));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress("cuInit", NULL, newest, 0));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress(NULL, &function, newest, 0));
	FAILS(CUDA_ERROR_NOT_FOUND, cuGetExportTable(&table, &id));
	OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
	CHECK(strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY") == 0);
	OK(cuGetErrorString(CUDA_SUCCESS, &text));
	CHECK(text && *text);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuGetErrorName((CUresult)12345, &text));
	CHECK(text == NULL);
}

/* Each with an address of its own. */
static void every_symbol_is_exported(const char *path)
{
	static void *seen[2000];
	FILE *file = fopen(path, "r");
	size_t count = 0;
	char name[128];

	CHECK(file);
	while (fscanf(file, "%127s", name) == 1 && count < sizeof(seen) / sizeof(seen[0])) {
		seen[count] = symbol(name);
		if (!seen[count])
			fail_at(path, 0, "%s is not exported", name);
		for (size_t i = 0; i < count; i++) {
			if (seen[i] == seen[count])
				fail_at(path, (int)i + 1, "%s is the same function as the one of this line", name);
		}
		count++;
	}
	CHECK(count > 0 && feof(file));
	fclose(file);
}

int main(int argc, char **argv)
{
	CUtexref texture;
	CUcontext context;
	int count, version;

	CHECK(argc == 4);
	OK(cuDriverGetVersion(&version));
	EQUAL(atoi(argv[3]), version);
	newest = version;
	answers_are_those_of_the_real_driver(argv[1]);
	what_a_profile_lacks_is_not_given(version);
	nonsense_is_refused();
	every_symbol_is_exported(argv[2]);

	FAILS(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
	FAILS(CUDA_ERROR_NOT_INITIALIZED, cuTexRefCreate(&texture));
	FAILS(CUDA_ERROR_NOT_INITIALIZED, cuCtxGetCurrent(&context));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuInit(1));
	OK(cuInit(0));
	OK(cuInit(0));
	/* Not modelled is never a success. */
	FAILS(CUDA_ERROR_NOT_SUPPORTED, cuTexRefCreate(&texture));
	return 0;
}
