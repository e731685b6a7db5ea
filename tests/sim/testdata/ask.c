/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks NVML and prints the answers, one a line. Of several cards it asks the
 * one with the UUID in the last argument, else the first:
 *   ask cards                what each card is
 *   ask processes [UUID]     memory, and who has it, by every call that tells it
 *   ask busy SEEN [UUID]     utilisation, of processes since the time SEEN (microseconds)
 *   ask events               waits for events
 *   ask wrong                nothing, unless a wrong call is not refused as it should be
 *   ask threads              nothing; many threads ask at once
 *   ask memory [UUID]        memory, once for each line of the standard input
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nvml.h"

#define ROOM 64

static nvmlDevice_t device(unsigned i)
{
	nvmlDevice_t d = NULL;

	if (nvmlDeviceGetHandleByIndex_v2(i, &d) != NVML_SUCCESS)
		exit(3);
	return d;
}

/* The card that is asked about. */
static const char *uuid;

static nvmlDevice_t chosen(void)
{
	nvmlDevice_t d = NULL;

	if (!uuid)
		return device(0);
	if (nvmlDeviceGetHandleByUUID(uuid, &d) != NVML_SUCCESS)
		exit(3);
	return d;
}

static unsigned count(void)
{
	unsigned n = 0;

	if (nvmlDeviceGetCount_v2(&n) != NVML_SUCCESS)
		exit(3);
	return n;
}

static void cards(void)
{
	char text[96];
	int cuda = 0, major = 0, minor = 0;

	nvmlSystemGetDriverVersion(text, sizeof(text));
	printf("driver %s\n", text);
	nvmlSystemGetNVMLVersion(text, sizeof(text));
	printf("nvml %s\n", text);
	nvmlSystemGetCudaDriverVersion_v2(&cuda);
	printf("cuda %d\n", cuda);
	for (unsigned i = 0; i < count(); i++) {
		nvmlDevice_t d = device(i), same;
		nvmlPciInfo_t pci;
		unsigned index = 99, number = 99, mig = 99, pending = 99;
		nvmlDeviceArchitecture_t architecture = 0;

		nvmlDeviceGetUUID(d, text, sizeof(text));
		printf("%u uuid %s %d", i, text, nvmlDeviceGetHandleByUUID(text, &same) == NVML_SUCCESS && same == d);
		nvmlDeviceGetName(d, text, sizeof(text));
		nvmlDeviceGetIndex(d, &index);
		nvmlDeviceGetMinorNumber(d, &number);
		printf(" name %s index %u minor %u", text, index, number);
		nvmlDeviceGetPciInfo_v3(d, &pci);
		printf(" pci %s %s %d", pci.busId, pci.busIdLegacy,
		       nvmlDeviceGetHandleByPciBusId_v2(pci.busIdLegacy, &same) == NVML_SUCCESS && same == d);
		nvmlDeviceGetCudaComputeCapability(d, &major, &minor);
		nvmlDeviceGetArchitecture(d, &architecture);
		nvmlDeviceGetMigMode(d, &mig, &pending);
		printf(" compute %d.%d architecture %u mig %u %u\n", major, minor, architecture, mig, pending);
	}
}

static void print_v2(const char *name, nvmlReturn_t (*call)(nvmlDevice_t, unsigned *, nvmlProcessInfo_v2_t *))
{
	nvmlProcessInfo_v2_t infos[ROOM];
	unsigned n = 0;
	nvmlReturn_t asked = call(chosen(), &n, NULL);

	printf("%s asked %d %u", name, asked, n);
	n = ROOM;
	asked = call(chosen(), &n, infos);
	printf(" read %d", asked);
	for (unsigned i = 0; asked == NVML_SUCCESS && i < n; i++)
		printf(" %u=%llu/%u/%u", infos[i].pid, infos[i].usedGpuMemory >> 20, infos[i].gpuInstanceId, infos[i].computeInstanceId);
	putchar('\n');
}

static void print_v1(const char *name, nvmlReturn_t (*call)(nvmlDevice_t, unsigned *, nvmlProcessInfo_v1_t *))
{
	nvmlProcessInfo_v1_t infos[ROOM];
	unsigned n = ROOM;
	nvmlReturn_t result = call(chosen(), &n, infos);

	printf("%s read %d", name, result);
	for (unsigned i = 0; result == NVML_SUCCESS && i < n; i++)
		printf(" %u=%llu", infos[i].pid, infos[i].usedGpuMemory >> 20);
	putchar('\n');
}

