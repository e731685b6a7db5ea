/* SPDX-License-Identifier: Apache-2.0
 *
 * The processes on a card: a container's are those that have a slot in the
 * ledger of one of its shares, with what the ledger says of them, so that they
 * add up to what the memory is said to be. They have the numbers that they have
 * for themselves.
 */
#include <stdlib.h>

#include "view.h"

#define NO_INSTANCE 0xffffffffu

/* Whether count processes go into the caller's table; says how many there are. */
static nvmlReturn_t fit(unsigned count, unsigned *room, const void *table)
{
	unsigned had = *room;

	*room = count;
	if (count == 0)
		return NVML_SUCCESS;
	if (had < count)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	return table ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

/* Graphics and MPS do not go through the ledger: of them a container sees none. */
static bool is_compute(enum nvml_hook hook)
{
	return hook == HOOK_nvmlDeviceGetComputeRunningProcesses || hook == HOOK_nvmlDeviceGetComputeRunningProcesses_v2 ||
	       hook == HOOK_nvmlDeviceGetComputeRunningProcesses_v3;
}

/* The processes of an opened view, at most what fits into *room. */
static nvmlReturn_t list(const struct view *view, bool compute, unsigned *room, const void *table, struct view_process **found,
			 unsigned *count)
{
	nvmlReturn_t result;

	*found = NULL;
	*count = 0;
	if (compute && !view_processes(view, found, count))
		return NVML_ERROR_MEMORY;
	result = fit(*count, room, table);
	if (result != NVML_SUCCESS)
		free(*found);
	return result;
}

nvmlReturn_t hook_nvmlDeviceGetComputeRunningProcesses(enum nvml_hook hook, nvmlDevice_t device, unsigned int *infoCount,
						       nvmlProcessInfo_v1_t *infos)
{
	struct view_process *found;
	struct view view;
	unsigned count;

	TRY(view_open(device, &view));
	if (view.whole || !infoCount)
		return real_of_nvmlDeviceGetComputeRunningProcesses(hook, device, infoCount, infos);
	TRY(list(&view, is_compute(hook), infoCount, infos, &found, &count));
	for (unsigned i = 0; i < count; i++)
		infos[i] = (nvmlProcessInfo_v1_t){ .pid = (unsigned)found[i].ns_pid, .usedGpuMemory = found[i].used };
	free(found);
	return NVML_SUCCESS;
}

nvmlReturn_t hook_nvmlDeviceGetComputeRunningProcesses_v3(enum nvml_hook hook, nvmlDevice_t device, unsigned int *infoCount,
							  nvmlProcessInfo_v2_t *infos)
{
	struct view_process *found;
	struct view view;
	unsigned count;

	TRY(view_open(device, &view));
	if (view.whole || !infoCount)
		return real_of_nvmlDeviceGetComputeRunningProcesses_v3(hook, device, infoCount, infos);
	TRY(list(&view, is_compute(hook), infoCount, infos, &found, &count));
	for (unsigned i = 0; i < count; i++) {
		infos[i] = (nvmlProcessInfo_v2_t){ .pid = (unsigned)found[i].ns_pid, .usedGpuMemory = found[i].used,
						   .gpuInstanceId = NO_INSTANCE, .computeInstanceId = NO_INSTANCE };
	}
	free(found);
	return NVML_SUCCESS;
}

nvmlReturn_t hook_nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t *plist)
{
	nvmlProcessDetailList_t asked;
	struct view_process *found;
	struct view view;
	nvmlReturn_t result;
	unsigned count;

	TRY(view_open(device, &view));
	if (view.whole || !plist)
		return real_nvmlDeviceGetRunningProcessDetailList(device, plist);
	if (plist->version != nvmlProcessDetailList_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	/* Whether the driver would answer. */
	asked = (nvmlProcessDetailList_t){ .version = plist->version, .mode = plist->mode };
	result = real_nvmlDeviceGetRunningProcessDetailList(device, &asked);
	if (result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE)
		return result;
	TRY(list(&view, plist->mode == 0, &plist->numProcArrayEntries, plist->procArray, &found, &count));
	for (unsigned i = 0; i < count; i++) {
		plist->procArray[i] = (nvmlProcessDetail_v1_t){ .pid = (unsigned)found[i].ns_pid, .usedGpuMemory = found[i].used,
								.gpuInstanceId = NO_INSTANCE, .computeInstanceId = NO_INSTANCE };
	}
	free(found);
	return NVML_SUCCESS;
}
