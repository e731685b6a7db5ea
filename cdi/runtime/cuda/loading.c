/* SPDX-License-Identifier: Apache-2.0
 *
 * Around calls that load modules, at once or at the first use.
 */
#include "loading.h"

#include <stdlib.h>

#include "around.h"
#include "modules.h"
#include "trim.h"
#include "zz_generated_hooks.h"

/* Lazy loading takes a small part of most binaries, and what it takes is measured. */
#define LAZY_BINARY_MOST (32ull << 20)

static bool lazy(void)
{
	CUmoduleLoadingMode mode;

	return real_cuModuleGetLoadingMode(&mode) == CUDA_SUCCESS && mode == CU_MODULE_LAZY_LOADING;
}

static CUresult refuse(struct around *around, CUresult result)
{
	around->idle = true;
	guard_leave();
	return result;
}

/* Takes room for an estimate on a card; what the call takes is measured afterwards. */
static CUresult begin(struct around *around, struct card *card, uint64_t estimate)
{
	CUresult result = session_closed() ? CUDA_ERROR_SYSTEM_NOT_READY : card_refusal(card);

	around->card = card;
	if (result == CUDA_SUCCESS)
		result = estimate_take(&around->taken, card, estimate);
	return result == CUDA_SUCCESS ? CUDA_SUCCESS : refuse(around, result);
}

/* The call failed. True: there is room now, again. */
static bool failed(struct around *around, CUresult result)
{
	uint64_t estimate = around->taken.hold.bytes;

	estimate_give(&around->taken);
	if (result == CUDA_ERROR_OUT_OF_MEMORY && around->tries++ == 0 && trim_card(around->card) &&
	    estimate_take(&around->taken, around->card, estimate) == CUDA_SUCCESS)
		return true;
	guard_leave();
	return false;
}

static CUresult measured(struct around *around)
{
	return estimate_settle(&around->taken, around->card);
}

/* ---- modules ---------------------------------------------------------------- */

static CUresult begin_load(struct around *around, CUmodule *made, uint64_t estimate, bool exact)
{
	bool later = lazy();
	struct owner owner;
	CUresult result = context_current(&around->card, &owner);

	around->made = (void **)made;
	around->estimate = estimate;
	around->exact = exact;
	around->lazy = later;
	if (result != CUDA_SUCCESS)
		return refuse(around, result);
	if (later)
		estimate = exact ? 0 : estimate < LAZY_BINARY_MOST ? estimate : LAZY_BINARY_MOST;
	return begin(around, around->card, estimate);
}

static bool end_load(struct around *around, CUresult *result)
{
	struct thing module = { .kind = THING_MODULE };

	if (around->idle)
		return false;
	if (*result != CUDA_SUCCESS)
		return failed(around, *result);
	*result = measured(around);
	if (*result != CUDA_SUCCESS) {
		real_cuModuleUnload(*(CUmodule *)around->made);
		*around->made = NULL;
		hold_measure(NULL, around->card, false);
	} else if (context_current(&module.card, &module.owner) == CUDA_SUCCESS) {
		module.handle = *around->made;
		module.estimate = around->estimate;
		module.exact = around->exact;
		module.lazy = around->lazy;
		module.loaded = !around->lazy;
		thing_add(&module);
	}
	guard_leave();
	return false;
}

CUresult around_begin_load_file(struct around *around, CUmodule *made, const char *path)
{
	uint64_t estimate;
	bool exact;

	*around = (struct around){ .idle = !made || !guard_enter() };
	if (around->idle)
		return CUDA_SUCCESS;
	estimate = file_estimate(path, &exact);
	return begin_load(around, made, estimate, exact);
}

bool around_end_load_file(struct around *around, CUresult *result)
{
	return end_load(around, result);
}

CUresult around_begin_load_data(struct around *around, CUmodule *made, const void *image)
{
	uint64_t estimate;
	bool exact;

	*around = (struct around){ .idle = !made || !image || !guard_enter() };
	if (around->idle)
		return CUDA_SUCCESS;
	estimate = image_estimate(image, &exact);
	return begin_load(around, made, estimate, exact);
}

bool around_end_load_data(struct around *around, CUresult *result)
{
	return end_load(around, result);
}

