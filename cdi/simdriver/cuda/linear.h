/* SPDX-License-Identifier: Apache-2.0
 *
 * What linear memory asks of host memory and pools.
 */
#ifndef TRANCHE_SIM_LINEAR_H
#define TRANCHE_SIM_LINEAR_H

#include "memory.h"

#define SIM_MAX_PITCH 0x7fffffffu

/* Frees a range of the host's memory, or only forgets it if it was registered. */
void sim_host_free(struct sim_range *range);

/* cuMemFree of an allocation of a pool: it is free for every stream. */
CUresult sim_pool_free(struct sim_range *range, CUdeviceptr address);

#endif