static void processes(void)
{
	nvmlMemory_t v1 = { 0 };
	nvmlMemory_v2_t v2 = { .version = nvmlMemory_v2 };
	nvmlProcessDetail_v1_t details[ROOM];
	nvmlProcessDetailList_t list = { .version = nvmlProcessDetailList_v1, .numProcArrayEntries = ROOM, .procArray = details };
	nvmlReturn_t result = nvmlDeviceGetMemoryInfo(chosen(), &v1);

	printf("memory %d %llu %llu %llu\n", result, v1.total >> 20, v1.free >> 20, v1.used >> 20);
	result = nvmlDeviceGetMemoryInfo_v2(chosen(), &v2);
	printf("memory_v2 %d %llu %llu %llu %llu\n", result, v2.total >> 20, v2.reserved >> 20, v2.free >> 20, v2.used >> 20);
	print_v1("compute", nvmlDeviceGetComputeRunningProcesses);
	print_v2("compute_v2", nvmlDeviceGetComputeRunningProcesses_v2);
	print_v2("compute_v3", nvmlDeviceGetComputeRunningProcesses_v3);
	print_v1("graphics", nvmlDeviceGetGraphicsRunningProcesses);
	print_v2("graphics_v3", nvmlDeviceGetGraphicsRunningProcesses_v3);
	print_v1("mps", nvmlDeviceGetMPSComputeRunningProcesses);
	print_v2("mps_v3", nvmlDeviceGetMPSComputeRunningProcesses_v3);
	result = nvmlDeviceGetRunningProcessDetailList(chosen(), &list);
	printf("details %d", result);
	for (unsigned i = 0; result == NVML_SUCCESS && i < list.numProcArrayEntries; i++)
		printf(" %u=%llu", details[i].pid, details[i].usedGpuMemory >> 20);
	putchar('\n');
}

static void memory_again_and_again(void)
{
	char line[8];

	while (fgets(line, sizeof(line), stdin)) {
		nvmlMemory_t m = { 0 };
		nvmlReturn_t result = nvmlDeviceGetMemoryInfo(chosen(), &m);

		printf("memory %d %llu %llu %llu\n", result, m.total >> 20, m.free >> 20, m.used >> 20);
		fflush(stdout);
	}
}

static void busy(unsigned long long seen)
{
	nvmlUtilization_t rates = { 99, 99 };
	nvmlProcessUtilizationSample_t old[ROOM];
	nvmlProcessUtilizationInfo_v1_t now[ROOM];
	nvmlProcessesUtilizationInfo_t info = {
		.version = nvmlProcessesUtilizationInfo_v1, .processSamplesCount = ROOM, .lastSeenTimeStamp = seen, .procUtilArray = now,
	};
	nvmlSample_t samples[200];
	nvmlValueType_t type = NVML_VALUE_TYPE_COUNT;
	unsigned n = 0;
	unsigned long long newest = seen;
	nvmlReturn_t result = nvmlDeviceGetUtilizationRates(chosen(), &rates);

	printf("rates %d %u %u\n", result, rates.gpu, rates.memory);
	result = nvmlDeviceGetProcessUtilization(chosen(), NULL, &n, seen);
	printf("processes asked %d %u", result, n);
	n = ROOM;
	result = nvmlDeviceGetProcessUtilization(chosen(), old, &n, seen);
	printf(" read %d", result);
	for (unsigned i = 0; result == NVML_SUCCESS && i < n; i++) {
		printf(" %u=%u", old[i].pid, old[i].smUtil);
		newest = old[i].timeStamp;
	}
	result = nvmlDeviceGetProcessesUtilizationInfo(chosen(), &info);
	printf("\ninfo %d", result);
	for (unsigned i = 0; result == NVML_SUCCESS && i < info.processSamplesCount; i++)
		printf(" %u=%u", now[i].pid, now[i].smUtil);
	n = 200;
	result = nvmlDeviceGetSamples(chosen(), NVML_GPU_UTILIZATION_SAMPLES, seen, &type, &n, samples);
	printf("\nsamples %d type %d count %u", result, type, n);
	for (unsigned i = 0; result == NVML_SUCCESS && i < n; i++)
		printf(" %u", samples[i].sampleValue.uiVal);
	n = ROOM;
	printf("\nseen %d\n", nvmlDeviceGetProcessUtilization(chosen(), old, &n, newest + 60000000));
}

