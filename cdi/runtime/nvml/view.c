/* SPDX-License-Identifier: Apache-2.0 */
#include "view.h"

#include <stdlib.h>

#include "../session/ledger.h"

/* No arbiter answered at this time (CLOCK_MONOTONIC, ns). Asking takes long, and programs
 * that look every second would do little else. */
static uint64_t refused_at;

static nvmlReturn_t connect_shares(void)
{
	uint64_t refused = __atomic_load_n(&refused_at, __ATOMIC_RELAXED);

	if (session_state() == SESSION_OPEN)
		return NVML_SUCCESS;
	if (refused && now_ns() - refused < SESSION_DEADLINE_NS)
		return NVML_ERROR_NOT_READY;
	if (session_open(TRANCHE_ROLE_OBSERVER) == SESSION_OPEN)
		return NVML_SUCCESS;
	__atomic_store_n(&refused_at, now_ns(), __ATOMIC_RELAXED);
	return NVML_ERROR_NOT_READY;
}

/* The card of an instance is what shares are of. */
static nvmlDevice_t card_of(nvmlDevice_t device)
{
	unsigned instance = 0;
	nvmlDevice_t card;

	if (real_nvmlDeviceIsMigDeviceHandle(device, &instance) == NVML_SUCCESS && instance &&
	    real_nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device, &card) == NVML_SUCCESS)
		return card;
	return device;
}

nvmlReturn_t view_open(nvmlDevice_t device, struct view *view)
{
	char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];

	TRY(real_nvmlDeviceGetUUID(card_of(device), uuid, sizeof(uuid)));
	TRY(connect_shares());
	view->count = session_find(uuid, view->share, SESSION_MAX_SHARES);
	if (view->count == 0)
		return NVML_ERROR_NO_PERMISSION;
	view->whole = false;
	for (size_t i = 0; i < view->count; i++) {
		/* Pages of an arbiter that is gone tell what was true last. */
		session_restore(view->share[i], SESSION_GLANCE_NS);
		if (session_limit(view->share[i]) == TRANCHE_NO_LIMIT)
			view->whole = true;
	}
	return NVML_SUCCESS;
}

uint64_t view_limit(const struct view *view, uint64_t total)
{
	uint64_t room = total;

	for (size_t i = 0; i < view->count; i++) {
		uint64_t limit = session_limit(view->share[i]);

		room -= limit < room ? limit : room;
	}
	return total - room;
}

uint64_t view_used(const struct view *view, uint64_t limit)
{
	uint64_t room = limit;

	for (size_t i = 0; i < view->count; i++) {
		uint64_t charge = ledger_charge(view->share[i]);

		room -= charge < room ? charge : room;
	}
	return limit - room;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
	return a + b < a ? UINT64_MAX : a + b;
}

static uint64_t load(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

/* A process with several shares of the card has a slot in each ledger. */
static void add_slot(const struct tranche_slot *slot, struct view_process *found, unsigned *count)
{
	/* In this order: an amount that moves on to implicit is not missed. */
	uint64_t held = plus(plus(load(&slot->committed), load(&slot->reserve)), load(&slot->implicit));
	int32_t host_pid = __atomic_load_n(&slot->host_pid, __ATOMIC_RELAXED);
	unsigned i = 0;

	if (!load(&slot->attached) || held == 0)
		return;
	while (i < *count && (host_pid <= 0 || found[i].host_pid != host_pid))
		i++;
	if (i == *count) {
		found[i] = (struct view_process){ .host_pid = host_pid, .ns_pid = __atomic_load_n(&slot->ns_pid, __ATOMIC_RELAXED) };
		++*count;
	}
	found[i].used = plus(found[i].used, held);
}

bool view_processes(const struct view *view, struct view_process **found, unsigned *count)
{
	uint32_t slots[SESSION_MAX_SHARES], all = 0;

	for (size_t i = 0; i < view->count; i++)
		all += slots[i] = session_slots(view->share[i]);
	*count = 0;
	*found = malloc((all + 1) * sizeof(**found));
	if (!*found)
		return false;
	for (size_t i = 0; i < view->count; i++) {
		const struct tranche_ledger *ledger = session_ledger(view->share[i]);

		for (uint32_t s = 0; s < slots[i]; s++)
			add_slot(&ledger->slot[s], *found, count);
	}
	return true;
}
