/* SPDX-License-Identifier: Apache-2.0
 * links: nothing
 *
 * A program that does not use the card. It is built with musl as well where the
 * machine has it, and linked statically: in a container with a share it must run as
 * everywhere else. Prints which files it has mapped that are the runtime's.
 */
#include <stdio.h>
#include <string.h>

int main(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	int found = 0;

	while (maps && fgets(line, sizeof line, maps))
		found += strstr(line, "libcuda") || strstr(line, "libnvidia-ml") || strstr(line, "tranche");
	printf("stranger mapped=%d\n", found);
	return maps ? 0 : 1;
}
