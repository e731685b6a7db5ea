/* SPDX-License-Identifier: Apache-2.0
 *
 * First uses of what was loaded, at which lazy loading takes memory: functions and
 * variables that are asked for, launches, kernels in graphs.
 */
#include <stdlib.h>

#include "around.h"
#include "loading.h"
#include "zz_generated_hooks.h"

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
	return loading_begin(around, known.card, known.exact ? known.estimate : 0);
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
	return loading_begin(around, around->card, known.exact ? known.estimate : 0);
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
		return loading_begin(around, known.card, 0);
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
		return loading_failed(around, *result);
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

/* All kernels of a library. They are asked for once more, into memory of ours: of the
 * caller's nobody says how much was written, and the rest may not even be there. */
static void add_kernels(CUlibrary library)
{
	struct thing kernel = { .kind = THING_KERNEL, .parent = library };
	CUkernel *kernels = NULL;

	for (unsigned int room = 64; room <= 1u << 20; room *= 4) {
		free(kernels);
		kernels = calloc(room, sizeof(*kernels));
		if (!kernels || real_cuLibraryEnumerateKernels(kernels, room, library) != CUDA_SUCCESS)
			break;
		if (kernels[room - 1])
			continue;
		for (unsigned int i = 0; kernels[i]; i++) {
			kernel.handle = kernels[i];
			thing_add(&kernel);
		}
		break;
	}
	free(kernels);
}

CUresult around_begin_kernels(struct around *around, CUkernel *made, unsigned int room, CUlibrary library)
{
	*around = (struct around){ .idle = !made || room == 0, .handle = library };
	return CUDA_SUCCESS;
}

bool around_end_kernels(struct around *around, CUresult *result)
{
	if (!around->idle && *result == CUDA_SUCCESS)
		add_kernels(around->handle);
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

/* What this thread has launched lately without anything being loaded for it. A kernel of a
 * library may be loaded in one context and not in another. */
static __thread struct {
	const void *function;
	CUcontext context; /* of a process that has several */
	uint64_t version;
} recent[16];

static size_t recent_place(const void *function)
{
	return ((uintptr_t)function >> 4 ^ (uintptr_t)function >> 10) % (sizeof(recent) / sizeof(recent[0]));
}

static CUcontext context_that_matters(void)
{
	CUcontext context = NULL;

	if (__atomic_load_n(&contexts_alive, __ATOMIC_RELAXED) > 1)
		real_cuCtxGetCurrent(&context);
	return context;
}

/* What is loaded when this is launched for the first time needs room. */
static CUresult use_at_launch(struct around *around, const void *function)
{
	uint64_t version = __atomic_load_n(&loading_version, __ATOMIC_ACQUIRE);
	size_t place = recent_place(function);
	struct around lease = *around;
	CUcontext context;
	CUresult result;
	bool looked;

	if (__atomic_load_n(&around_launch_word, __ATOMIC_RELAXED) == 0)
		return CUDA_SUCCESS;
	context = context_that_matters();
	if (recent[place].function == function && recent[place].version == version && recent[place].context == context)
		return CUDA_SUCCESS;
	looked = enter(around);
	result = looked ? use_function(around, function) : CUDA_SUCCESS;
	around->inside = lease.inside;
	around->tally = lease.tally;
	if (result == CUDA_SUCCESS && around->idle && looked) {
		recent[place].function = function;
		recent[place].context = context;
		recent[place].version = version;
	}
	return result;
}

/* The lease first, for which a launch may wait: it holds nothing meanwhile. */
CUresult around_begin_work(struct around *around, const struct work *work)
{
	CUresult result = CUDA_SUCCESS;

	around->idle = true;
	around->inside = NULL;
	if (!lease_is_one_more(around, work)) {
		if (cards_refuse())
			result = launch_refusal();
		if (result == CUDA_SUCCESS && !lease_is_free())
			result = lease_begin(around, work);
	}
	if (result == CUDA_SUCCESS)
		result = use_at_launch(around, work->what);
	if (result != CUDA_SUCCESS && around->inside)
		lease_end(around);
	return result;
}

bool around_end_work(struct around *around, CUresult *result)
{
	bool again = end_use(around, result);

	if (!again && around->inside)
		lease_end(around);
	return again;
}

CUresult around_begin_launch_many(struct around *around, const CUDA_LAUNCH_PARAMS *list, unsigned int count)
{
	CUresult result = CUDA_SUCCESS;

	around->idle = true;
	around->inside = NULL;
	/* The driver refuses this; what lies behind the list is nobody's to read. */
	if (count > card_count())
		return CUDA_SUCCESS;
	if (cards_refuse())
		result = launch_refusal();
	if (result == CUDA_SUCCESS && list && !lease_is_free())
		result = lease_begin_many(around, list, count);
	for (unsigned int i = 0; list && i < count && result == CUDA_SUCCESS && around->idle; i++)
		result = use_at_launch(around, list[i].function);
	if (result != CUDA_SUCCESS && around->inside)
		lease_end_many(around, false);
	return result;
}

bool around_end_launch_many(struct around *around, CUresult *result)
{
	bool again = end_use(around, result);

	if (!again && around->inside)
		lease_end_many(around, *result == CUDA_SUCCESS);
	return again;
}

/* ---- kernels in graphs --------------------------------------------------------------- */

/* Whether parameters have to be looked at, which the driver does not where it is not ready. */
static bool matters(struct around *around, const void *params)
{
	*around = (struct around){ .idle = true };
	return params && __atomic_load_n(&around_launch_word, __ATOMIC_RELAXED) != 0 && cards_ready() == CUDA_SUCCESS;
}

static CUresult begin_node(struct around *around, CUfunction function, CUkernel kernel)
{
	if ((!function && !kernel) || !enter(around))
		return CUDA_SUCCESS;
	return use_function(around, function ? (const void *)function : (const void *)kernel);
}

CUresult around_begin_graph_kernel_old(struct around *around, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
	return matters(around, params) ? begin_node(around, params->func, NULL) : CUDA_SUCCESS;
}

bool around_end_graph_kernel_old(struct around *around, CUresult *result)
{
	return end_use(around, result);
}

CUresult around_begin_graph_kernel(struct around *around, const CUDA_KERNEL_NODE_PARAMS *params)
{
	return matters(around, params) ? begin_node(around, params->func, params->kern) : CUDA_SUCCESS;
}

bool around_end_graph_kernel(struct around *around, CUresult *result)
{
	return end_use(around, result);
}

CUresult around_begin_graph_node(struct around *around, const CUgraphNodeParams *params)
{
	if (!matters(around, params) || params->type != CU_GRAPH_NODE_TYPE_KERNEL)
		return CUDA_SUCCESS;
	return begin_node(around, params->kernel.func, params->kernel.kern);
}

bool around_end_graph_node(struct around *around, CUresult *result)
{
	return end_use(around, result);
}