CUresult around_begin_unload(struct around *around, CUmodule module)
{
	struct thing *known;

	*around = (struct around){ .idle = true };
	known = cards_ready() == CUDA_SUCCESS ? malloc(sizeof(*known)) : NULL;
	if (!known)
		return CUDA_SUCCESS;
	if (!thing_remove(THING_MODULE, module, known)) {
		free(known);
		return CUDA_SUCCESS;
	}
	around->idle = false;
	around->handle = known;
	return CUDA_SUCCESS;
}

bool around_end_unload(struct around *around, CUresult *result)
{
	struct thing *known = around->handle;

	if (around->idle)
		return false;
	if (*result == CUDA_SUCCESS) {
		thing_remove_children(known->handle);
		hold_measure(NULL, known->card, false);
	} else {
		thing_add(known);
	}
	free(known);
	return false;
}

/* ---- libraries ----------------------------------------------------------------- */

static CUresult begin_library(struct around *around, CUlibrary *made, uint64_t estimate, bool exact)
{
	CUresult result = cards_ready();
	struct owner owner;

	around->made = (void **)made;
	around->estimate = estimate;
	around->exact = exact;
	around->lazy = lazy();
	if (result != CUDA_SUCCESS)
		return refuse(around, result);
	/* Without a context, or lazily, nothing is loaded yet. */
	if (around->lazy || context_current(&around->card, &owner) != CUDA_SUCCESS) {
		around->card = NULL;
		return CUDA_SUCCESS;
	}
	return begin(around, around->card, estimate);
}

static bool end_library(struct around *around, CUresult *result)
{
	struct thing library = { .kind = THING_LIBRARY };
	struct owner owner;

	if (around->idle)
		return false;
	if (*result != CUDA_SUCCESS && around->card)
		return failed(around, *result);
	if (*result == CUDA_SUCCESS && around->card)
		*result = measured(around);
	if (*result == CUDA_SUCCESS) {
		library.handle = *around->made;
		library.estimate = around->estimate;
		library.exact = around->exact;
		thing_add(&library);
		if (around->card && context_current(&around->card, &owner) == CUDA_SUCCESS)
			library_loaded(library.handle, &owner);
	} else if (around->card) {
		real_cuLibraryUnload(*(CUlibrary *)around->made);
		*around->made = NULL;
		hold_measure(NULL, around->card, false);
	}
	guard_leave();
	return false;
}

CUresult around_begin_library_file(struct around *around, CUlibrary *made, const char *path)
{
	uint64_t estimate;
	bool exact;

	*around = (struct around){ .idle = !made || !guard_enter() };
	if (around->idle)
		return CUDA_SUCCESS;
	estimate = file_estimate(path, &exact);
	return begin_library(around, made, estimate, exact);
}

bool around_end_library_file(struct around *around, CUresult *result)
{
	return end_library(around, result);
}

CUresult around_begin_library_data(struct around *around, CUlibrary *made, const void *image)
{
	uint64_t estimate;
	bool exact;

	*around = (struct around){ .idle = !made || !image || !guard_enter() };
	if (around->idle)
		return CUDA_SUCCESS;
	estimate = image_estimate(image, &exact);
	return begin_library(around, made, estimate, exact);
}

bool around_end_library_data(struct around *around, CUresult *result)
{
	return end_library(around, result);
}

CUresult around_begin_library_unload(struct around *around, CUlibrary library)
{
	struct thing *known = cards_ready() == CUDA_SUCCESS ? malloc(sizeof(*known)) : NULL;

	*around = (struct around){ .idle = true };
	if (!known)
		return CUDA_SUCCESS;
	if (!thing_remove(THING_LIBRARY, library, known)) {
		free(known);
		return CUDA_SUCCESS;
	}
	around->idle = false;
	around->handle = known;
	return CUDA_SUCCESS;
}

bool around_end_library_unload(struct around *around, CUresult *result)
{
	struct thing *known = around->handle;

	if (around->idle)
		return false;
	if (*result != CUDA_SUCCESS) {
		thing_add(known);
	} else {
		for (size_t i = 0; i < card_count() && known->contexts != 0; i++)
			if (card_at(i)->contexts != 0)
				hold_measure(NULL, card_at(i), false);
		thing_remove_children(known->handle);
		free(known->loaded_in);
	}
	free(known);
	return false;
}

