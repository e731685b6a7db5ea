/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "vmm.h"
#include "zz_generated_hooks.h"

struct bond {
	struct bond *next;
	uint64_t what;
	int device;
	uint64_t offset;
	uint64_t size;
	struct allocation *allocation;
};

static struct bond *all;
static struct lock lock;

static void tie(struct bond *bond)
{
	lock_take(&lock);
	bond->next = all;
	all = bond;
	lock_give(&lock);
}

bool bond_add(uint64_t what, int device, uint64_t offset, uint64_t size, struct allocation *allocation)
{
	struct bond *bond = malloc(sizeof(*bond));

	if (!bond)
		return false;
	*bond = (struct bond){ .what = what, .device = device, .offset = offset, .size = size, .allocation = allocation };
	tie(bond);
	return true;
}

static bool within(const struct bond *bond, uint64_t what, int device, uint64_t offset, uint64_t size)
{
	if (bond->what != what || (device != -1 && bond->device != -1 && bond->device != device))
		return false;
	return bond->offset >= offset && bond->offset - offset < size;
}

struct bond *bonds_begin(uint64_t what, int device, uint64_t offset, uint64_t size)
{
	struct bond *taken = NULL;

	lock_take(&lock);
	for (struct bond **link = &all; *link;) {
		struct bond *bond = *link;

		if (!within(bond, what, device, offset, size)) {
			link = &bond->next;
			continue;
		}
		*link = bond->next;
		bond->next = taken;
		taken = bond;
	}
	lock_give(&lock);
	for (struct bond *bond = taken; bond; bond = bond->next)
		allocation_begin(bond->allocation);
	return taken;
}

void bonds_end(struct bond *bonds, bool given_up)
{
	struct releases releases = { .measure = NULL };

	while (bonds) {
		struct bond *next = bonds->next;

		allocation_end(bonds->allocation, given_up, &releases);
		if (given_up)
			free(bonds);
		else
			tie(bonds);
		bonds = next;
	}
	releases_end(&releases);
}

/* After a call that binds memory: keeps the caller's reference, or gives it back. */
static CUresult bound(CUresult result, uint64_t what, int device, uint64_t offset, uint64_t size, struct allocation *allocation)
{
	if (!allocation)
		return result;
	if (result != CUDA_SUCCESS)
		allocation_put(allocation);
	else
		/* Without memory to note it, it stays charged for good. */
		bond_add(what, device, offset, size, allocation);
	return result;
}

CUresult hook_cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset, CUmemGenericAllocationHandle memHandle,
				 size_t memOffset, size_t size, unsigned long long flags)
{
	struct allocation *allocation = allocation_of_handle(memHandle);
	CUresult result = real_cuMulticastBindMem(mcHandle, mcOffset, memHandle, memOffset, size, flags);

	return bound(result, mcHandle, -1, mcOffset, size, allocation);
}

CUresult hook_cuMulticastBindMem_v2(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset,
				    CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size, unsigned long long flags)
{
	struct allocation *allocation = allocation_of_handle(memHandle);
	CUresult result = real_cuMulticastBindMem_v2(mcHandle, dev, mcOffset, memHandle, memOffset, size, flags);

	return bound(result, mcHandle, dev, mcOffset, size, allocation);
}

CUresult hook_cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset, CUdeviceptr memptr, size_t size,
				  unsigned long long flags)
{
	struct allocation *allocation = allocation_at(memptr);
	CUresult result = real_cuMulticastBindAddr(mcHandle, mcOffset, memptr, size, flags);

	return bound(result, mcHandle, -1, mcOffset, size, allocation);
}

CUresult hook_cuMulticastBindAddr_v2(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset, CUdeviceptr memptr, size_t size,
				     unsigned long long flags)
{
	struct allocation *allocation = allocation_at(memptr);
	CUresult result = real_cuMulticastBindAddr_v2(mcHandle, dev, mcOffset, memptr, size, flags);

	return bound(result, mcHandle, dev, mcOffset, size, allocation);
}

