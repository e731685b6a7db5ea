/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory, and the processes that hold it.
 */
#include "sim.h"

#include <string.h>

/* No process has this number: the kernel's own end at 4194304. */
#define STRANGER 4194305u

#define NO_INSTANCE 0xffffffffu

static uint64_t load(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static uint64_t held(const struct simcard_slot *slot)
{
	uint64_t sum = 0;

	for (int kind = 0; kind < SIMCARD_KINDS; kind++)
		sum += load(&slot->held[kind]);
	return sum;
}

static bool alive(const struct card *card, unsigned slot, pid_t *pid)
{
	return __atomic_load_n(&card->page->slot[slot].taken, __ATOMIC_ACQUIRE) && card_owner(card, slot, pid) == CARD_ALIVE;
}

uint64_t sim_used(const struct card *card)
{
	uint64_t sum = 0, room = card->page->memory_total - card->page->memory_driver;

	for (unsigned i = 0; i < SIMCARD_MAX_SLOTS; i++) {
		if (alive(card, i, NULL))
			sum += held(&card->page->slot[i]);
	}
	/* Slots are read one after the other: what moves from one to the other
	 * meanwhile is seen twice. */
	return sum < room ? sum : room;
}

/* A process that has several copies of the CUDA library has several slots. */
static unsigned find(const struct sim_process *found, unsigned count, unsigned pid)
{
	unsigned i = 0;

	while (i < count && found[i].pid != pid)
		i++;
	return i;
}

unsigned sim_processes(const struct card *card, struct sim_process *found, int16_t *of_slot)
{
	unsigned count = 0;

	for (unsigned i = 0; i < SIMCARD_MAX_SLOTS; i++) {
		const struct simcard_slot *slot = &card->page->slot[i];
		unsigned which;
		pid_t pid;

		if (of_slot)
			of_slot[i] = -1;
		if (!alive(card, i, &pid) || !load(&slot->held[SIMCARD_CONTEXT]))
			continue;
		/* Of a process that has no number in this PID namespace, nothing tells
		 * that two slots are its own. */
		which = find(found, count, pid > 0 ? (unsigned)pid : STRANGER + i);
		if (which == count) {
			found[count++] = (struct sim_process){
				.pid = pid > 0 ? (unsigned)pid : STRANGER + i, .first_slot = i, .started = load(&slot->started),
			};
		}
		found[which].used += held(slot);
		if (of_slot)
			of_slot[i] = (int16_t)which;
	}
	return count;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	const struct simcard *page;

	SIM_TRY(sim_enter_device(device));
	SIM_INVALID_IF(!memory);
	page = device->card.page;
	memory->total = page->memory_total;
	memory->used = page->memory_driver + sim_used(&device->card);
	memory->free = memory->total - memory->used;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	const struct simcard *page;

	SIM_TRY(sim_enter_device(device));
	SIM_INVALID_IF(!memory);
	if (memory->version != nvmlMemory_v2)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	page = device->card.page;
	memory->total = page->memory_total;
	memory->reserved = page->memory_driver;
	memory->used = sim_used(&device->card);
	memory->free = memory->total - memory->reserved - memory->used;
	return NVML_SUCCESS;
}

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

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v1_t *infos)
{
	struct sim_process found[SIMCARD_MAX_SLOTS];
	unsigned count;

	SIM_TRY(sim_enter_device(device));
	SIM_INVALID_IF(!infoCount);
	count = sim_processes(&device->card, found, NULL);
	SIM_TRY(fit(count, infoCount, infos));
	for (unsigned i = 0; i < count; i++)
		infos[i] = (nvmlProcessInfo_v1_t){ .pid = found[i].pid, .usedGpuMemory = found[i].used };
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v2_t *infos)
{
	struct sim_process found[SIMCARD_MAX_SLOTS];
	unsigned count;

	SIM_TRY(sim_enter_device(device));
	SIM_INVALID_IF(!infoCount);
	count = sim_processes(&device->card, found, NULL);
	SIM_TRY(fit(count, infoCount, infos));
	for (unsigned i = 0; i < count; i++) {
		infos[i] = (nvmlProcessInfo_v2_t){
			.pid = found[i].pid, .usedGpuMemory = found[i].used, .gpuInstanceId = NO_INSTANCE, .computeInstanceId = NO_INSTANCE,
		};
	}
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_t *infos)
{
	return nvmlDeviceGetComputeRunningProcesses_v2(device, infoCount, infos);
}

/* There are no programs of graphics and none of MPS here. */
static nvmlReturn_t none(nvmlDevice_t device, unsigned *count)
{
	SIM_ANSWER(device, count, 0);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v1_t *infos)
{
	(void)infos;
	return none(device, infoCount);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v2_t *infos)
{
	(void)infos;
	return none(device, infoCount);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_t *infos)
{
	(void)infos;
	return none(device, infoCount);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v1_t *infos)
{
	(void)infos;
	return none(device, infoCount);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v2_t *infos)
{
	(void)infos;
	return none(device, infoCount);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_t *infos)
{
	(void)infos;
	return none(device, infoCount);
}

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t *plist)
{
	enum { MODE_COMPUTE = 0, MODE_GRAPHICS = 1, MODE_MPS = 2 };
	struct sim_process found[SIMCARD_MAX_SLOTS];
	unsigned count;

	SIM_TRY(sim_enter_device(device));
	SIM_INVALID_IF(!plist || plist->mode > MODE_MPS);
	if (plist->version != nvmlProcessDetailList_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	count = plist->mode == MODE_COMPUTE ? sim_processes(&device->card, found, NULL) : 0;
	SIM_TRY(fit(count, &plist->numProcArrayEntries, plist->procArray));
	for (unsigned i = 0; i < count; i++) {
		plist->procArray[i] = (nvmlProcessDetail_v1_t){
			.pid = found[i].pid, .usedGpuMemory = found[i].used, .gpuInstanceId = NO_INSTANCE, .computeInstanceId = NO_INSTANCE,
		};
	}
	return NVML_SUCCESS;
}
