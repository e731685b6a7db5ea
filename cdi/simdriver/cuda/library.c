/* SPDX-License-Identifier: Apache-2.0
 *
 * Libraries: text that belongs to no context, and becomes a module in each
 * context where one of its kernels is used.
 */
#include "module.h"

#include <stdlib.h>
#include <string.h>

static struct sim_link libraries = {&libraries, &libraries};

CUresult sim_library_module(struct CUlib_st *library, struct CUctx_st *context, struct CUmod_st **module)
{
	struct sim_link *list = &context->memory->modules;

	for (struct sim_link *link = list->next; link != list; link = link->next) {
		*module = SIM_OF(link, struct CUmod_st, link);
		if ((*module)->library == library)
			return CUDA_SUCCESS;
	}
	if (library->text->target > context->device->card.page->compute_major * 10 + context->device->card.page->compute_minor)
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	sim_text_retain(library->text);
	return sim_module_make(context, library->text, library, module);
}

static void delete_library(struct CUlib_st *library)
{
	for (unsigned i = 0; library->kernel && i < library->text->kernels; i++)
		sim_delete(library->kernel[i]);
	free(library->kernel);
	sim_text_release(library->text);
	sim_delete(library);
}

static CUresult make_kernels(struct CUlib_st *library)
{
	library->kernel = calloc(library->text->kernels + 1, sizeof(*library->kernel));
	if (!library->kernel)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (unsigned i = 0; i < library->text->kernels; i++) {
		struct CUkern_st *kernel = sim_new(SIM_KERNEL, sizeof(*kernel));

		if (!kernel)
			return CUDA_ERROR_OUT_OF_MEMORY;
		kernel->library = library;
		kernel->kernel = &library->text->kernel[i];
		sim_attributes_init(kernel->attribute, library->text);
		library->kernel[i] = kernel;
	}
	return CUDA_SUCCESS;
}

static CUresult load(CUlibrary *result, const void *code)
{
	struct CUlib_st *library;
	struct CUctx_st *context;
	struct CUmod_st *module;
	struct sim_text *text;
	CUresult outcome;

	SIM_TRY(sim_text_parse(code, &text));
	library = sim_new(SIM_LIBRARY, sizeof(*library));
	if (!library) {
		sim_text_release(text);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	library->text = text;
	outcome = make_kernels(library);
	pthread_mutex_lock(&sim_memory_lock);
	if (outcome == CUDA_SUCCESS && !sim_lazy() && sim_current(&context) == CUDA_SUCCESS) {
		outcome = sim_library_module(library, context, &module);
		if (outcome == CUDA_SUCCESS) {
			outcome = sim_module_load(module);
			if (outcome != CUDA_SUCCESS)
				sim_module_free(module);
		}
	}
	if (outcome == CUDA_SUCCESS) {
		sim_list_add(&libraries, &library->link);
		*result = library;
	} else {
		delete_library(library);
	}
	pthread_mutex_unlock(&sim_memory_lock);
	return outcome;
}

/* Options say how to compile, which is not modelled. */
CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions, void **jitOptionsValues,
			   unsigned int numJitOptions, CUlibraryOption *libraryOptions, void **libraryOptionValues,
			   unsigned int numLibraryOptions)
{
	SIM_ENTER();
	(void)libraryOptionValues;
	SIM_INVALID_IF(!library || !code || (numJitOptions > 0 && (!jitOptions || !jitOptionsValues)));
	for (unsigned i = 0; i < numLibraryOptions; i++) {
		SIM_INVALID_IF(!libraryOptions);
		if (libraryOptions[i] == CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE)
			return CUDA_ERROR_NOT_SUPPORTED;
	}
	return load(library, code);
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, CUjit_option *jitOptions, void **jitOptionsValues,
			       unsigned int numJitOptions, CUlibraryOption *libraryOptions, void **libraryOptionValues,
			       unsigned int numLibraryOptions)
{
	char *content;
	CUresult result;

	SIM_ENTER();
	SIM_INVALID_IF(!library || !fileName);
	SIM_TRY(sim_read_file(fileName, &content));
	result = cuLibraryLoadData(library, content, jitOptions, jitOptionsValues, numJitOptions, libraryOptions, libraryOptionValues,
				   numLibraryOptions);
	free(content);
	return result;
}