/* ---- first uses ------------------------------------------------------------------ */

static CUresult nothing(struct around *around)
{
	around->idle = true;
	guard_leave();
	return CUDA_SUCCESS;
}

static CUresult use_module(struct around *around, const void *module)
{
	struct thing known;

	if (!thing_find(THING_MODULE, module, &known) || known.loaded)
		return nothing(around);
	around->handle = (void *)module;
	around->used = THING_MODULE;
	return begin(around, known.card, known.exact ? known.estimate : 0);
}

static CUresult use_library(struct around *around, const void *library)
{
	struct thing known;
	struct owner owner;
	CUresult result = context_current(&around->card, &owner);

	if (result != CUDA_SUCCESS || !thing_find(THING_LIBRARY, library, &known) || library_is_loaded(library, &owner))
		return nothing(around);
	around->handle = (void *)library;
	around->used = THING_LIBRARY;
	return begin(around, around->card, known.exact ? known.estimate : 0);
}

/* A function may also be a kernel of a library. */
static CUresult use_function(struct around *around, const void *function)
{
	struct thing known;
	CUmodule module;

	if (thing_find(THING_KERNEL, function, &known))
		return use_library(around, known.parent);
	if (thing_remove(THING_FUNCTION, function, &known)) {
		around->handle = (void *)function;
		around->used = THING_FUNCTION;
		return begin(around, known.card, 0);
	}
	if (real_cuFuncGetModule(&module, (CUfunction)(void *)function) != CUDA_SUCCESS)
		return nothing(around);
	return use_module(around, module);
}

static bool end_use(struct around *around, CUresult *result)
{
	struct owner owner;

	if (around->idle)
		return false;
	if (*result != CUDA_SUCCESS)
		return failed(around, *result);
	estimate_settle(&around->taken, around->card);
	if (around->used == THING_MODULE)
		module_loaded(around->handle);
	else if (around->used == THING_LIBRARY && context_current(&around->card, &owner) == CUDA_SUCCESS)
		library_loaded(around->handle, &owner);
	guard_leave();
	return false;
}

static bool enter(struct around *around)
{
	*around = (struct around){ .idle = cards_ready() != CUDA_SUCCESS || !guard_enter() };
	return !around->idle;
}

CUresult around_begin_use_module(struct around *around, CUmodule module)
{
	return enter(around) ? use_module(around, module) : CUDA_SUCCESS;
}

bool around_end_use_module(struct around *around, CUresult *result)
{
	return end_use(around, result);
}

CUresult around_begin_use_library(struct around *around, CUlibrary library)
{
	return enter(around) ? use_library(around, library) : CUDA_SUCCESS;
}

bool around_end_use_library(struct around *around, CUresult *result)
{
	return end_use(around, result);
}

CUresult around_begin_use_kernel(struct around *around, CUkernel kernel)
{
	struct thing known;

	if (!enter(around))
		return CUDA_SUCCESS;
	return thing_find(THING_KERNEL, kernel, &known) ? use_library(around, known.parent) : nothing(around);
}

bool around_end_use_kernel(struct around *around, CUresult *result)
{
	return end_use(around, result);
}

CUresult around_begin_use_function(struct around *around, CUfunction function)
{
	return enter(around) ? use_function(around, function) : CUDA_SUCCESS;
}

bool around_end_use_function(struct around *around, CUresult *result)
{
	return end_use(around, result);
}

CUresult around_begin_function(struct around *around, CUfunction *made, CUmodule module)
{
	CUresult result = enter(around) ? use_module(around, module) : CUDA_SUCCESS;

	around->made = (void **)made;
	around->module = module;
	return result;
}

bool around_end_function(struct around *around, CUresult *result)
{
	bool again = end_use(around, result);
	struct thing module;

	/* Of a lazy binary each function may be loaded when it is launched. */
	if (!again && *result == CUDA_SUCCESS && around->made && thing_find(THING_MODULE, around->module, &module) &&
	    module.lazy && !module.exact) {
		struct thing function = {
			.kind = THING_FUNCTION,
			.handle = *around->made,
			.owner = module.owner,
			.card = module.card,
			.parent = around->module,
		};

		thing_add(&function);
	}
	return again;
}

