/* SPDX-License-Identifier: Apache-2.0
 * links: nothing
 *
 * symbols LIBRARY REAL NAME...
 *
 * Compares what two libraries answer to dlsym and to cuGetProcAddress for each
 * name: "NAME dlsym=same|ours|missing entry=same|ours|missing", where "same" means the very
 * function of the real library.
 */
#include <dlfcn.h>

#include "client.h"

static const char *compare(void *ours, void *real)
{
	return !ours ? "missing" : ours == real ? "same" : "ours";
}

int main(int argc, char **argv)
{
	CUresult (*init)(unsigned), (*get)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
	CUresult (*real_get)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
	void *ours, *real;

	if (argc < 4)
		fail("usage: symbols LIBRARY REAL NAME...");
	ours = dlopen(argv[1], RTLD_NOW);
	if (!ours)
		fail("%s", dlerror());
	real = dlopen(argv[2], RTLD_NOW | RTLD_NOLOAD);
	if (!real)
		fail("%s is not loaded along with %s", argv[2], argv[1]);
	*(void **)&init = dlsym(ours, "cuInit");
	*(void **)&get = dlsym(ours, "cuGetProcAddress_v2");
	*(void **)&real_get = dlsym(real, "cuGetProcAddress_v2");
	HOLDS(init && get && real_get);
	TRY(init(0));
	for (int i = 3; i < argc; i++) {
		CUdriverProcAddressQueryResult status, real_status;
		void *pointer = NULL, *real_pointer = NULL;
		CUresult result = get(argv[i], &pointer, 13000, 0, &status), real_result = real_get(argv[i], &real_pointer, 13000, 0, &real_status);

		if (result != real_result || status != real_status)
			fail("%s: cuGetProcAddress gave %d and status %d, the real one %d and %d", argv[i], (int)result, (int)status,
				(int)real_result, (int)real_status);
		say("%s dlsym=%s entry=%s", argv[i], compare(dlsym(ours, argv[i]), dlsym(real, argv[i])), compare(pointer, real_pointer));
	}
	return 0;
}
