/* SPDX-License-Identifier: Apache-2.0
 *
 * Utilisation: a container's is that of its own processes. The driver tells it
 * of every process on the card, by the number that the process has on the host or, in
 * newer drivers, where the caller is.
 */
#include <stdlib.h>
#include <time.h>

#include "view.h"

/* The processes of the container, and how the driver calls them. */
struct own {
	struct view_process *process;
	unsigned count;
	bool by_ns_pid;
};

static unsigned hits(const struct own *own, const nvmlProcessInfo_v2_t *running, unsigned count, bool by_ns_pid)
{
	unsigned found = 0;

	for (unsigned i = 0; i < own->count; i++) {
		unsigned pid = (unsigned)(by_ns_pid ? own->process[i].ns_pid : own->process[i].host_pid);

		for (unsigned k = 0; k < count; k++)
			found += running[k].pid == pid;
	}
	return found;
}

/* Tells the two ways of counting apart by which of them finds the container's own processes
 * among those that run: a number of one may be there by accident, all of them not. */
static void learn_numbers(nvmlDevice_t device, struct own *own)
{
	enum nvml_hook hook = nvml_has(HOOK_nvmlDeviceGetComputeRunningProcesses_v3) ? HOOK_nvmlDeviceGetComputeRunningProcesses_v3
										     : HOOK_nvmlDeviceGetComputeRunningProcesses_v2;
	nvmlProcessInfo_v2_t *running;
	unsigned count = 0;

	if (real_of_nvmlDeviceGetComputeRunningProcesses_v3(hook, device, &count, NULL) != NVML_ERROR_INSUFFICIENT_SIZE)
		return;
	count += 16; /* more may start meanwhile */
	running = malloc(count * sizeof(*running));
	if (running && real_of_nvmlDeviceGetComputeRunningProcesses_v3(hook, device, &count, running) == NVML_SUCCESS)
		own->by_ns_pid = hits(own, running, count, true) > hits(own, running, count, false);
	free(running);
}

static nvmlReturn_t own_open(nvmlDevice_t device, const struct view *view, struct own *own)
{
	*own = (struct own){ .process = NULL };
	if (!view_processes(view, &own->process, &own->count))
		return NVML_ERROR_MEMORY;
	if (own->count)
		learn_numbers(device, own);
	return NVML_SUCCESS;
}

/* The number under which a container sees the process; false: it is not its own. */
static bool translate(const struct own *own, unsigned *pid)
{
	for (unsigned i = 0; i < own->count; i++) {
		const struct view_process *p = &own->process[i];

		if (*pid == (unsigned)(own->by_ns_pid ? p->ns_pid : p->host_pid)) {
			*pid = (unsigned)p->ns_pid;
			return true;
		}
	}
	return false;
}

/* Reads the samples of all processes, keeps those of the container. *samples is for free(). */
static nvmlReturn_t own_samples(nvmlDevice_t device, const struct view *view, unsigned long long seen,
				nvmlProcessUtilizationSample_t **samples, unsigned *kept)
{
	struct own own;
	unsigned count = 0;
	nvmlReturn_t result = real_nvmlDeviceGetProcessUtilization(device, NULL, &count, seen);

	*samples = NULL;
	*kept = 0;
	if (result != NVML_ERROR_INSUFFICIENT_SIZE)
		return result == NVML_SUCCESS ? NVML_ERROR_NOT_FOUND : result;
	TRY(own_open(device, view, &own));
	count += 16; /* more may start meanwhile */
	*samples = malloc(count * sizeof(**samples));
	result = *samples ? real_nvmlDeviceGetProcessUtilization(device, *samples, &count, seen) : NVML_ERROR_MEMORY;
	for (unsigned i = 0; result == NVML_SUCCESS && i < count; i++) {
		nvmlProcessUtilizationSample_t sample = (*samples)[i];

		if (translate(&own, &sample.pid))
			(*samples)[(*kept)++] = sample;
	}
	free(own.process);
	if (result == NVML_SUCCESS && *kept == 0)
		result = NVML_ERROR_NOT_FOUND;
	if (result != NVML_SUCCESS)
		free(*samples);
	return result;
}

nvmlReturn_t hook_nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *utilization,
						  unsigned int *processSamplesCount, unsigned long long lastSeenTimeStamp)
{
	nvmlProcessUtilizationSample_t *samples;
	struct view view;
	unsigned count, room;

	TRY(view_open(device, &view));
	if (view.whole || !processSamplesCount)
		return real_nvmlDeviceGetProcessUtilization(device, utilization, processSamplesCount, lastSeenTimeStamp);
	TRY(own_samples(device, &view, lastSeenTimeStamp, &samples, &count));
	room = *processSamplesCount;
	*processSamplesCount = count;
	if (!utilization || room < count) {
		free(samples);
		return NVML_ERROR_INSUFFICIENT_SIZE;
	}
	for (unsigned i = 0; i < count; i++)
		utilization[i] = samples[i];
	free(samples);
	return NVML_SUCCESS;
}

