/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding the driver's own functions. The library is loaded already: ours names
 * it as needed.
 */
#include <dlfcn.h>
#include <errno.h>

#include "zz_generated_hooks.h"

void *tranche_real(const char *name)
{
	static void *library;
	void *found = __atomic_load_n(&library, __ATOMIC_ACQUIRE);
	int saved = errno;
	void *function;

	if (!found) {
		found = dlopen("libnvidia-ml-real.so.1", RTLD_LAZY | RTLD_NOLOAD);
		if (!found)
			return NULL;
		__atomic_store_n(&library, found, __ATOMIC_RELEASE);
	}
	function = dlsym(found, name);
	errno = saved;
	return function;
}
