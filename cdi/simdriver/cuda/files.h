/* SPDX-License-Identifier: Apache-2.0
 *
 * Descriptors of the host's memory.
 */
#ifndef TRANCHE_SIM_FILES_H
#define TRANCHE_SIM_FILES_H

#include <stdbool.h>
#include <stdint.h>

/* Another descriptor, closed by exec; -1. */
int sim_duplicate(int fd);

/* Whether it is memory of memfd_create, of that name unless name is NULL; and how large. */
bool sim_is_memfd(int fd, const char *name, uint64_t *size);

#endif
