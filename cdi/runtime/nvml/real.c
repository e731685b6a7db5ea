/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding the driver's own functions. The library is loaded already: ours names
 * it as needed.
 */
#include <dlfcn.h>

#include "zz_generated_hooks.h"

/* C libraries before 2.34 know only these versions, newer ones both. */
#if defined(__x86_64__)
__asm__(".symver dlopen, dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");
#elif defined(__aarch64__)
__asm__(".symver dlopen, dlopen@GLIBC_2.17");
__asm__(".symver dlsym, dlsym@GLIBC_2.17");
#endif

void *tranche_real(const char *name)
{
	static void *library;
	void *found = __atomic_load_n(&library, __ATOMIC_ACQUIRE);

	if (!found) {
		found = dlopen("libnvidia-ml-real.so.1", RTLD_LAZY | RTLD_NOLOAD);
		if (!found)
			return NULL;
		__atomic_store_n(&library, found, __ATOMIC_RELEASE);
	}
	return dlsym(found, name);
}
