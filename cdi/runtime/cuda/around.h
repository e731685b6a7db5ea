/* SPDX-License-Identifier: Apache-2.0
 *
 * What generated wrappers do around a function of the driver that takes or
 * frees memory without saying how much (hooks.tsv, "around"):
 *
 *	struct around around;
 *	CUresult result = around_begin_KIND(&around, A, B);
 *
 *	if (result == CUDA_SUCCESS)
 *		do
 *			result = real_NAME(...);
 *		while (around_end_KIND(&around, &result));
 *	return result;
 *
 * begin takes room for what the call is expected to need, or refuses. end settles with what
 * it did need, and may undo the call and put an error into *result; true: room was made, call
 * again. begin that succeeded is followed by end, on the same thread. Kinds that
 * only look (launch) have no end.
 */
#ifndef TRANCHE_AROUND_H
#define TRANCHE_AROUND_H

#include <stdbool.h>

#include "context.h"
#include "cuda.h"
#include "lease.h"

struct around {
	struct card *card;
	struct estimate taken;
	uint64_t estimate;
	void *handle;       /* what the call is about */
	void **made;        /* where the call puts what it makes */
	const void *module;
	uint64_t number;
	unsigned tries;
	int used;           /* enum thing_kind: what is used for the first time */
	bool exact;         /* the estimate says all */
	bool lazy;
	bool idle;          /* nothing to do at the end */
	const struct meter **inside; /* says that the thread is at a launch under a lease; NULL: it is not */
	struct tally *tally; /* a batch that ends with it; NULL: none */
};

/* Contexts. */
CUresult around_begin_context(struct around *around, CUcontext *made, CUdevice device);
bool around_end_context(struct around *around, CUresult *result);
CUresult around_begin_primary(struct around *around, CUcontext *made, CUdevice device);
bool around_end_primary(struct around *around, CUresult *result);
CUresult around_begin_green(struct around *around, CUgreenCtx *made, CUdevice device);
bool around_end_green(struct around *around, CUresult *result);
CUresult around_begin_limit(struct around *around, CUlimit limit, size_t value);
bool around_end_limit(struct around *around, CUresult *result);
CUresult around_begin_context_end(struct around *around, CUcontext context);
bool around_end_context_end(struct around *around, CUresult *result);
CUresult around_begin_context_detach(struct around *around, CUcontext context);
bool around_end_context_detach(struct around *around, CUresult *result);
CUresult around_begin_green_end(struct around *around, CUgreenCtx context);
bool around_end_green_end(struct around *around, CUresult *result);
CUresult around_begin_primary_release(struct around *around, CUdevice device);
bool around_end_primary_release(struct around *around, CUresult *result);
CUresult around_begin_primary_reset(struct around *around, CUdevice device);
bool around_end_primary_reset(struct around *around, CUresult *result);

/* Modules and libraries. */
CUresult around_begin_load_file(struct around *around, CUmodule *made, const char *path);
bool around_end_load_file(struct around *around, CUresult *result);
CUresult around_begin_load_data(struct around *around, CUmodule *made, const void *image);
bool around_end_load_data(struct around *around, CUresult *result);
CUresult around_begin_library_file(struct around *around, CUlibrary *made, const char *path);
bool around_end_library_file(struct around *around, CUresult *result);
CUresult around_begin_library_data(struct around *around, CUlibrary *made, const void *image);
bool around_end_library_data(struct around *around, CUresult *result);
CUresult around_begin_unload(struct around *around, CUmodule module);
bool around_end_unload(struct around *around, CUresult *result);
CUresult around_begin_library_unload(struct around *around, CUlibrary library);
bool around_end_library_unload(struct around *around, CUresult *result);

/* First uses, at which lazy loading takes memory. */
CUresult around_begin_use_module(struct around *around, CUmodule module);
bool around_end_use_module(struct around *around, CUresult *result);
CUresult around_begin_use_library(struct around *around, CUlibrary library);
bool around_end_use_library(struct around *around, CUresult *result);
CUresult around_begin_use_kernel(struct around *around, CUkernel kernel);
bool around_end_use_kernel(struct around *around, CUresult *result);
CUresult around_begin_use_function(struct around *around, CUfunction function);
bool around_end_use_function(struct around *around, CUresult *result);
CUresult around_begin_function(struct around *around, CUfunction *made, CUmodule module);
bool around_end_function(struct around *around, CUresult *result);
CUresult around_begin_kernel(struct around *around, CUkernel *made, CUlibrary library);
bool around_end_kernel(struct around *around, CUresult *result);
CUresult around_begin_kernels(struct around *around, CUkernel *made, unsigned int room, CUlibrary library);
bool around_end_kernels(struct around *around, CUresult *result);

/* Kernels in graphs, which are loaded as if they were launched. */
CUresult around_begin_graph_kernel_old(struct around *around, const CUDA_KERNEL_NODE_PARAMS_v1 *params);
bool around_end_graph_kernel_old(struct around *around, CUresult *result);
CUresult around_begin_graph_kernel(struct around *around, const CUDA_KERNEL_NODE_PARAMS *params);
bool around_end_graph_kernel(struct around *around, CUresult *result);
CUresult around_begin_graph_node(struct around *around, const CUgraphNodeParams *params);
bool around_end_graph_node(struct around *around, CUresult *result);

/* Graphs with memory. */
CUresult around_begin_graph(struct around *around, CUgraphExec *made, CUgraph graph);
bool around_end_graph(struct around *around, CUresult *result);
CUresult around_begin_graph_exec(struct around *around, CUgraphExec exec);
bool around_end_graph_exec(struct around *around, CUresult *result);
CUresult around_begin_graph_end(struct around *around, CUgraphExec exec);
bool around_end_graph_end(struct around *around, CUresult *result);
CUresult around_begin_trim(struct around *around, CUdevice device);
bool around_end_trim(struct around *around, CUresult *result);

/* Pools that may shrink or grow, and synchronisation, at which they do. */
CUresult around_begin_pool(struct around *around, CUmemoryPool pool);
bool around_end_pool(struct around *around, CUresult *result);
CUresult around_begin_sync(struct around *around);
bool around_end_sync(struct around *around, CUresult *result);

#include "around_work.h"

#endif