CUresult hook_cuMulticastUnbind(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset, size_t size)
{
	struct bond *bonds = cards_ready() == CUDA_SUCCESS ? bonds_begin(mcHandle, dev, mcOffset, size) : NULL;
	CUresult result = real_cuMulticastUnbind(mcHandle, dev, mcOffset, size);

	bonds_end(bonds, result == CUDA_SUCCESS);
	return result;
}

/* What is bound to an endpoint stays charged until the process ends: endpoints are
 * shared between nodes, and of how long they keep memory nothing is documented. */
CUresult hook_cuLogicalEndpointBindMem(CUlogicalEndpointId id, CUdevice dev, cuuint64_t offset, CUmemGenericAllocationHandle memHandle,
				       cuuint64_t memOffset, cuuint64_t size, unsigned long long flags)
{
	struct allocation *allocation = allocation_of_handle(memHandle);
	CUresult result = real_cuLogicalEndpointBindMem(id, dev, offset, memHandle, memOffset, size, flags);

	if (allocation && result != CUDA_SUCCESS)
		allocation_put(allocation);
	return result;
}

CUresult hook_cuLogicalEndpointBindAddr(CUlogicalEndpointId id, CUdevice dev, cuuint64_t offset, CUdeviceptr ptr, cuuint64_t size,
					unsigned long long flags)
{
	struct allocation *allocation = allocation_at(ptr);
	CUresult result = real_cuLogicalEndpointBindAddr(id, dev, offset, ptr, size, flags);

	if (allocation && result != CUDA_SUCCESS)
		allocation_put(allocation);
	return result;
}

/* Tiles of sparse arrays. A tile is known by the array and where it is in it. */
static uint64_t tile_of(const CUarrayMapInfo *info)
{
	uint64_t key;

	if (info->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL)
		return 1ull << 63 | (uint64_t)info->subresource.miptail.layer << 40 | info->subresource.miptail.offset;
	key = (uint64_t)info->subresource.sparseLevel.level << 58 | (uint64_t)info->subresource.sparseLevel.layer << 46;
	key ^= (uint64_t)info->subresource.sparseLevel.offsetX << 28 ^ (uint64_t)info->subresource.sparseLevel.offsetY << 10;
	return (key ^ info->subresource.sparseLevel.offsetZ) & ~(1ull << 63);
}

static CUresult map_one(enum cuda_hook hook, CUarrayMapInfo *info, CUstream stream)
{
	bool maps = info->memOperationType == CU_MEM_OPERATION_TYPE_MAP;
	uint64_t array = (uint64_t)(uintptr_t)info->resource.array;
	struct allocation *allocation = maps ? allocation_of_handle(info->memHandle.memHandle) : NULL;
	struct bond *bonds = maps ? NULL : bonds_begin(array, -1, tile_of(info), 1);
	CUresult result = hook == HOOK_cuMemMapArrayAsync_ptsz ? real_cuMemMapArrayAsync_ptsz(info, 1, stream)
							       : real_cuMemMapArrayAsync(info, 1, stream);

	for (struct bond *bond = bonds; bond; bond = bond->next)
		allocation_linger(bond->allocation); /* the stream has to get there first */
	bonds_end(bonds, result == CUDA_SUCCESS);
	return bound(result, array, -1, tile_of(info), 1, allocation);
}

CUresult hook_cuMemMapArrayAsync(enum cuda_hook hook, CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream)
{
	CUresult result = cards_ready();

	if (result == CUDA_SUCCESS && (!mapInfoList || count == 0))
		return real_cuMemMapArrayAsync(mapInfoList, count, hStream);
	for (unsigned int i = 0; i < count && result == CUDA_SUCCESS; i++)
		result = map_one(hook, &mapInfoList[i], hStream);
	return result;
}