static CUresult check(CUlibrary library)
{
	SIM_ENTER();
	return sim_is(library, SIM_LIBRARY) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* Frees the library's modules of one context. */
static void free_modules(struct CUlib_st *library, struct CUctx_st *context)
{
	struct sim_link *list = &context->memory->modules;

	for (struct sim_link *link = list->next; link != list;) {
		struct CUmod_st *module = SIM_OF(link, struct CUmod_st, link);

		link = link->next;
		if (module->library == library)
			sim_module_free(module);
	}
}

CUresult cuLibraryUnload(CUlibrary library)
{
	SIM_TRY(check(library));
	for (int i = 0; i < sim_device_count(); i++)
		SIM_TRY(engine_device_wait(sim_device(i)));
	pthread_mutex_lock(&sim_memory_lock);
	sim_list_remove(&library->link);
	for (struct sim_link *link = sim_contexts.next; link != &sim_contexts; link = link->next)
		free_modules(library, SIM_OF(link, struct sim_memory, link)->context);
	delete_library(library);
	pthread_mutex_unlock(&sim_memory_lock);
	return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name)
{
	const struct sim_kernel *kernel;

	SIM_TRY(check(library));
	SIM_INVALID_IF(!pKernel || !name);
	kernel = sim_text_kernel(library->text, name);
	if (!kernel)
		return CUDA_ERROR_NOT_FOUND;
	*pKernel = library->kernel[kernel - library->text->kernel];
	return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary lib)
{
	SIM_TRY(check(lib));
	SIM_INVALID_IF(!count);
	*count = lib->text->kernels;
	return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels, CUlibrary lib)
{
	SIM_TRY(check(lib));
	SIM_INVALID_IF(!kernels);
	for (unsigned i = 0; i < numKernels && i < lib->text->kernels; i++)
		kernels[i] = lib->kernel[i];
	return CUDA_SUCCESS;
}

/* The library's module in the current context, loaded if that is asked for. */
static CUresult current_module(CUlibrary library, bool loaded, struct CUmod_st **module)
{
	struct CUctx_st *context;
	CUresult result;

	SIM_TRY(sim_current(&context));
	pthread_mutex_lock(&sim_memory_lock);
	result = sim_library_module(library, context, module);
	if (result == CUDA_SUCCESS && loaded)
		result = sim_module_load(*module);
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

CUresult cuLibraryGetModule(CUmodule *pMod, CUlibrary library)
{
	SIM_TRY(check(library));
	SIM_INVALID_IF(!pMod);
	return current_module(library, true, pMod);
}

static CUresult get_global(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name, bool managed)
{
	const struct sim_global *global;
	struct CUmod_st *module;
	CUresult result;

	SIM_TRY(check(library));
	SIM_INVALID_IF(!name || (!dptr && !bytes));
	global = sim_text_global(library->text, name);
	if (!global || global->managed != managed)
		return CUDA_ERROR_NOT_FOUND;
	SIM_TRY(current_module(library, true, &module));
	pthread_mutex_lock(&sim_memory_lock);
	result = sim_module_global(module, name, dptr, bytes);
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
	return get_global(dptr, bytes, library, name, false);
}

CUresult cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
	return get_global(dptr, bytes, library, name, true);
}

/* ---- kernels ------------------------------------------------------------------ */

static CUresult check_kernel(CUkernel kernel)
{
	SIM_ENTER();
	return sim_is(kernel, SIM_KERNEL) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel)
{
	struct CUmod_st *module;
	CUresult result;

	SIM_TRY(check_kernel(kernel));
	SIM_INVALID_IF(!pFunc);
	SIM_TRY(current_module(kernel->library, true, &module));
	pthread_mutex_lock(&sim_memory_lock);
	result = sim_module_function(module, kernel->kernel, pFunc);
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

CUresult cuKernelGetLibrary(CUlibrary *pLib, CUkernel kernel)
{
	SIM_TRY(check_kernel(kernel));
	SIM_INVALID_IF(!pLib);
	*pLib = kernel->library;
	return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char **name, CUkernel hfunc)
{
	SIM_ENTER();
	SIM_INVALID_IF(!name);
	SIM_TRY(check_kernel(hfunc));
	*name = hfunc->kernel->name;
	return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t *paramOffset, size_t *paramSize)
{
	SIM_TRY(check_kernel(kernel));
	SIM_INVALID_IF(!paramOffset || paramIndex >= kernel->kernel->parameters);
	*paramOffset = kernel->kernel->parameter[paramIndex].offset;
	if (paramSize)
		*paramSize = kernel->kernel->parameter[paramIndex].size;
	return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev)
{
	SIM_TRY(check_kernel(kernel));
	SIM_INVALID_IF(!pi || (unsigned)attrib >= SIM_FUNCTION_ATTRIBUTES);
	if (!sim_device(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	if (attrib == CU_FUNC_ATTRIBUTE_BINARY_VERSION)
		*pi = (int)(sim_device(dev)->card.page->compute_major * 10 + sim_device(dev)->card.page->compute_minor);
	else
		*pi = __atomic_load_n(&kernel->attribute[attrib], __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev)
{
	SIM_TRY(check_kernel(kernel));
	if (!sim_device(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	return sim_attribute_set(kernel->attribute, attrib, val);
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev)
{
	SIM_TRY(check_kernel(kernel));
	SIM_INVALID_IF((unsigned)config > CU_FUNC_CACHE_PREFER_EQUAL);
	return sim_device(dev) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
