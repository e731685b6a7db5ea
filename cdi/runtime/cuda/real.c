/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <errno.h>

#include "zz_generated_hooks.h"

/* The driver's file, which this library needs and so has loaded before. */
#define REAL_NAME "libcuda-real.so.1"

static void *driver;

void *tranche_real(const char *name)
{
	void *handle = __atomic_load_n(&driver, __ATOMIC_ACQUIRE);
	int saved = errno;
	void *function;

	if (!handle) {
		handle = dlopen(REAL_NAME, RTLD_LAZY | RTLD_NOLOAD);
		if (!handle)
			return NULL;
		/* Two threads at once get the same handle. */
		__atomic_store_n(&driver, handle, __ATOMIC_RELEASE);
	}
	function = dlsym(handle, name);
	errno = saved;
	return function;
}
