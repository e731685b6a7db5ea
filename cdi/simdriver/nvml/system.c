/* SPDX-License-Identifier: Apache-2.0
 *
 * What is asked of the system and not of one card.
 */
#include "sim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The page that tells about the driver: all cards of a machine have one driver. */
static const struct simcard *any_page(void)
{
	return sim_count() ? sim_device(0)->card.page : NULL;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	SIM_TRY(sim_enter());
	return any_page() ? sim_text(version, length, any_page()->driver_version) : NVML_ERROR_DRIVER_NOT_LOADED;
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
	char text[NVML_SYSTEM_NVML_VERSION_BUFFER_SIZE];

	SIM_TRY(sim_enter());
	if (!any_page())
		return NVML_ERROR_DRIVER_NOT_LOADED;
	snprintf(text, sizeof(text), "%u.%s", any_page()->cuda_version / 1000, any_page()->driver_version);
	return sim_text(version, length, text);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *cudaDriverVersion)
{
	SIM_TRY(sim_enter());
	SIM_INVALID_IF(!cudaDriverVersion);
	if (!any_page())
		return NVML_ERROR_LIBRARY_NOT_FOUND;
	*cudaDriverVersion = (int)any_page()->cuda_version;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *cudaDriverVersion)
{
	return nvmlSystemGetCudaDriverVersion(cudaDriverVersion);
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
	char path[32], text[256];
	ssize_t size;
	int fd;

	SIM_TRY(sim_enter());
	SIM_INVALID_IF(!name || length == 0);
	snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? NVML_ERROR_NOT_FOUND : NVML_ERROR_NO_PERMISSION;
	size = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (size <= 0)
		return NVML_ERROR_NOT_FOUND;
	text[size] = '\0'; /* the program's name ends at the first zero */
	return sim_text(name, length, text);
}

nvmlReturn_t nvmlSystemGetHicVersion(unsigned int *hwbcCount, nvmlHwbcEntry_t *hwbcEntries)
{
	(void)hwbcEntries;
	SIM_TRY(sim_enter());
	SIM_INVALID_IF(!hwbcCount);
	*hwbcCount = 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlUnitGetCount(unsigned int *unitCount)
{
	SIM_TRY(sim_enter());
	SIM_INVALID_IF(!unitCount);
	*unitCount = 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int *deviceCount)
{
	SIM_INVALID_IF(!deviceCount);
	*deviceCount = 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGetExcludedDeviceInfoByIndex(unsigned int index, nvmlExcludedDeviceInfo_t *info)
{
	(void)index;
	(void)info;
	return NVML_ERROR_INVALID_ARGUMENT;
}
