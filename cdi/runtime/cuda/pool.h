/* SPDX-License-Identifier: Apache-2.0
 *
 * Stream-ordered allocations.
 */
#ifndef TRANCHE_POOL_H
#define TRANCHE_POOL_H

#include <stdint.h>

/* The driver was told to free an address that is not linear memory: perhaps one
 * of a pool. */
void pool_freed(uint64_t address);

#endif