CUresult around_begin_kernel(struct around *around, CUkernel *made, CUlibrary library)
{
	*around = (struct around){ .made = (void **)made, .handle = library };
	return CUDA_SUCCESS;
}

bool around_end_kernel(struct around *around, CUresult *result)
{
	struct thing kernel = { .kind = THING_KERNEL, .parent = around->handle };

	if (*result == CUDA_SUCCESS) {
		kernel.handle = *around->made;
		thing_add(&kernel);
	}
	return false;
}

CUresult around_begin_kernels(struct around *around, CUkernel *made, unsigned int room, CUlibrary library)
{
	*around = (struct around){ .made = (void **)made, .handle = library, .number = made ? room : 0 };
	for (unsigned int i = 0; made && i < room; i++)
		made[i] = NULL;
	return CUDA_SUCCESS;
}

bool around_end_kernels(struct around *around, CUresult *result)
{
	struct thing kernel = { .kind = THING_KERNEL, .parent = around->handle };

	for (uint64_t i = 0; *result == CUDA_SUCCESS && i < around->number && around->made[i]; i++) {
		kernel.handle = around->made[i];
		thing_add(&kernel);
	}
	return false;
}

/* ---- launches --------------------------------------------------------------------- */

CUresult launch_refusal(void)
{
	struct owner owner;
	struct card *card;

	if (session_closed())
		return CUDA_ERROR_SYSTEM_NOT_READY;
	if (!cards_refuse())
		return CUDA_SUCCESS;
	return context_current(&card, &owner) == CUDA_SUCCESS ? card_refusal(card) : CUDA_SUCCESS;
}

CUresult around_begin_launch_slowly(struct around *around, CUfunction function)
{
	CUresult result = launch_refusal();

	around->idle = true;
	if (result != CUDA_SUCCESS || __atomic_load_n(&around_launch_word, __ATOMIC_RELAXED) == 0 || !enter(around))
		return result;
	return use_function(around, function);
}

bool around_end_launch_slowly(struct around *around, CUresult *result)
{
	return end_use(around, result);
}

CUresult around_begin_launch_many(struct around *around, const CUDA_LAUNCH_PARAMS *list, unsigned int count)
{
	CUresult result = CUDA_SUCCESS;

	around->idle = true;
	for (unsigned int i = 0; list && i < count && result == CUDA_SUCCESS && around->idle; i++)
		result = around_begin_launch_slowly(around, list[i].function);
	return result;
}

bool around_end_launch_many(struct around *around, CUresult *result)
{
	return end_use(around, result);
}

/* ---- kernels in graphs --------------------------------------------------------------- */

static CUresult begin_node(struct around *around, CUfunction function, CUkernel kernel)
{
	*around = (struct around){ .idle = true };
	if (__atomic_load_n(&around_launch_word, __ATOMIC_RELAXED) == 0 || (!function && !kernel) || !enter(around))
		return CUDA_SUCCESS;
	return use_function(around, function ? (const void *)function : (const void *)kernel);
}

CUresult around_begin_graph_kernel_old(struct around *around, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
	return begin_node(around, params ? params->func : NULL, NULL);
}

bool around_end_graph_kernel_old(struct around *around, CUresult *result)
{
	return end_use(around, result);
}

CUresult around_begin_graph_kernel(struct around *around, const CUDA_KERNEL_NODE_PARAMS *params)
{
	return begin_node(around, params ? params->func : NULL, params ? params->kern : NULL);
}

bool around_end_graph_kernel(struct around *around, CUresult *result)
{
	return end_use(around, result);
}

CUresult around_begin_graph_node(struct around *around, const CUgraphNodeParams *params)
{
	bool kernel = params && params->type == CU_GRAPH_NODE_TYPE_KERNEL;

	return begin_node(around, kernel ? params->kernel.func : NULL, kernel ? params->kernel.kern : NULL);
}

bool around_end_graph_node(struct around *around, CUresult *result)
{
	return end_use(around, result);
}
