/* SPDX-License-Identifier: Apache-2.0
 *
 * Start, end, and the list of devices.
 */
#include "sim.h"

#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

static pthread_mutex_t start = PTHREAD_MUTEX_INITIALIZER;
static unsigned users; /* nvmlInit minus nvmlShutdown */

/* Every card that was ever found; the list points into it. */
static struct nvmlDevice_st known[CARD_MAX];
static unsigned known_count;
static nvmlDevice_t list[CARD_MAX];
static unsigned list_count;

nvmlReturn_t sim_enter(void)
{
	return __atomic_load_n(&users, __ATOMIC_ACQUIRE) ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

unsigned sim_count(void)
{
	return list_count;
}

nvmlDevice_t sim_device(unsigned position)
{
	return list[position];
}

nvmlReturn_t sim_enter_device(nvmlDevice_t device)
{
	SIM_TRY(sim_enter());
	for (unsigned i = 0; i < list_count; i++) {
		if (list[i] == device)
			return NVML_SUCCESS;
	}
	return NVML_ERROR_INVALID_ARGUMENT;
}

/* Gives the known device that this card is, or makes one; NULL: no room. Takes the
 * card over. */
static nvmlDevice_t know(struct card *card)
{
	struct stat st;
	nvmlDevice_t device;

	if (fstat(card->card_fd, &st) == 0) {
		for (unsigned i = 0; i < known_count; i++) {
			device = &known[i];
			if (device->identity[0] == st.st_dev && device->identity[1] == st.st_ino) {
				card_close(card);
				return device;
			}
		}
		if (known_count < CARD_MAX && card_open_pids(card) == 0) {
			device = &known[known_count++];
			device->card = *card;
			device->identity[0] = st.st_dev;
			device->identity[1] = st.st_ino;
			return device;
		}
	}
	card_close(card);
	return NULL;
}

static void find_devices(void)
{
	struct card cards[CARD_MAX];
	int count = card_open_all(card_dir(), CARD_LOOK, cards, CARD_MAX);

	list_count = 0;
	for (int i = 0; i < count; i++) {
		nvmlDevice_t device = know(&cards[i]);

		if (device) {
			device->position = list_count;
			list[list_count++] = device;
		}
	}
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
	nvmlReturn_t result = NVML_SUCCESS;

	SIM_INVALID_IF(flags & ~(unsigned)(NVML_INIT_FLAG_NO_GPUS | NVML_INIT_FLAG_NO_ATTACH | NVML_INIT_FLAG_FORCE_INIT));
	pthread_mutex_lock(&start);
	if (users == 0) {
		find_devices();
		if (list_count == 0 && !(flags & NVML_INIT_FLAG_NO_GPUS))
			result = NVML_ERROR_DRIVER_NOT_LOADED;
	}
	if (result == NVML_SUCCESS)
		__atomic_add_fetch(&users, 1, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&start);
	return result;
}

nvmlReturn_t nvmlInit_v2(void)
{
	return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlInit(void)
{
	return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlShutdown(void)
{
	nvmlReturn_t result = NVML_ERROR_UNINITIALIZED;

	pthread_mutex_lock(&start);
	if (users > 0) {
		__atomic_sub_fetch(&users, 1, __ATOMIC_RELEASE);
		result = NVML_SUCCESS;
	}
	pthread_mutex_unlock(&start);
	return result;
}

nvmlReturn_t sim_text(char *room, unsigned length, const char *text)
{
	size_t size = strlen(text) + 1;

	SIM_INVALID_IF(!room);
	if (length < size)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	memcpy(room, text, size);
	return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result)
{
	switch (result) {
	case NVML_SUCCESS: return "Success";
	case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
	case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
	case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
	case NVML_ERROR_NO_PERMISSION: return "Insufficient Permissions";
	case NVML_ERROR_ALREADY_INITIALIZED: return "Already Initialized";
	case NVML_ERROR_NOT_FOUND: return "Not Found";
	case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
	case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
	case NVML_ERROR_TIMEOUT: return "Timeout";
	case NVML_ERROR_FUNCTION_NOT_FOUND: return "Function Not Found";
	case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
	case NVML_ERROR_IN_USE: return "In use by another client";
	case NVML_ERROR_MEMORY: return "Insufficient Memory";
	case NVML_ERROR_NO_DATA: return "No data";
	case NVML_ERROR_ARGUMENT_VERSION_MISMATCH: return "Argument Version Mismatch";
	case NVML_ERROR_DEPRECATED: return "Deprecated";
	case NVML_ERROR_NOT_READY: return "Not Ready";
	case NVML_ERROR_GPU_NOT_FOUND: return "GPU Not Found";
	case NVML_ERROR_INVALID_STATE: return "Invalid State";
	default: return "Unknown Error";
	}
}
