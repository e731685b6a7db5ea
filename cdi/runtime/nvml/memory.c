/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of a card: a container's is what its shares may hold. The driver
 * is asked first in each case: what it refuses is refused.
 */
#include "view.h"

nvmlReturn_t hook_nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	nvmlMemory_t card;
	struct view view;

	if (!memory)
		return real_nvmlDeviceGetMemoryInfo(device, memory);
	TRY(real_nvmlDeviceGetMemoryInfo(device, &card));
	TRY(view_open(device, &view));
	if (!view.whole) {
		card.total = view_limit(&view, card.total);
		card.used = view_used(&view, card.total);
		card.free = card.total - card.used;
	}
	*memory = card;
	return NVML_SUCCESS;
}

nvmlReturn_t hook_nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	nvmlMemory_v2_t card;
	struct view view;

	/* Another version is another structure, maybe a shorter one. */
	if (!memory || memory->version != nvmlMemory_v2)
		return memory ? NVML_ERROR_ARGUMENT_VERSION_MISMATCH : real_nvmlDeviceGetMemoryInfo_v2(device, memory);
	card.version = nvmlMemory_v2;
	TRY(real_nvmlDeviceGetMemoryInfo_v2(device, &card));
	TRY(view_open(device, &view));
	if (!view.whole) {
		card.total = view_limit(&view, card.total);
		card.reserved = 0;
		card.used = view_used(&view, card.total);
		card.free = card.total - card.used;
	}
	*memory = card;
	return NVML_SUCCESS;
}

/* How many of 100 instructions wait: what all that runs on the card does. */
#define FIELD_MMA_STALL_PERCENT 297

nvmlReturn_t hook_nvmlDeviceGetFieldValues(nvmlDevice_t device, int valuesCount, nvmlFieldValue_t *values)
{
	struct view view;
	nvmlReturn_t result = real_nvmlDeviceGetFieldValues(device, valuesCount, values);

	if (result != NVML_SUCCESS || !values)
		return result;
	for (int i = 0; i < valuesCount; i++) {
		if (values[i].fieldId != FIELD_MMA_STALL_PERCENT || values[i].nvmlReturn != NVML_SUCCESS)
			continue;
		values[i].nvmlReturn = view_open(device, &view);
		if (values[i].nvmlReturn == NVML_SUCCESS && !view.whole)
			values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
		if (values[i].nvmlReturn != NVML_SUCCESS)
			values[i].value.ullVal = 0;
	}
	return result;
}
