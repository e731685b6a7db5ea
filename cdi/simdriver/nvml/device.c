/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding devices, and what they are.
 */
#include "sim.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *deviceCount)
{
	SIM_TRY(sim_enter());
	SIM_INVALID_IF(!deviceCount);
	*deviceCount = sim_count();
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *deviceCount)
{
	return nvmlDeviceGetCount_v2(deviceCount);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	SIM_TRY(sim_enter());
	SIM_INVALID_IF(!device || index >= sim_count());
	*device = sim_device(index);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	SIM_TRY(sim_enter());
	SIM_INVALID_IF(!uuid || !device);
	for (unsigned i = 0; i < sim_count(); i++) {
		if (strcasecmp(sim_device(i)->card.page->uuid, uuid) == 0) {
			*device = sim_device(i);
			return NVML_SUCCESS;
		}
	}
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
	SIM_TRY(sim_enter());
	SIM_INVALID_IF(!serial || !device);
	return NVML_ERROR_NOT_FOUND; /* simulated cards have none */
}

struct address {
	unsigned domain, bus, device, function;
};

/* Reads "00000000:1b:00.0", "0000:1B:00.0", "1b:0.0" and "1b:0". */
static bool read_address(const char *text, struct address *a)
{
	int end = -1;

	*a = (struct address){ 0 };
	if (sscanf(text, "%8x:%4x:%4x.%1x%n", &a->domain, &a->bus, &a->device, &a->function, &end) == 4 && !text[end])
		return true;
	if (sscanf(text, "%8x:%4x:%4x%n", &a->domain, &a->bus, &a->device, &end) == 3 && !text[end])
		return true;
	a->domain = 0;
	if (sscanf(text, "%4x:%4x.%1x%n", &a->bus, &a->device, &a->function, &end) == 3 && !text[end])
		return true;
	return sscanf(text, "%4x:%4x%n", &a->bus, &a->device, &end) == 2 && !text[end];
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pciBusId, nvmlDevice_t *device)
{
	struct address wanted, its;

	SIM_TRY(sim_enter());
	SIM_INVALID_IF(!pciBusId || !device || !read_address(pciBusId, &wanted));
	for (unsigned i = 0; i < sim_count(); i++) {
		if (read_address(sim_device(i)->card.page->pci_bus_id, &its) && its.domain == wanted.domain && its.bus == wanted.bus &&
		    its.device == wanted.device) {
			*device = sim_device(i);
			return NVML_SUCCESS;
		}
	}
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *pciBusId, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByPciBusId_v2(pciBusId, device);
}

/* NVIDIA's vendor number below, a device number that no card has above. */
#define PCI_DEVICE 0xffff10deu

/* v3 has all of it, v2 ends with busIdLegacy's number of the subsystem and four words that
 * are reserved, the first version with the number of the device. */
static nvmlReturn_t pci_info(nvmlDevice_t device, nvmlPciInfo_t *pci, size_t size)
{
	nvmlPciInfo_t all = { .pciDeviceId = PCI_DEVICE };
	struct address a;

	SIM_TRY(sim_enter_device(device));
	SIM_INVALID_IF(!pci);
	if (!read_address(device->card.page->pci_bus_id, &a))
		return NVML_ERROR_UNKNOWN;
	all.domain = a.domain;
	all.bus = a.bus;
	all.device = a.device;
	snprintf(all.busId, sizeof(all.busId), "%08X:%02X:%02X.0", a.domain, a.bus, a.device);
	snprintf(all.busIdLegacy, sizeof(all.busIdLegacy), "%04X:%02X:%02X.0", a.domain & 0xffff, a.bus & 0xff, a.device & 0xff);
	memcpy(pci, &all, size);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	return pci_info(device, pci, sizeof(*pci));
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	return pci_info(device, pci, offsetof(nvmlPciInfo_t, busId));
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	return pci_info(device, pci, offsetof(nvmlPciInfo_t, pciSubSystemId));
}

nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t *pci)
{
	nvmlPciInfo_t info;

	SIM_INVALID_IF(!pci);
	if (pci->version != nvmlPciInfoExt_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	SIM_TRY(pci_info(device, &info, sizeof(info)));
	pci->domain = info.domain;
	pci->bus = info.bus;
	pci->device = info.device;
	pci->pciDeviceId = info.pciDeviceId;
	pci->pciSubSystemId = info.pciSubSystemId;
	pci->baseClass = 3; /* a display controller, */
	pci->subClass = 2;  /* a 3D one */
	memcpy(pci->busId, info.busId, sizeof(pci->busId));
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
	SIM_TRY(sim_enter_device(device));
	return sim_text(uuid, length, device->card.page->uuid);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
	SIM_TRY(sim_enter_device(device));
	return sim_text(name, length, device->card.page->name);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
	SIM_ANSWER(device, index, device->position);
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minorNumber)
{
	SIM_ANSWER(device, minorNumber, device->card.page->minor);
}

nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned int *boardId)
{
	SIM_ANSWER(device, boardId, device->card.page->index);
}

nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned int *multiGpuBool)
{
	SIM_ANSWER(device, multiGpuBool, 0);
}

nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t device1, nvmlDevice_t device2, int *onSameBoard)
{
	SIM_TRY(sim_enter_device(device2));
	SIM_ANSWER(device1, onSameBoard, device1 == device2);
}

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t *type)
{
	SIM_ANSWER(device, type, NVML_BRAND_NVIDIA);
}

nvmlReturn_t nvmlDeviceGetBusType(nvmlDevice_t device, nvmlBusType_t *type)
{
	SIM_ANSWER(device, type, NVML_BUS_TYPE_PCIE);
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
	SIM_TRY(sim_enter_device(device));
	SIM_INVALID_IF(!major || !minor);
	*major = (int)device->card.page->compute_major;
	*minor = (int)device->card.page->compute_minor;
	return NVML_SUCCESS;
}

static nvmlDeviceArchitecture_t architecture(unsigned major, unsigned minor)
{
	switch (major) {
	case 3: return NVML_DEVICE_ARCH_KEPLER;
	case 5: return NVML_DEVICE_ARCH_MAXWELL;
	case 6: return NVML_DEVICE_ARCH_PASCAL;
	case 7: return minor < 5 ? NVML_DEVICE_ARCH_VOLTA : NVML_DEVICE_ARCH_TURING;
	case 8: return minor < 9 ? NVML_DEVICE_ARCH_AMPERE : NVML_DEVICE_ARCH_ADA;
	case 9: return NVML_DEVICE_ARCH_HOPPER;
	case 10:
	case 11:
	case 12: return NVML_DEVICE_ARCH_BLACKWELL;
	default: return NVML_DEVICE_ARCH_UNKNOWN;
	}
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *arch)
{
	SIM_ANSWER(device, arch, architecture(device->card.page->compute_major, device->card.page->compute_minor));
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device1, nvmlDevice_t device2, nvmlGpuTopologyLevel_t *pathInfo)
{
	SIM_TRY(sim_enter_device(device2));
	SIM_ANSWER(device1, pathInfo, device1 == device2 ? NVML_TOPOLOGY_INTERNAL : NVML_TOPOLOGY_SYSTEM);
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device1, nvmlDevice_t device2, nvmlGpuP2PCapsIndex_t p2pIndex,
				    nvmlGpuP2PStatus_t *p2pStatus)
{
	SIM_TRY(sim_enter_device(device2));
	SIM_INVALID_IF(p2pIndex >= NVML_P2P_CAPS_INDEX_UNKNOWN);
	SIM_ANSWER(device1, p2pStatus, NVML_P2P_STATUS_NOT_SUPPORTED);
}
