/* SPDX-License-Identifier: Apache-2.0
 *
 * Modes that a simulated card has, none of which can be changed: no instances
 * (MIG), no virtualisation, persistent, any number of contexts.
 */
#include "sim.h"

#include <time.h>

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *currentMode, unsigned int *pendingMode)
{
	SIM_TRY(sim_enter_device(device));
	SIM_INVALID_IF(!currentMode || !pendingMode);
	*currentMode = NVML_DEVICE_MIG_DISABLE;
	*pendingMode = NVML_DEVICE_MIG_DISABLE;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
	SIM_ANSWER(device, count, 0);
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *isMigDevice)
{
	SIM_ANSWER(device, isMigDevice, 0);
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *migDevice)
{
	(void)index;
	SIM_TRY(sim_enter_device(device));
	SIM_INVALID_IF(!migDevice);
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
	SIM_ANSWER(device, mode, NVML_FEATURE_ENABLED);
}

nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t device, nvmlEnableState_t *display)
{
	SIM_ANSWER(device, display, NVML_FEATURE_DISABLED);
}

nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, nvmlEnableState_t *isActive)
{
	SIM_ANSWER(device, isActive, NVML_FEATURE_DISABLED);
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode)
{
	SIM_ANSWER(device, mode, NVML_COMPUTEMODE_DEFAULT);
}

nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, nvmlPstates_t *pState)
{
	SIM_ANSWER(device, pState, NVML_PSTATE_0);
}

nvmlReturn_t nvmlDeviceGetPowerState(nvmlDevice_t device, nvmlPstates_t *pState)
{
	return nvmlDeviceGetPerformanceState(device, pState);
}

nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, nvmlGpuVirtualizationMode_t *pVirtualMode)
{
	SIM_ANSWER(device, pVirtualMode, NVML_GPU_VIRTUALIZATION_MODE_NONE);
}

nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
	SIM_ANSWER(device, mode, NVML_FEATURE_DISABLED);
}

/* Each field has an answer of its own; a simulated card has none of them. */
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int valuesCount, nvmlFieldValue_t *values)
{
	struct timespec now;

	SIM_TRY(sim_enter_device(device));
	SIM_INVALID_IF(valuesCount < 0 || !values);
	clock_gettime(CLOCK_REALTIME, &now);
	for (int i = 0; i < valuesCount; i++) {
		values[i].timestamp = (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000;
		values[i].latencyUsec = 0;
		values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
		values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
		values[i].value.ullVal = 0;
	}
	return NVML_SUCCESS;
}
