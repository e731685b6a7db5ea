/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules and libraries, between their files.
 */
#ifndef TRANCHE_SIM_MODULE_H
#define TRANCHE_SIM_MODULE_H

#include "memory.h"
#include "text.h"

struct CUmod_st {
	struct sim_handle handle;
	struct CUctx_st *context;
	struct sim_text *text;
	struct CUlib_st *library;    /* whose module it is, or NULL */
	struct sim_range *range;     /* its memory; NULL: not loaded yet */
	struct CUfunc_st **function; /* one for each kernel of the text, NULL until asked for */
	struct sim_link link;        /* among the context's */
};

struct CUkern_st {
	struct sim_handle handle;
	struct CUlib_st *library;
	const struct sim_kernel *kernel;
	int attribute[SIM_FUNCTION_ATTRIBUTES];
};

struct CUlib_st {
	struct sim_handle handle;
	struct sim_text *text;
	struct CUkern_st **kernel; /* one for each kernel of the text */
	struct sim_link link;      /* among all libraries */
};

/* Whether CUDA_MODULE_LOADING, or the profile, says that memory is taken late. */
bool sim_lazy(void);

/* Reads a file whole, with a 0 behind it; to be freed. FILE_NOT_FOUND. */
CUresult sim_read_file(const char *name, char **content);

/* With the memory lock held: */

/* A module of the text, whose reference it takes over, not loaded. */
CUresult sim_module_make(struct CUctx_st *context, struct sim_text *text, struct CUlib_st *library, struct CUmod_st **module);
/* Takes the module's memory, once. */
CUresult sim_module_load(struct CUmod_st *module);
void sim_module_free(struct CUmod_st *module);
CUresult sim_module_function(struct CUmod_st *module, const struct sim_kernel *kernel, struct CUfunc_st **function);
CUresult sim_module_global(struct CUmod_st *module, const char *name, CUdeviceptr *address, size_t *bytes);

/* The module of a library in a context, made if need be; not loaded. */
CUresult sim_library_module(struct CUlib_st *library, struct CUctx_st *context, struct CUmod_st **module);

/* What a function of a kernel starts with. */
void sim_attributes_init(int attribute[SIM_FUNCTION_ATTRIBUTES], const struct sim_text *text);
CUresult sim_attribute_get(int *value, CUfunction_attribute attribute, const int values[SIM_FUNCTION_ATTRIBUTES],
			   const struct CUctx_st *context);
CUresult sim_attribute_set(int values[SIM_FUNCTION_ATTRIBUTES], CUfunction_attribute attribute, int value);

#endif
