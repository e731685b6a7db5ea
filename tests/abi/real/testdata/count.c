/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks libcudart for the number of cards, which makes it look for the driver:
 *
 *	count LIBCUDART
 */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	int (*count)(int *) = NULL, cards = 0;
	void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;

	if (library != NULL)
		*(void **)&count = dlsym(library, "cudaGetDeviceCount");
	if (count == NULL) {
		printf("%s\n", dlerror());
		return 1;
	}
	printf("result %d\n", count(&cards));
	return 0;
}
