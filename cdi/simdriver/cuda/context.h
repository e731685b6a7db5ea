/* SPDX-License-Identifier: Apache-2.0
 *
 * Contexts, between the files that make, end and configure them.
 */
#ifndef TRANCHE_SIM_CONTEXT_H
#define TRANCHE_SIM_CONTEXT_H

#include "memory.h"

#define SIM_CONTEXT_FLAGS                                                                                       \
	(CU_CTX_SCHED_MASK | CU_CTX_MAP_HOST | CU_CTX_LMEM_RESIZE_TO_MAX | CU_CTX_COREDUMP_ENABLE | CU_CTX_USER_COREDUMP_ENABLE | \
	 CU_CTX_SYNC_MEMOPS)

/* INVALID_VALUE for flags that mean nothing. */
CUresult sim_context_flags_check(unsigned flags);

/* Takes the memory of a context and starts its engine. */
CUresult sim_context_start(struct CUctx_st *context);
/* Ends the work, frees everything. The handle stays. */
void sim_context_stop(struct CUctx_st *context);

/* Sets the limits to what a new context has. */
void sim_limits_init(struct CUctx_st *context);

/* INVALID_CONTEXT: no context, CONTEXT_IS_DESTROYED: none any more. */
CUresult sim_context_check(CUcontext context);

/* Makes a context the calling thread's current one. INVALID_VALUE when too many are. */
CUresult sim_push(struct CUctx_st *context);
/* Takes a context off the calling thread's stack, if it is on top. */
void sim_pop_if_current(struct CUctx_st *context);

#endif
