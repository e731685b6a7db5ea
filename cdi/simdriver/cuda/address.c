/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses for the memory of cards. They are taken from large reserved pieces of the
 * process's address space, so that an allocation costs one system call to map.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "memory.h"

/* Frames of one reserved piece, at least. */
#define PIECE_FRAMES ((uint64_t)64 << 10 >> 1)

/* Free addresses, sorted, no two adjoining. */
struct stretch {
	CUdeviceptr address;
	uint64_t frames;
};

static struct {
	struct stretch *stretch;
	size_t count;
	size_t room;
} space;

static bool make_room(void)
{
	struct stretch *bigger;

	if (space.count < space.room)
		return true;
	bigger = realloc(space.stretch, (space.room + 64) * sizeof(*bigger));
	if (!bigger)
		return false;
	space.stretch = bigger;
	space.room += 64;
	return true;
}

static void *reserve(uint64_t bytes)
{
	/* One frame more, for the alignment. */
	char *piece = mmap(NULL, bytes + SIM_FRAME, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *aligned;

	if (piece == MAP_FAILED)
		return NULL;
	aligned = (char *)sim_round_up((uintptr_t)piece, SIM_FRAME);
	if (aligned > piece)
		munmap(piece, (size_t)(aligned - piece));
	if (piece + SIM_FRAME > aligned)
		munmap(aligned + bytes, (size_t)(piece + SIM_FRAME - aligned));
	return aligned;
}

/* Puts addresses among the free ones. There is room for one more. */
static void insert(CUdeviceptr address, uint64_t frames)
{
	size_t low = 0, high = space.count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (space.stretch[middle].address < address)
			low = middle + 1;
		else
			high = middle;
	}
	if (low < space.count && address + frames * SIM_FRAME == space.stretch[low].address) {
		space.stretch[low].address = address;
		space.stretch[low].frames += frames;
	} else {
		memmove(&space.stretch[low + 1], &space.stretch[low], (space.count - low) * sizeof(*space.stretch));
		space.stretch[low] = (struct stretch){address, frames};
		space.count++;
	}
	if (low > 0 && space.stretch[low - 1].address + space.stretch[low - 1].frames * SIM_FRAME == space.stretch[low].address) {
		space.stretch[low - 1].frames += space.stretch[low].frames;
		space.count--;
		memmove(&space.stretch[low], &space.stretch[low + 1], (space.count - low) * sizeof(*space.stretch));
	}
}

static CUdeviceptr first_fit(uint64_t frames)
{
	for (size_t i = 0; i < space.count; i++) {
		CUdeviceptr address = space.stretch[i].address;

		if (space.stretch[i].frames < frames)
			continue;
		space.stretch[i].address += frames * SIM_FRAME;
		space.stretch[i].frames -= frames;
		if (space.stretch[i].frames == 0) {
			space.count--;
			memmove(&space.stretch[i], &space.stretch[i + 1], (space.count - i) * sizeof(*space.stretch));
		}
		return address;
	}
	return 0;
}

CUdeviceptr sim_address_take(uint64_t frames)
{
	CUdeviceptr address = first_fit(frames);
	uint64_t size = frames > PIECE_FRAMES ? frames : PIECE_FRAMES;
	void *piece;

	if (address || frames > UINT64_MAX / SIM_FRAME / 2)
		return address;
	/* Every stretch that is taken may come back between two others. */
	if (!make_room())
		return 0;
	piece = reserve(size * SIM_FRAME);
	if (!piece && size > frames) {
		size = frames;
		piece = reserve(size * SIM_FRAME);
	}
	if (!piece)
		return 0;
	insert((uintptr_t)piece, size);
	return first_fit(frames);
}

void sim_address_give(CUdeviceptr address, uint64_t frames)
{
	sim_unmap(address, frames);
	/* Without memory for the list the addresses are lost, which harms nobody. */
	if (make_room())
		insert(address, frames);
}

void sim_unmap(CUdeviceptr address, uint64_t frames)
{
	void *place = (void *)(uintptr_t)address;

	if (mmap(place, frames * SIM_FRAME, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		mprotect(place, frames * SIM_FRAME, PROT_NONE);
}

CUresult sim_map(struct sim_device *device, CUdeviceptr address, const uint32_t *frames, uint64_t count, int protection)
{
	for (uint64_t i = 0, run; i < count; i += run) {
		void *place = (void *)(uintptr_t)(address + i * SIM_FRAME);

		for (run = 1; i + run < count && frames[i + run] == frames[i] + run; run++)
			continue;
		if (mmap(place, run * SIM_FRAME, protection, MAP_SHARED | MAP_FIXED, device->card.mem_fd, card_offset(frames[i])) == MAP_FAILED ||
		    /* The memory of a card is not a child's. */
		    madvise(place, run * SIM_FRAME, MADV_DONTFORK) != 0) {
			sim_unmap(address, count);
			return CUDA_ERROR_MAP_FAILED;
		}
	}
	return CUDA_SUCCESS;
}
