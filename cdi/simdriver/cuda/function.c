/* SPDX-License-Identifier: Apache-2.0
 *
 * What functions can be asked and told.
 */
#include "module.h"

#include <string.h>

#define REGISTERS 32
#define STATIC_SHARED_MAX (48 << 10)
#define SHARED_OPTIN_MAX (163 << 10)

void sim_attributes_init(int attribute[SIM_FUNCTION_ATTRIBUTES], const struct sim_text *text)
{
	memset(attribute, 0, SIM_FUNCTION_ATTRIBUTES * sizeof(*attribute));
	attribute[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024;
	attribute[CU_FUNC_ATTRIBUTE_NUM_REGS] = REGISTERS;
	attribute[CU_FUNC_ATTRIBUTE_PTX_VERSION] = (int)text->target;
	attribute[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = STATIC_SHARED_MAX;
	attribute[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = CU_SHAREDMEM_CARVEOUT_DEFAULT;
}

CUresult sim_attribute_get(int *value, CUfunction_attribute attribute, const int values[SIM_FUNCTION_ATTRIBUTES],
			   const struct CUctx_st *context)
{
	SIM_INVALID_IF((unsigned)attribute >= SIM_FUNCTION_ATTRIBUTES);
	if (attribute == CU_FUNC_ATTRIBUTE_BINARY_VERSION)
		*value = (int)(context->device->card.page->compute_major * 10 + context->device->card.page->compute_minor);
	else
		*value = __atomic_load_n(&values[attribute], __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

CUresult sim_attribute_set(int values[SIM_FUNCTION_ATTRIBUTES], CUfunction_attribute attribute, int value)
{
	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		SIM_INVALID_IF(value < 0 || value > SHARED_OPTIN_MAX);
		break;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		SIM_INVALID_IF(value < -1 || value > 100);
		break;
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		SIM_INVALID_IF(value < 0);
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	__atomic_store_n(&values[attribute], value, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

/* A function of a module, or what a library's kernel is in the current context. Loads nothing. */
static CUresult look_up(CUfunction given, struct CUfunc_st **function)
{
	struct CUkern_st *kernel = (struct CUkern_st *)given;
	struct CUctx_st *context;
	struct CUmod_st *module;
	CUresult result;

	SIM_ENTER();
	if (sim_is(given, SIM_FUNCTION)) {
		*function = given;
		return CUDA_SUCCESS;
	}
	if (!sim_is(kernel, SIM_KERNEL))
		return CUDA_ERROR_INVALID_HANDLE;
	SIM_TRY(sim_current(&context));
	pthread_mutex_lock(&sim_memory_lock);
	result = sim_library_module(kernel->library, context, &module);
	if (result == CUDA_SUCCESS)
		result = sim_module_function(module, kernel->kernel, function);
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

CUresult sim_function(CUfunction given, struct CUctx_st *context, struct CUfunc_st **function)
{
	CUresult result = CUDA_SUCCESS;

	SIM_TRY(look_up(given, function));
	if ((*function)->context != context)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!SIM_LIKELY(__atomic_load_n(&(*function)->module->range, __ATOMIC_ACQUIRE))) {
		pthread_mutex_lock(&sim_memory_lock);
		result = sim_module_load((*function)->module);
		pthread_mutex_unlock(&sim_memory_lock);
	}
	return result;
}

CUresult cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc)
{
	struct CUfunc_st *function;

	SIM_TRY(look_up(hfunc, &function));
	SIM_INVALID_IF(!pi);
	return sim_attribute_get(pi, attrib, function->attribute, function->context);
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value)
{
	struct CUfunc_st *function;

	SIM_TRY(look_up(hfunc, &function));
	return sim_attribute_set(function->attribute, attrib, value);
}

CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config)
{
	struct CUfunc_st *function;

	SIM_TRY(look_up(hfunc, &function));
	SIM_INVALID_IF((unsigned)config > CU_FUNC_CACHE_PREFER_EQUAL);
	__atomic_store_n(&function->cache, config, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

/* Accepted, and without effect on cards that have one kind of banks. */
CUresult cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config)
{
	struct CUfunc_st *function;

	SIM_TRY(look_up(hfunc, &function));
	SIM_INVALID_IF((unsigned)config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE);
	return CUDA_SUCCESS;
}

CUresult cuFuncGetModule(CUmodule *hmod, CUfunction hfunc)
{
	struct CUfunc_st *function;

	SIM_TRY(look_up(hfunc, &function));
	SIM_INVALID_IF(!hmod);
	*hmod = function->module;
	return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char **name, CUfunction hfunc)
{
	struct CUfunc_st *function;

	SIM_ENTER();
	SIM_INVALID_IF(!name);
	SIM_TRY(look_up(hfunc, &function));
	*name = function->kernel->name;
	return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset, size_t *paramSize)
{
	struct CUfunc_st *function;

	SIM_TRY(look_up(func, &function));
	SIM_INVALID_IF(!paramOffset || paramIndex >= function->kernel->parameters);
	*paramOffset = function->kernel->parameter[paramIndex].offset;
	if (paramSize)
		*paramSize = function->kernel->parameter[paramIndex].size;
	return CUDA_SUCCESS;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
	struct CUfunc_st *found;

	SIM_TRY(look_up(function, &found));
	SIM_INVALID_IF(!state);
	*state = __atomic_load_n(&found->module->range, __ATOMIC_ACQUIRE) ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
	return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function)
{
	struct CUfunc_st *found;

	SIM_TRY(look_up(function, &found));
	return sim_function(found, found->context, &found);
}

/* ---- occupancy: threads and shared memory of a multiprocessor --------------- */

static CUresult active_blocks(int *blocks, CUfunction func, int size, size_t shared)
{
	struct CUfunc_st *function;
	const struct simcard *page;
	int most;

	SIM_TRY(look_up(func, &function));
	SIM_INVALID_IF(!blocks || size <= 0);
	page = function->context->device->card.page;
	*blocks = 0;
	if (size > 1024 || shared > SHARED_OPTIN_MAX)
		return CUDA_SUCCESS;
	most = (int)page->threads_per_multiprocessor / (int)sim_round_up((uint64_t)size, 32);
	if (most > 32)
		most = 32;
	/* A block takes 1 KiB more than it asks for. */
	if ((size_t)most > (164u << 10) / (shared + (1u << 10)))
		most = (int)((164u << 10) / (shared + (1u << 10)));
	*blocks = most;
	return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, CUfunction func, int blockSize, size_t dynamicSMemSize)
{
	return active_blocks(numBlocks, func, blockSize, dynamicSMemSize);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *numBlocks, CUfunction func, int blockSize, size_t dynamicSMemSize,
							      unsigned int flags)
{
	SIM_ENTER();
	SIM_INVALID_IF(flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE);
	return active_blocks(numBlocks, func, blockSize, dynamicSMemSize);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *dynamicSmemSize, CUfunction func, int numBlocks, int blockSize)
{
	int most;

	SIM_ENTER();
	SIM_INVALID_IF(!dynamicSmemSize || numBlocks <= 0);
	SIM_TRY(active_blocks(&most, func, blockSize, 0));
	SIM_INVALID_IF(numBlocks > most);
	*dynamicSmemSize = (164u << 10) / (unsigned)numBlocks - (1u << 10);
	if (*dynamicSmemSize > SHARED_OPTIN_MAX)
		*dynamicSmemSize = SHARED_OPTIN_MAX;
	return CUDA_SUCCESS;
}

static CUresult potential(int *grid, int *block, CUfunction func, CUoccupancyB2DSize shared_of, size_t shared, int limit)
{
	struct CUfunc_st *function;
	int best = 0;

	SIM_TRY(look_up(func, &function));
	SIM_INVALID_IF(!grid || !block);
	if (limit <= 0 || limit > 1024)
		limit = 1024;
	*block = 0;
	for (int size = limit; size > 0; size = (size - 1) / 32 * 32) {
		int blocks;

		SIM_TRY(active_blocks(&blocks, func, size, shared_of ? shared_of(size) : shared));
		if (blocks * size > best) {
			best = blocks * size;
			*block = size;
			*grid = blocks * (int)function->context->device->card.page->multiprocessors;
		}
	}
	return *block ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *minGridSize, int *blockSize, CUfunction func, CUoccupancyB2DSize blockSizeToDynamicSMemSize,
					  size_t dynamicSMemSize, int blockSizeLimit)
{
	return potential(minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize, blockSizeLimit);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *minGridSize, int *blockSize, CUfunction func,
						   CUoccupancyB2DSize blockSizeToDynamicSMemSize, size_t dynamicSMemSize,
						   int blockSizeLimit, unsigned int flags)
{
	SIM_ENTER();
	SIM_INVALID_IF(flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE);
	return potential(minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize, blockSizeLimit);
}
