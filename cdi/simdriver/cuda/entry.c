/* SPDX-License-Identifier: Apache-2.0
 *
 * How programs find functions, and the names of results. Nothing here needs cuInit.
 */
#include <string.h>

#include "answers.h"
#include "process.h"
#include "results.h"

/* What every stub answers. */
int sim_not_modelled(void);

int sim_not_modelled(void)
{
	SIM_ENTER();
	return CUDA_ERROR_NOT_SUPPORTED;
}

static unsigned profile_bit(void)
{
	switch (sim_profile()) {
	case 470:
		return SIM_PROFILE_470;
	case 535:
		return SIM_PROFILE_535;
	case 580:
		return SIM_PROFILE_580;
	default:
		return SIM_PROFILE_550;
	}
}

static unsigned first_of(const char *name)
{
	unsigned low = 0, high = sim_answer_count;

	while (low < high) {
		unsigned middle = (low + high) / 2;

		if (strcmp(sim_answers[middle].name, name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static CUresult find(const char *name, void **function, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
	unsigned flag = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ? SIM_PER_THREAD : SIM_LEGACY;
	unsigned profile = profile_bit();

	SIM_INVALID_IF(!name || !function || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
	SIM_INVALID_IF(version < 0 || (unsigned)version > sim_version());
	*function = NULL;
	*status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	for (unsigned i = first_of(name); i < sim_answer_count && strcmp(sim_answers[i].name, name) == 0; i++) {
		const struct sim_answer *answer = &sim_answers[i];

		if (answer->flag != flag || !(answer->profiles & profile))
			continue;
		if (answer->since > version) {
			if (!*function)
				*status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
			break;
		}
		*status = CU_GET_PROC_ADDRESS_SUCCESS;
		*function = (void *)answer->function;
	}
	return CUDA_SUCCESS;
}

/* Since 12.0 it is no error that there is none. */
CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
			     CUdriverProcAddressQueryResult *symbolStatus)
{
	CUdriverProcAddressQueryResult status;

	SIM_TRY(find(symbol, pfn, cudaVersion, flags, &status));
	if (symbolStatus)
		*symbolStatus = status;
	return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
	CUdriverProcAddressQueryResult status;

	SIM_TRY(find(symbol, pfn, cudaVersion, flags, &status));
	return status == CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* Tables that are not part of the documented interface. */
CUresult cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)
{
	SIM_INVALID_IF(!ppExportTable || !pExportTableId);
	*ppExportTable = NULL;
	return CUDA_ERROR_NOT_FOUND;
}

static const struct sim_result *result_of(CUresult error)
{
	for (unsigned i = 0; i < sim_result_count; i++) {
		if (sim_results[i].value == (int)error)
			return &sim_results[i];
	}
	return NULL;
}

CUresult cuGetErrorName(CUresult error, const char **pStr)
{
	const struct sim_result *result = result_of(error);

	SIM_INVALID_IF(!pStr);
	*pStr = result ? result->name : NULL;
	return result ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **pStr)
{
	const struct sim_result *result = result_of(error);

	SIM_INVALID_IF(!pStr);
	*pStr = result ? result->text : NULL;
	return result ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* No profiler is there that these could start and stop. */
CUresult cuProfilerStart(void)
{
	SIM_ENTER();
	return CUDA_SUCCESS;
}

CUresult cuProfilerStop(void)
{
	SIM_ENTER();
	return CUDA_SUCCESS;
}
