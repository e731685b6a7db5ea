/* SPDX-License-Identifier: Apache-2.0
 *
 * Events. Nothing ever happens to a simulated card; who waits for an event
 * waits until the time is over.
 */
#include "sim.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

struct nvmlEventSet_st {
	unsigned long long types;
};

#define EVENT_TYPES (nvmlEventTypeXidCriticalError | nvmlEventTypeSingleBitEccError | nvmlEventTypeDoubleBitEccError)

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *eventTypes)
{
	SIM_ANSWER(device, eventTypes, EVENT_TYPES);
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
	SIM_TRY(sim_enter());
	SIM_INVALID_IF(!set);
	*set = calloc(1, sizeof(**set));
	return *set ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
	SIM_TRY(sim_enter());
	SIM_INVALID_IF(!set);
	free(set);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long eventTypes, nvmlEventSet_t set)
{
	SIM_TRY(sim_enter_device(device));
	SIM_INVALID_IF(!set);
	if (eventTypes & ~(unsigned long long)EVENT_TYPES)
		return NVML_ERROR_NOT_SUPPORTED;
	__atomic_or_fetch(&set->types, eventTypes, __ATOMIC_RELAXED);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeoutms)
{
	struct timespec until;

	SIM_TRY(sim_enter());
	SIM_INVALID_IF(!set || !data);
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += timeoutms / 1000;
	until.tv_nsec += (long)(timeoutms % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		continue;
	return NVML_ERROR_TIMEOUT;
}

nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeoutms)
{
	return nvmlEventSetWait_v2(set, data, timeoutms);
}
