/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints what NVML says here: the driver's versions, each card with its memory
 * and utilisation, and the processes on it. Plain NVML, so in a container it
 * shows what any monitoring program sees there.
 *
 * usage: tranche-smi
 */
#include <stdio.h>
#include <stdlib.h>

#include "nvml.h"

#define MAX_PROCESSES 1024

static void need(nvmlReturn_t result, const char *what)
{
	if (result == NVML_SUCCESS)
		return;
	fprintf(stderr, "tranche-smi: %s: %s\n", what, nvmlErrorString(result));
	exit(1);
}

static void print_memory(nvmlDevice_t device)
{
	nvmlMemory_t memory;
	nvmlReturn_t result = nvmlDeviceGetMemoryInfo(device, &memory);

	if (result == NVML_SUCCESS)
		printf("   memory       %llu MiB used, %llu MiB free, %llu MiB total\n", memory.used >> 20, memory.free >> 20, memory.total >> 20);
	else
		printf("   memory       %s\n", nvmlErrorString(result));
}

static void print_utilisation(nvmlDevice_t device)
{
	nvmlUtilization_t utilisation;
	nvmlReturn_t result = nvmlDeviceGetUtilizationRates(device, &utilisation);

	if (result == NVML_SUCCESS)
		printf("   utilisation  %u %%\n", utilisation.gpu);
	else
		printf("   utilisation  %s\n", nvmlErrorString(result));
}

static void print_processes(nvmlDevice_t device)
{
	static nvmlProcessInfo_t processes[MAX_PROCESSES];
	unsigned count = MAX_PROCESSES;
	nvmlReturn_t result = nvmlDeviceGetComputeRunningProcesses_v3(device, &count, processes);

	if (result != NVML_SUCCESS) {
		printf("   processes    %s\n", nvmlErrorString(result));
		return;
	}
	printf("   processes    %u\n", count);
	for (unsigned i = 0; i < count; i++) {
		char name[256];

		if (nvmlSystemGetProcessName(processes[i].pid, name, sizeof(name)) != NVML_SUCCESS)
			snprintf(name, sizeof(name), "-");
		printf("     %10u  %8llu MiB  %s\n", processes[i].pid, processes[i].usedGpuMemory >> 20, name);
	}
}

static void print_device(unsigned index)
{
	nvmlDevice_t device;
	nvmlPciInfo_t pci;
	char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE], uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];

	need(nvmlDeviceGetHandleByIndex_v2(index, &device), "find card");
	need(nvmlDeviceGetName(device, name, sizeof(name)), "read name");
	need(nvmlDeviceGetUUID(device, uuid, sizeof(uuid)), "read UUID");
	need(nvmlDeviceGetPciInfo_v3(device, &pci), "read PCI address");
	printf("\n%2u %s\n   %s  %s\n", index, name, uuid, pci.busId);
	print_memory(device);
	print_utilisation(device);
	print_processes(device);
}

int main(int argc, char **argv)
{
	char driver[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE], nvml[NVML_SYSTEM_NVML_VERSION_BUFFER_SIZE];
	unsigned count;
	int cuda;

	(void)argv;
	if (argc > 1) {
		fprintf(stderr, "usage: tranche-smi\n");
		return 2;
	}
	need(nvmlInit_v2(), "start NVML");
	need(nvmlSystemGetDriverVersion(driver, sizeof(driver)), "read the driver's version");
	need(nvmlSystemGetNVMLVersion(nvml, sizeof(nvml)), "read NVML's version");
	need(nvmlSystemGetCudaDriverVersion_v2(&cuda), "read CUDA's version");
	need(nvmlDeviceGetCount_v2(&count), "count cards");
	printf("driver %s  NVML %s  CUDA %d.%d  cards %u\n", driver, nvml, cuda / 1000, cuda % 1000 / 10, count);
	for (unsigned i = 0; i < count; i++)
		print_device(i);
	nvmlShutdown();
	return 0;
}
