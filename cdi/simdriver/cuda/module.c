/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules. A module takes its memory when it is loaded; loading is put off until a
 * function or variable is asked for, unless it is to be eager.
 */
#include "module.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "process.h"

#define FILE_MAX (256u << 20)

bool sim_lazy(void)
{
	const char *mode = getenv("CUDA_MODULE_LOADING");

	if (mode && strcasecmp(mode, "LAZY") == 0)
		return sim_profile() != 470;
	if (mode && strcasecmp(mode, "EAGER") == 0)
		return false;
	/* The default since 12.2. */
	return sim_profile() != 470;
}

CUresult sim_read_file(const char *name, char **content)
{
	FILE *file = fopen(name, "re");
	char *text = NULL;
	long size;

	if (!file)
		return errno == ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_FILE_NOT_FOUND;
	if (fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) >= 0 && size <= (long)FILE_MAX && fseek(file, 0, SEEK_SET) == 0) {
		text = calloc(1, (size_t)size + 1);
		if (text && fread(text, 1, (size_t)size, file) != (size_t)size) {
			free(text);
			text = NULL;
		}
	}
	fclose(file);
	*content = text;
	return text ? CUDA_SUCCESS : CUDA_ERROR_FILE_NOT_FOUND;
}

CUresult sim_module_make(struct CUctx_st *context, struct sim_text *text, struct CUlib_st *library, struct CUmod_st **result)
{
	struct CUmod_st *module = sim_new(SIM_MODULE, sizeof(*module));

	if (!module) {
		sim_text_release(text);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	module->context = context;
	module->text = text;
	module->library = library;
	module->function = calloc(text->kernels + 1, sizeof(*module->function));
	if (!module->function) {
		sim_text_release(text);
		sim_delete(module);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	sim_list_add(&context->memory->modules, &module->link);
	*result = module;
	return CUDA_SUCCESS;
}

CUresult sim_module_load(struct CUmod_st *module)
{
	struct sim_range *range;
	CUresult result;

	if (module->range)
		return CUDA_SUCCESS;
	range = calloc(1, sizeof(*range));
	if (!range)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = sim_block_make(module->context->device, SIMCARD_MODULE, module->text->bytes ? module->text->bytes : 1, true, &range->block);
	if (result != CUDA_SUCCESS) {
		free(range);
		return result;
	}
	range->type = SIM_RANGE_MODULE;
	range->base = range->block->address;
	range->size = range->span = range->block->count * SIM_FRAME;
	range->device = module->context->device;
	range->context = module->context;
	range->owner = module;
	result = sim_range_add(range);
	if (result != CUDA_SUCCESS) {
		sim_block_free(range->block);
		free(range);
		return result;
	}
	for (unsigned i = 0; i < module->text->globals; i++) {
		const struct sim_global *global = &module->text->global[i];

		if (global->value)
			memcpy((char *)(uintptr_t)range->base + global->offset, global->value, global->value_bytes);
	}
	/* Launches look at it without the lock. */
	__atomic_store_n(&module->range, range, __ATOMIC_RELEASE);
	return CUDA_SUCCESS;
}

void sim_module_free(struct CUmod_st *module)
{
	for (unsigned i = 0; i < module->text->kernels; i++) {
		if (module->function[i]) {
			free(module->function[i]->old_parameters);
			sim_delete(module->function[i]);
		}
	}
	free(module->function);
	if (module->range)
		sim_range_free(module->range);
	sim_list_remove(&module->link);
	sim_text_release(module->text);
	sim_delete(module);
}

void sim_context_free_modules(struct CUctx_st *context)
{
	struct sim_link *list = &context->memory->modules;

	while (list->next != list)
		sim_module_free(SIM_OF(list->next, struct CUmod_st, link));
}

CUresult sim_module_function(struct CUmod_st *module, const struct sim_kernel *kernel, struct CUfunc_st **result)
{
	struct CUfunc_st **slot = &module->function[kernel - module->text->kernel];

	if (!*slot) {
		struct CUfunc_st *function = sim_new(SIM_FUNCTION, sizeof(*function));

		if (!function)
			return CUDA_ERROR_OUT_OF_MEMORY;
		function->context = module->context;
		function->module = module;
		function->kernel = kernel;
		sim_attributes_init(function->attribute, module->text);
		*slot = function;
	}
	*result = *slot;
	return CUDA_SUCCESS;
}

CUresult sim_module_global(struct CUmod_st *module, const char *name, CUdeviceptr *address, size_t *bytes)
{
	const struct sim_global *global = sim_text_global(module->text, name);

	if (!global)
		return CUDA_ERROR_NOT_FOUND;
	SIM_TRY(sim_module_load(module));
	if (address)
		*address = module->range->base + global->offset;
	if (bytes)
		*bytes = global->size;
	return CUDA_SUCCESS;
}

bool sim_module_find(const struct sim_range *range, CUdeviceptr address, struct sim_found *found)
{
	const struct CUmod_st *module = range->owner;

	for (unsigned i = 0; i < module->text->globals; i++) {
		const struct sim_global *global = &module->text->global[i];

		if (address - range->base - global->offset < global->size) {
			found->base = range->base + global->offset;
			found->size = global->size;
			return true;
		}
	}
	return false;
}

static CUresult load_image(CUmodule *result, const void *image, struct CUctx_st *context)
{
	struct CUmod_st *module;
	struct sim_text *text;
	CUresult outcome;

	SIM_TRY(sim_text_parse(image, &text));
	if (text->target > context->device->card.page->compute_major * 10 + context->device->card.page->compute_minor) {
		sim_text_release(text);
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	}
	pthread_mutex_lock(&sim_memory_lock);
	outcome = sim_module_make(context, text, NULL, &module);
	if (outcome == CUDA_SUCCESS && !sim_lazy()) {
		outcome = sim_module_load(module);
		if (outcome != CUDA_SUCCESS)
			sim_module_free(module);
	}
	pthread_mutex_unlock(&sim_memory_lock);
	if (outcome == CUDA_SUCCESS)
		*result = module;
	return outcome;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	SIM_CONTEXT_ENTER(context);
	SIM_INVALID_IF(!module || !image);
	return load_image(module, image, context);
}

/* Options say how to compile, which is not modelled: what they ask to be told (logs, times) is set to nothing. */
CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions, CUjit_option *options, void **optionValues)
{
	SIM_CONTEXT_ENTER(context);
	SIM_INVALID_IF(!module || !image || (numOptions > 0 && (!options || !optionValues)));
	for (unsigned i = 0; i < numOptions; i++) {
		switch (options[i]) {
		case CU_JIT_WALL_TIME:
		case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
		case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
			optionValues[i] = NULL;
			break;
		case CU_JIT_INFO_LOG_BUFFER:
		case CU_JIT_ERROR_LOG_BUFFER:
			if (optionValues[i])
				*(char *)optionValues[i] = '\0';
			break;
		default:
			break;
		}
	}
	return load_image(module, image, context);
}

CUresult cuModuleLoad(CUmodule *module, const char *fname)
{
	char *content;
	CUresult result;

	SIM_CONTEXT_ENTER(context);
	SIM_INVALID_IF(!module || !fname);
	SIM_TRY(sim_read_file(fname, &content));
	result = load_image(module, content, context);
	free(content);
	return result;
}

CUresult cuModuleUnload(CUmodule hmod)
{
	SIM_CONTEXT_ENTER(context);
	(void)context;
	if (!sim_is(hmod, SIM_MODULE) || hmod->library)
		return CUDA_ERROR_INVALID_HANDLE;
	SIM_TRY(engine_may_block(hmod->context));
	SIM_TRY(engine_device_wait(hmod->context->device));
	pthread_mutex_lock(&sim_memory_lock);
	sim_module_free(hmod);
	pthread_mutex_unlock(&sim_memory_lock);
	return CUDA_SUCCESS;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
	SIM_ENTER();
	SIM_INVALID_IF(!mode);
	*mode = sim_lazy() ? CU_MODULE_LAZY_LOADING : CU_MODULE_EAGER_LOADING;
	return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
	const struct sim_kernel *kernel;
	CUresult result;

	SIM_CONTEXT_ENTER(context);
	(void)context;
	SIM_INVALID_IF(!hfunc || !name || !*name);
	if (!sim_is(hmod, SIM_MODULE))
		return CUDA_ERROR_INVALID_HANDLE;
	kernel = sim_text_kernel(hmod->text, name);
	if (!kernel)
		return CUDA_ERROR_NOT_FOUND;
	pthread_mutex_lock(&sim_memory_lock);
	result = sim_module_load(hmod);
	if (result == CUDA_SUCCESS)
		result = sim_module_function(hmod, kernel, hfunc);
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule mod)
{
	SIM_ENTER();
	SIM_INVALID_IF(!count);
	if (!sim_is(mod, SIM_MODULE))
		return CUDA_ERROR_INVALID_HANDLE;
	*count = mod->text->kernels;
	return CUDA_SUCCESS;
}

/* Does not load the module. */
CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions, CUmodule mod)
{
	CUresult result = CUDA_SUCCESS;

	SIM_ENTER();
	SIM_INVALID_IF(!functions);
	if (!sim_is(mod, SIM_MODULE))
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&sim_memory_lock);
	for (unsigned i = 0; result == CUDA_SUCCESS && i < numFunctions && i < mod->text->kernels; i++)
		result = sim_module_function(mod, &mod->text->kernel[i], &functions[i]);
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
	CUresult result;

	SIM_CONTEXT_ENTER(context);
	(void)context;
	SIM_INVALID_IF(!name || (!dptr && !bytes));
	if (!sim_is(hmod, SIM_MODULE))
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&sim_memory_lock);
	result = sim_module_global(hmod, name, dptr, bytes);
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}
