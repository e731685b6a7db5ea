/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches, from streams and from graphs.
 */
#ifndef TRANCHE_SIM_LAUNCH_H
#define TRANCHE_SIM_LAUNCH_H

#include "stream.h"

/* Checks a launch in a context, and says how long the kernel will take. function is what
 * params.func or params.kern stand for there. */
CUresult launch_check(const CUDA_KERNEL_NODE_PARAMS_v3 *params, struct CUctx_st *context, struct CUfunc_st **function,
		      uint64_t *nanoseconds);
/* Whether all blocks of a cooperative launch fit onto the card at once. */
CUresult launch_check_cooperative(const CUDA_KERNEL_NODE_PARAMS_v3 *params, const struct CUctx_st *context);

#endif
