/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints how many devices there are, and the UUID of each. What they are asked besides
 * is tested on the way.
 */
#include "check.h"

static void print_uuid(CUdevice device)
{
	CUuuid id, old;

	OK(cuDeviceGetUuid_v2(&id, device));
	OK(cuDeviceGetUuid(&old, device));
	CHECK(memcmp(&id, &old, sizeof(id)) == 0);
	printf("GPU-");
	for (int i = 0; i < 16; i++)
		printf("%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", (unsigned char)id.bytes[i]);
	putchar('\n');
}

static void queries_agree(CUdevice device)
{
	int major, minor, value, other;
	char name[100], bus[32];
	CUdevice same;
	size_t total;

	OK(cuDeviceComputeCapability(&major, &minor, device));
	OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
	EQUAL(major, value);
	OK(cuDeviceGetName(name, sizeof(name), device));
	CHECK(strcmp(name, "Simulated GPU") == 0);
	OK(cuDeviceGetName(name, 4, device));
	CHECK(strcmp(name, "Sim") == 0);
	OK(cuDeviceTotalMem_v2(&total, device));
	EQUAL((uint64_t)1 << 30, total);
	OK(cuDeviceGetPCIBusId(bus, sizeof(bus), device));
	EQUAL(strlen("0000:08:00.0"), strlen(bus));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetPCIBusId(bus, 3, device));
	OK(cuDeviceGetPCIBusId(bus, sizeof(bus), device));
	OK(cuDeviceGetByPCIBusId(&same, bus));
	EQUAL(device, same);
	OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device));
	EQUAL(32, value);
	OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
	CHECK(value > 0);
	for (int attribute = 1; attribute <= 130; attribute++)
		OK(cuDeviceGetAttribute(&other, (CUdevice_attribute)attribute, device));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(&other, (CUdevice_attribute)0, device));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(&other, (CUdevice_attribute)1000, device));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(NULL, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device));
}

int main(void)
{
	CUdevice device;
	CUresult result = cuInit(0);
	int count = 0;

	if (result == CUDA_ERROR_NO_DEVICE) {
		FAILS(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
		printf("0\n");
		return 0;
	}
	OK(result);
	OK(cuDeviceGetCount(&count));
	printf("%d\n", count);
	for (int i = 0; i < count; i++) {
		OK(cuDeviceGet(&device, i));
		print_uuid(device);
		queries_agree(device);
	}
	FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, count));
	FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, -1));
	FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetName((char[2]){0}, 2, count));
	return 0;
}