static void events(void)
{
	nvmlEventSet_t set = NULL;
	nvmlEventData_t data;
	unsigned long long types = 0;
	struct timespec before, after;

	nvmlDeviceGetSupportedEventTypes(device(0), &types);
	printf("xid %d", (types & nvmlEventTypeXidCriticalError) != 0);
	printf(" create %d", nvmlEventSetCreate(&set));
	printf(" register %d", nvmlDeviceRegisterEvents(device(0), types, set));
	printf(" unknown %d", nvmlDeviceRegisterEvents(device(0), ~0ull, set));
	clock_gettime(CLOCK_MONOTONIC, &before);
	printf(" wait %d", nvmlEventSetWait_v2(set, &data, 30));
	clock_gettime(CLOCK_MONOTONIC, &after);
	printf(" waited %d", (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000 >= 30);
	printf(" free %d\n", nvmlEventSetFree(set));
}

static void expect(const char *what, nvmlReturn_t got, nvmlReturn_t want)
{
	if (got != want)
		printf("%s: %s, want %s\n", what, nvmlErrorString(got), nvmlErrorString(want));
}

static void wrong(void)
{
	nvmlDevice_t d = device(0), none;
	nvmlMemory_v2_t memory = { .version = 1 };
	nvmlFieldValue_t field = { .fieldId = 82 };
	char text[4];
	unsigned n = 0, link = 0;

	expect("no place for the count", nvmlDeviceGetCount_v2(NULL), NVML_ERROR_INVALID_ARGUMENT);
	expect("a card beyond the last", nvmlDeviceGetHandleByIndex_v2(count(), &none), NVML_ERROR_INVALID_ARGUMENT);
	expect("an unknown UUID", nvmlDeviceGetHandleByUUID("GPU-1", &none), NVML_ERROR_NOT_FOUND);
	expect("no address", nvmlDeviceGetHandleByPciBusId_v2("x", &none), NVML_ERROR_INVALID_ARGUMENT);
	expect("an unknown address", nvmlDeviceGetHandleByPciBusId_v2("ff:1f.0", &none), NVML_ERROR_NOT_FOUND);
	expect("no device", nvmlDeviceGetUUID(NULL, text, 4), NVML_ERROR_INVALID_ARGUMENT);
	expect("something else for a device", nvmlDeviceGetUUID((nvmlDevice_t)&memory, text, 4), NVML_ERROR_INVALID_ARGUMENT);
	expect("no room", nvmlDeviceGetUUID(d, text, sizeof(text)), NVML_ERROR_INSUFFICIENT_SIZE);
	expect("an unknown version", nvmlDeviceGetMemoryInfo_v2(d, &memory), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	expect("no count", nvmlDeviceGetComputeRunningProcesses_v3(d, NULL, NULL), NVML_ERROR_INVALID_ARGUMENT);
	expect("unknown flags", nvmlInitWithFlags(1u << 20), NVML_ERROR_INVALID_ARGUMENT);
	expect("an instance", nvmlDeviceGetMigDeviceHandleByIndex(d, 0, &none), NVML_ERROR_NOT_FOUND);
	expect("fields", nvmlDeviceGetFieldValues(d, 1, &field), NVML_SUCCESS);
	expect("a field", field.nvmlReturn, NVML_ERROR_NOT_SUPPORTED);
	expect("power", nvmlDeviceGetPowerUsage(d, &n), NVML_ERROR_NOT_SUPPORTED);
	expect("a link", nvmlDeviceGetNvLinkVersion(d, 0, &link), NVML_ERROR_NOT_SUPPORTED);
	expect("end", nvmlShutdown(), NVML_SUCCESS);
	expect("end again", nvmlShutdown(), NVML_ERROR_UNINITIALIZED);
	expect("after the end", nvmlDeviceGetUUID(d, text, 4), NVML_ERROR_UNINITIALIZED);
	expect("start", nvmlInit_v2(), NVML_SUCCESS);
	if (device(0) != d)
		printf("a device has another handle after a new start\n");
}

static void *one_thread(void *unused)
{
	for (int i = 0; i < 50; i++) {
		nvmlProcessInfo_v2_t infos[ROOM];
		nvmlUtilization_t rates;
		nvmlMemory_t memory;
		unsigned n = ROOM;

		expect("start", nvmlInit_v2(), NVML_SUCCESS);
		expect("memory", nvmlDeviceGetMemoryInfo(device(0), &memory), NVML_SUCCESS);
		expect("processes", nvmlDeviceGetComputeRunningProcesses_v3(device(0), &n, infos), NVML_SUCCESS);
		expect("rates", nvmlDeviceGetUtilizationRates(device(0), &rates), NVML_SUCCESS);
		if (memory.used + memory.free != memory.total)
			printf("memory does not add up\n");
		expect("end", nvmlShutdown(), NVML_SUCCESS);
	}
	return unused;
}

static void threads(void)
{
	pthread_t thread[8];

	nvmlShutdown();
	for (int i = 0; i < 8; i++)
		pthread_create(&thread[i], NULL, one_thread, NULL);
	for (int i = 0; i < 8; i++)
		pthread_join(thread[i], NULL);
	nvmlInit_v2();
}

int main(int argc, char **argv)
{
	nvmlReturn_t result = nvmlInit_v2();

	if (argc < 2 || result != NVML_SUCCESS) {
		printf("init %d %s\n", result, nvmlErrorString(result));
		return 0;
	}
	if (strncmp(argv[argc - 1], "GPU-", 4) == 0)
		uuid = argv[argc - 1];
	if (strcmp(argv[1], "cards") == 0)
		cards();
	else if (strcmp(argv[1], "processes") == 0)
		processes();
	else if (strcmp(argv[1], "busy") == 0)
		busy(strtoull(argv[2], NULL, 10));
	else if (strcmp(argv[1], "memory") == 0)
		memory_again_and_again();
	else if (strcmp(argv[1], "events") == 0)
		events();
	else if (strcmp(argv[1], "wrong") == 0)
		wrong();
	else if (strcmp(argv[1], "threads") == 0)
		threads();
	return nvmlShutdown() == NVML_SUCCESS ? 0 : 1;
}
