/* SPDX-License-Identifier: Apache-2.0
 *
 * Utilisation of the card and of processes. All that is busy here is the
 * multiprocessors: copies and fills count as kernels do, and the memory's own
 * utilisation, encoders and decoders are not modelled and always 0.
 */
#include "sim.h"

#include <string.h>

struct window {
	uint64_t from, to;
	uint64_t busy;
};

static void add_to_window(const struct simcard_run *run, void *argument)
{
	struct window *w = argument;

	w->busy += history_overlap(run, w->from, w->to);
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
	struct history h;
	struct window w;

	SIM_TRY(sim_enter_device(device));
	SIM_INVALID_IF(!utilization);
	h = history_now(&device->card);
	w = (struct window){ .from = h.monotonic - HISTORY_WINDOW, .to = h.monotonic };
	history_visit(&device->card, add_to_window, &w);
	*utilization = (nvmlUtilization_t){ .gpu = history_percent(w.busy, HISTORY_WINDOW) };
	return NVML_SUCCESS;
}

/* What each process did between two moments. */
struct shares {
	uint64_t from, to;
	unsigned count;
	struct sim_process process[SIMCARD_MAX_SLOTS];
	uint64_t busy[SIMCARD_MAX_SLOTS];
	int16_t of_slot[SIMCARD_MAX_SLOTS];
};

static void add_to_shares(const struct simcard_run *run, void *argument)
{
	struct shares *s = argument;

	if (s->of_slot[run->slot] >= 0)
		s->busy[s->of_slot[run->slot]] += history_overlap(run, s->from, s->to);
}

static unsigned share_percent(const struct shares *s, unsigned i)
{
	uint64_t from = s->process[i].started > s->from ? s->process[i].started : s->from;
	uint64_t length = s->to > from ? s->to - from : 0;

	return history_percent(s->busy[i], length > HISTORY_WINDOW ? length : HISTORY_WINDOW);
}

/* Reads what happened since a time that a caller has seen (microseconds, 0: as
 * far back as is known), at least one window of it. */
static nvmlReturn_t read_shares(nvmlDevice_t device, unsigned long long seen, struct shares *s, unsigned long long *stamp)
{
	struct history h = history_now(&device->card);
	uint64_t since;

	*stamp = h.newest / 1000;
	if (seen >= *stamp)
		return NVML_ERROR_NOT_FOUND;
	since = h.newest - (uint64_t)seen * 1000;
	memset(s->busy, 0, sizeof(s->busy));
	s->to = h.monotonic;
	s->from = since < h.monotonic ? h.monotonic - since : 0;
	if (s->from < h.remembered)
		s->from = h.remembered;
	if (s->to - s->from < HISTORY_WINDOW)
		s->from = s->to - HISTORY_WINDOW;
	s->count = sim_processes(&device->card, s->process, s->of_slot);
	if (s->count == 0)
		return NVML_ERROR_NOT_FOUND;
	history_visit(&device->card, add_to_shares, s);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *utilization,
					     unsigned int *processSamplesCount, unsigned long long lastSeenTimeStamp)
{
	struct shares s;
	unsigned long long stamp;
	unsigned room;

	SIM_TRY(sim_enter_device(device));
	SIM_INVALID_IF(!processSamplesCount);
	SIM_TRY(read_shares(device, lastSeenTimeStamp, &s, &stamp));
	room = *processSamplesCount;
	*processSamplesCount = s.count;
	if (!utilization || room < s.count)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned i = 0; i < s.count; i++) {
		utilization[i] = (nvmlProcessUtilizationSample_t){
			.pid = s.process[i].pid, .timeStamp = stamp, .smUtil = share_percent(&s, i),
		};
	}
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *procesesUtilInfo)
{
	nvmlProcessesUtilizationInfo_t *info = procesesUtilInfo;
	struct shares s;
	unsigned long long stamp;
	unsigned room;

	SIM_TRY(sim_enter_device(device));
	SIM_INVALID_IF(!info);
	if (info->version != nvmlProcessesUtilizationInfo_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	SIM_TRY(read_shares(device, info->lastSeenTimeStamp, &s, &stamp));
	room = info->processSamplesCount;
	info->processSamplesCount = s.count;
	if (!info->procUtilArray || room < s.count)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned i = 0; i < s.count; i++) {
		info->procUtilArray[i] = (nvmlProcessUtilizationInfo_v1_t){
			.pid = s.process[i].pid, .timeStamp = stamp, .smUtil = share_percent(&s, i),
		};
	}
	info->lastSeenTimeStamp = stamp;
	return NVML_SUCCESS;
}

#define SAMPLES (HISTORY_LENGTH / HISTORY_PERIOD)

/* Periods of the past, the last one ends at `to`. */
struct periods {
	uint64_t to;
	uint64_t busy[SAMPLES];
};

static void add_to_periods(const struct simcard_run *run, void *argument)
{
	struct periods *p = argument;
	uint64_t begin = p->to - SAMPLES * HISTORY_PERIOD;

	for (unsigned i = 0; i < SAMPLES; i++) {
		uint64_t from = begin + i * HISTORY_PERIOD;

		p->busy[i] += history_overlap(run, from, from + HISTORY_PERIOD);
	}
}

nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type, unsigned long long lastSeenTimeStamp,
				  nvmlValueType_t *sampleValType, unsigned int *sampleCount, nvmlSample_t *samples)
{
	struct periods p = { 0 };
	struct history h;
	uint64_t fresh, count;

	SIM_TRY(sim_enter_device(device));
	SIM_INVALID_IF(!sampleValType || !sampleCount || (samples && *sampleCount == 0));
	if (type != NVML_GPU_UTILIZATION_SAMPLES)
		return NVML_ERROR_NOT_SUPPORTED;
	*sampleValType = NVML_VALUE_TYPE_UNSIGNED_INT;
	if (!samples) {
		*sampleCount = SAMPLES;
		return NVML_SUCCESS;
	}
	h = history_now(&device->card);
	if (lastSeenTimeStamp >= h.newest / 1000)
		return NVML_ERROR_NOT_FOUND;
	fresh = (h.newest - (uint64_t)lastSeenTimeStamp * 1000 + HISTORY_PERIOD - 1) / HISTORY_PERIOD;
	count = fresh < SAMPLES ? fresh : SAMPLES;
	if (count > *sampleCount)
		count = *sampleCount;
	p.to = h.monotonic;
	history_visit(&device->card, add_to_periods, &p);
	/* The oldest that are new come first; who has room for fewer asks again. */
	for (uint64_t i = 0; i < count; i++) {
		uint64_t place = SAMPLES - (fresh < SAMPLES ? fresh : SAMPLES) + i;

		samples[i].timeStamp = (h.newest - (SAMPLES - 1 - place) * HISTORY_PERIOD) / 1000;
		samples[i].sampleValue.uiVal = history_percent(p.busy[place], HISTORY_PERIOD);
	}
	*sampleCount = (unsigned)count;
	return NVML_SUCCESS;
}
