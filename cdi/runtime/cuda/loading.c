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

CUresult loading_refuse(struct around *around, CUresult result)
{
	around->idle = true;
	guard_leave();
	return result;
}

CUresult loading_begin(struct around *around, struct card *card, uint64_t estimate)
{
	CUresult result = session_closed() ? CUDA_ERROR_SYSTEM_NOT_READY : card_refusal(card);

	around->card = card;
	if (result == CUDA_SUCCESS)
		result = estimate_take(&around->taken, card, estimate);
	return result == CUDA_SUCCESS ? CUDA_SUCCESS : loading_refuse(around, result);
}

bool loading_failed(struct around *around, CUresult result)
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
		return loading_refuse(around, result);
	if (later)
		estimate = exact ? 0 : estimate < LAZY_BINARY_MOST ? estimate : LAZY_BINARY_MOST;
	return loading_begin(around, around->card, estimate);
}

static bool end_load(struct around *around, CUresult *result)
{
	struct thing module = { .kind = THING_MODULE };

	if (around->idle)
		return false;
	if (*result != CUDA_SUCCESS)
		return loading_failed(around, *result);
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
	CUresult result;
	bool exact;

	*around = (struct around){ .idle = !made || !guard_enter() };
	if (around->idle)
		return CUDA_SUCCESS;
	result = cards_ready();
	if (result != CUDA_SUCCESS)
		return loading_refuse(around, result);
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
	CUresult result;
	bool exact;

	*around = (struct around){ .idle = !made || !image || !guard_enter() };
	if (around->idle)
		return CUDA_SUCCESS;
	result = cards_ready();
	if (result != CUDA_SUCCESS)
		return loading_refuse(around, result);
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
		return loading_refuse(around, result);
	/* Without a context, or lazily, nothing is loaded yet. */
	if (around->lazy || context_current(&around->card, &owner) != CUDA_SUCCESS) {
		around->card = NULL;
		return CUDA_SUCCESS;
	}
	return loading_begin(around, around->card, estimate);
}

static bool end_library(struct around *around, CUresult *result)
{
	struct thing library = { .kind = THING_LIBRARY };
	struct owner owner;

	if (around->idle)
		return false;
	if (*result != CUDA_SUCCESS && around->card)
		return loading_failed(around, *result);
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
	CUresult result;
	bool exact;

	*around = (struct around){ .idle = !made || !guard_enter() };
	if (around->idle)
		return CUDA_SUCCESS;
	result = cards_ready();
	if (result != CUDA_SUCCESS)
		return loading_refuse(around, result);
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
	CUresult result;
	bool exact;

	*around = (struct around){ .idle = !made || !image || !guard_enter() };
	if (around->idle)
		return CUDA_SUCCESS;
	result = cards_ready();
	if (result != CUDA_SUCCESS)
		return loading_refuse(around, result);
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
