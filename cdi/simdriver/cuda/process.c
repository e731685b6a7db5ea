/* SPDX-License-Identifier: Apache-2.0
 *
 * The process: cuInit, which cards it sees, and what becomes of it in fork.
 */
#include "process.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory.h"

static const uint32_t never;
const uint32_t *sim_alive = &never;

static struct {
	pthread_mutex_t lock;
	int count;
	struct sim_device device[CARD_MAX];
	unsigned facts; /* 1: profile and version are known */
	unsigned profile;
	unsigned version;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

int sim_device_count(void)
{
	return process.count;
}

struct sim_device *sim_device(CUdevice ordinal)
{
	return ordinal >= 0 && ordinal < process.count ? &process.device[ordinal] : NULL;
}

/* Answers that do not need cuInit, taken from the first card there is. */
static void learn(const struct simcard *page)
{
	process.profile = page ? page->profile : SIM_DEFAULT_PROFILE;
	process.version = page ? page->cuda_version : SIM_DEFAULT_VERSION;
	__atomic_store_n(&process.facts, 1, __ATOMIC_RELEASE);
}

static void look(void)
{
	struct card *cards;
	int count;

	if (__atomic_load_n(&process.facts, __ATOMIC_ACQUIRE))
		return;
	pthread_mutex_lock(&process.lock);
	cards = process.facts ? NULL : calloc(CARD_MAX, sizeof(*cards));
	if (cards) {
		count = card_open_all(card_dir(), CARD_LOOK, cards, CARD_MAX);
		learn(count ? cards[0].page : NULL);
		for (int i = 0; i < count; i++)
			card_close(&cards[i]);
		free(cards);
	}
	pthread_mutex_unlock(&process.lock);
}

unsigned sim_profile(void)
{
	look();
	return process.profile;
}

unsigned sim_version(void)
{
	look();
	return process.version;
}

/* Where the kernel cannot wipe a page. */
static uint32_t *to_wipe;

static void wipe(void)
{
	__atomic_store_n(to_wipe, 0, __ATOMIC_RELEASE);
}

/* A page that a child of fork gets as zeros. */
static uint32_t *make_alive(void)
{
	size_t size = (size_t)sysconf(_SC_PAGESIZE);
	void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		return NULL;
	to_wipe = page;
	if (madvise(page, size, MADV_WIPEONFORK) != 0 && pthread_atfork(NULL, NULL, wipe) != 0) {
		munmap(page, size);
		return NULL;
	}
	return page;
}

static void adopt(struct card *cards, const int *chosen, int count, int all)
{
	bool used[CARD_MAX] = {false};

	for (int i = 0; i < count; i++) {
		struct sim_device *device = &process.device[i];

		*device = (struct sim_device){.ordinal = i, .card = cards[chosen[i]]};
		pthread_mutex_init(&device->frames, NULL);
		used[chosen[i]] = true;
	}
	for (int i = 0; i < all; i++) {
		if (!used[i])
			card_close(&cards[i]);
	}
	process.count = count;
}

static CUresult start(void)
{
	struct card *cards = calloc(CARD_MAX, sizeof(*cards));
	int chosen[CARD_MAX];
	uint32_t *alive;
	int all, count;

	if (!cards)
		return CUDA_ERROR_OUT_OF_MEMORY;
	all = card_open_all(card_dir(), CARD_USE, cards, CARD_MAX);
	count = sim_visible(getenv("CUDA_VISIBLE_DEVICES"), cards, all, chosen);
	if (all > 0)
		learn(cards[0].page);
	alive = count > 0 ? make_alive() : NULL;
	if (!alive) {
		for (int i = 0; i < all; i++)
			card_close(&cards[i]);
		free(cards);
		return count > 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_ERROR_NO_DEVICE;
	}
	adopt(cards, chosen, count, all);
	free(cards);
	__atomic_store_n(alive, 1, __ATOMIC_RELEASE);
	__atomic_store_n(&sim_alive, alive, __ATOMIC_RELEASE);
	return CUDA_SUCCESS;
}

CUresult cuInit(unsigned int Flags)
{
	CUresult result;

	SIM_INVALID_IF(Flags != 0);
	/* Only a process whose page was wiped has one that says no. */
	if (__atomic_load_n(&sim_alive, __ATOMIC_ACQUIRE) != &never)
		return sim_enter();
	pthread_mutex_lock(&process.lock);
	result = sim_alive != &never ? sim_enter() : start();
	pthread_mutex_unlock(&process.lock);
	return result;
}

CUresult cuDriverGetVersion(int *driverVersion)
{
	SIM_INVALID_IF(!driverVersion);
	*driverVersion = (int)sim_version();
	return CUDA_SUCCESS;
}

CUresult sim_device_use(struct sim_device *device)
{
	int result = 0;

	pthread_mutex_lock(&device->frames);
	if (device->card.slot < 0)
		result = card_take_slot(&device->card);
	pthread_mutex_unlock(&device->frames);
	return result == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}
