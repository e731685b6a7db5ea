/* SPDX-License-Identifier: Apache-2.0
 *
 * What a device can be asked. Attributes are in attributes.c.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "memory.h"

/* A device by its ordinal; declares the variable. */
#define DEVICE_ENTER(name, ordinal)      \
	struct sim_device *name;             \
	SIM_ENTER();                         \
	name = sim_device(ordinal);          \
	if (!name)                           \
		return CUDA_ERROR_INVALID_DEVICE

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	SIM_ENTER();
	SIM_INVALID_IF(!device);
	if (!sim_device(ordinal))
		return CUDA_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
	SIM_ENTER();
	SIM_INVALID_IF(!count);
	*count = sim_device_count();
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
	DEVICE_ENTER(device, dev);
	SIM_INVALID_IF(!name || len <= 0);
	snprintf(name, (size_t)len, "%s", device->card.page->name);
	return CUDA_SUCCESS;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* "GPU-" and 32 hexadecimal digits, with dashes anywhere. */
static CUresult get_uuid(CUuuid *uuid, CUdevice dev)
{
	const char *text;
	unsigned digits = 0;

	DEVICE_ENTER(device, dev);
	SIM_INVALID_IF(!uuid);
	memset(uuid, 0, sizeof(*uuid));
	text = device->card.page->uuid;
	if (strncasecmp(text, "GPU-", 4) == 0)
		text += 4;
	for (; *text && digits < 32; text++) {
		int digit = hex_digit(*text);

		if (digit < 0)
			continue;
		uuid->bytes[digits / 2] = (char)(uuid->bytes[digits / 2] | digit << (digits % 2 ? 0 : 4));
		digits++;
	}
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
	return get_uuid(uuid, dev);
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
	return get_uuid(uuid, dev);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	DEVICE_ENTER(device, dev);
	SIM_INVALID_IF(!bytes);
	*bytes = device->card.page->memory_total;
	return CUDA_SUCCESS;
}

/* The first interface has 32 bits for it. */
CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice dev)
{
	DEVICE_ENTER(device, dev);
	SIM_INVALID_IF(!bytes);
	*bytes = device->card.page->memory_total > UINT_MAX ? UINT_MAX : (unsigned)device->card.page->memory_total;
	return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
	DEVICE_ENTER(device, dev);
	SIM_INVALID_IF(!major || !minor);
	*major = (int)device->card.page->compute_major;
	*minor = (int)device->card.page->compute_minor;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
	const char *text;

	DEVICE_ENTER(device, dev);
	SIM_INVALID_IF(!pciBusId || len <= 0);
	text = device->card.page->pci_bus_id;
	/* Four digits of domain where NVML has eight. */
	if (strlen(text) == strlen("00000000:00:00.0") && strncmp(text, "0000", 4) == 0)
		text += 4;
	if ((size_t)snprintf(pciBusId, (size_t)len, "%s", text) >= (size_t)len)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static bool parse_bus_id(const char *text, unsigned id[4])
{
	int used = 0;

	id[3] = 0;
	if (sscanf(text, "%x:%x:%x.%x%n", &id[0], &id[1], &id[2], &id[3], &used) == 4 && !text[used])
		return true;
	if (sscanf(text, "%x:%x:%x%n", &id[0], &id[1], &id[2], &used) == 3 && !text[used])
		return true;
	id[0] = 0;
	return sscanf(text, "%x:%x.%x%n", &id[1], &id[2], &id[3], &used) == 3 && !text[used];
}

CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId)
{
	unsigned asked[4], has[4];

	SIM_ENTER();
	SIM_INVALID_IF(!dev || !pciBusId || !parse_bus_id(pciBusId, asked));
	for (int i = 0; i < sim_device_count(); i++) {
		if (parse_bus_id(sim_device(i)->card.page->pci_bus_id, has) && memcmp(asked, has, sizeof(has)) == 0) {
			*dev = i;
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
	DEVICE_ENTER(device, dev);
	SIM_INVALID_IF(!canAccessPeer);
	if (!sim_device(peerDev))
		return CUDA_ERROR_INVALID_DEVICE;
	*canAccessPeer = sim_device(peerDev) != device;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice, CUdevice dstDevice)
{
	DEVICE_ENTER(source, srcDevice);
	SIM_INVALID_IF(!value || source == sim_device(dstDevice));
	if (!sim_device(dstDevice))
		return CUDA_ERROR_INVALID_DEVICE;
	switch (attrib) {
	case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
	case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
		*value = 1;
		return CUDA_SUCCESS;
	case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
	case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
	case CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED:
		*value = 0;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetExecAffinitySupport(int *pi, CUexecAffinityType type, CUdevice dev)
{
	DEVICE_ENTER(device, dev);
	(void)device;
	SIM_INVALID_IF(!pi || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT);
	*pi = 0;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *maxWidthInElements, CUarray_format format, unsigned numChannels, CUdevice dev)
{
	DEVICE_ENTER(device, dev);
	(void)device;
	(void)format;
	SIM_INVALID_IF(!maxWidthInElements || (numChannels != 1 && numChannels != 2 && numChannels != 4));
	*maxWidthInElements = (size_t)1 << 28;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop *prop, CUdevice dev)
{
	DEVICE_ENTER(device, dev);
	(void)device;
	SIM_INVALID_IF(!prop);
	*prop = (CUdevprop){
		.maxThreadsPerBlock = 1024,
		.maxThreadsDim = {1024, 1024, 64},
		.maxGridSize = {INT_MAX, 65535, 65535},
		.sharedMemPerBlock = 48 << 10,
		.totalConstantMemory = 64 << 10,
		.SIMDWidth = 32,
		.memPitch = INT_MAX,
		.regsPerBlock = 65536,
		.clockRate = 1410000,
		.textureAlign = 512,
	};
	return CUDA_SUCCESS;
}