/* The same for the newer call. all->procUtilArray is for free(). */
static nvmlReturn_t own_infos(nvmlDevice_t device, const struct view *view, nvmlProcessesUtilizationInfo_t *all)
{
	struct own own;
	unsigned kept = 0;
	nvmlReturn_t result;

	all->processSamplesCount = 0;
	all->procUtilArray = NULL;
	result = real_nvmlDeviceGetProcessesUtilizationInfo(device, all);
	if (result != NVML_ERROR_INSUFFICIENT_SIZE)
		return result == NVML_SUCCESS ? NVML_ERROR_NOT_FOUND : result;
	TRY(own_open(device, view, &own));
	all->processSamplesCount += 16;
	all->procUtilArray = malloc(all->processSamplesCount * sizeof(*all->procUtilArray));
	result = all->procUtilArray ? real_nvmlDeviceGetProcessesUtilizationInfo(device, all) : NVML_ERROR_MEMORY;
	for (unsigned i = 0; result == NVML_SUCCESS && i < all->processSamplesCount; i++) {
		nvmlProcessUtilizationInfo_v1_t info = all->procUtilArray[i];

		if (translate(&own, &info.pid))
			all->procUtilArray[kept++] = info;
	}
	free(own.process);
	all->processSamplesCount = kept;
	if (result == NVML_SUCCESS && kept == 0)
		result = NVML_ERROR_NOT_FOUND;
	if (result != NVML_SUCCESS)
		free(all->procUtilArray);
	return result;
}

nvmlReturn_t hook_nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *procesesUtilInfo)
{
	nvmlProcessesUtilizationInfo_t all;
	struct view view;
	unsigned room;

	TRY(view_open(device, &view));
	if (view.whole || !procesesUtilInfo)
		return real_nvmlDeviceGetProcessesUtilizationInfo(device, procesesUtilInfo);
	if (procesesUtilInfo->version != nvmlProcessesUtilizationInfo_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	all = *procesesUtilInfo;
	TRY(own_infos(device, &view, &all));
	room = procesesUtilInfo->processSamplesCount;
	procesesUtilInfo->processSamplesCount = all.processSamplesCount;
	if (!procesesUtilInfo->procUtilArray || room < all.processSamplesCount) {
		free(all.procUtilArray);
		return NVML_ERROR_INSUFFICIENT_SIZE;
	}
	for (unsigned i = 0; i < all.processSamplesCount; i++)
		procesesUtilInfo->procUtilArray[i] = all.procUtilArray[i];
	procesesUtilInfo->lastSeenTimeStamp = all.lastSeenTimeStamp;
	free(all.procUtilArray);
	return NVML_SUCCESS;
}

/* Microseconds of the wall clock, a second ago: what the driver samples at most. */
static unsigned long long a_second_ago(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (unsigned long long)(now.tv_sec - 1) * 1000000 + (unsigned long long)now.tv_nsec / 1000;
}

static unsigned at_most_all(unsigned percent)
{
	return percent < 100 ? percent : 100;
}

nvmlReturn_t hook_nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
	nvmlProcessUtilizationSample_t *samples;
	nvmlUtilization_t card, sum = { 0, 0 };
	nvmlReturn_t result;
	struct view view;
	unsigned count;

	TRY(view_open(device, &view));
	if (view.whole || !utilization)
		return real_nvmlDeviceGetUtilizationRates(device, utilization);
	TRY(real_nvmlDeviceGetUtilizationRates(device, &card));
	result = own_samples(device, &view, a_second_ago(), &samples, &count);
	if (result == NVML_SUCCESS) {
		for (unsigned i = 0; i < count; i++) {
			sum.gpu = at_most_all(sum.gpu + samples[i].smUtil);
			sum.memory = at_most_all(sum.memory + samples[i].memUtil);
		}
		free(samples);
	} else if (result != NVML_ERROR_NOT_FOUND) {
		return result;
	}
	*utilization = sum;
	return NVML_SUCCESS;
}

/* What is sampled of utilisation is the card's, not told by process. */
nvmlReturn_t hook_nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type, unsigned long long lastSeenTimeStamp,
				       nvmlValueType_t *sampleValType, unsigned int *sampleCount, nvmlSample_t *samples)
{
	struct view view;

	switch (type) {
	case NVML_GPU_UTILIZATION_SAMPLES:
	case NVML_MEMORY_UTILIZATION_SAMPLES:
	case NVML_ENC_UTILIZATION_SAMPLES:
	case NVML_DEC_UTILIZATION_SAMPLES:
	case NVML_JPG_UTILIZATION_SAMPLES:
	case NVML_OFA_UTILIZATION_SAMPLES:
		TRY(view_open(device, &view));
		if (!view.whole)
			return NVML_ERROR_NOT_SUPPORTED;
		break;
	default: /* power and clocks are the card's */
		break;
	}
	return real_nvmlDeviceGetSamples(device, type, lastSeenTimeStamp, sampleValType, sampleCount, samples);
}
