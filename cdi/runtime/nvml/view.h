/* SPDX-License-Identifier: Apache-2.0
 *
 * What a container sees of a card: its shares of it, from the pages of the
 * arbiter, and nothing of other containers. A hook first opens a view; where that
 * fails, the hook's answer is the error.
 */
#ifndef TRANCHE_NVML_VIEW_H
#define TRANCHE_NVML_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../session/session.h"
#include "zz_generated_hooks.h"

struct view {
	bool whole; /* the card is the container's: the driver's own answers are right */
	size_t count;
	struct session_share *share[SESSION_MAX_SHARES];
};

/* NVML_ERROR_NOT_READY: no arbiter answers. NVML_ERROR_NO_PERMISSION: the
 * container has no share of the card. Other errors are the driver's. */
nvmlReturn_t view_open(nvmlDevice_t device, struct view *view);

/* What the shares may hold together, at most total, and what they do hold, at
 * most that. */
uint64_t view_limit(const struct view *view, uint64_t total);
uint64_t view_used(const struct view *view, uint64_t limit);

/* A process of the container's shares that holds memory. */
struct view_process {
	int32_t host_pid;
	int32_t ns_pid;
	uint64_t used;
};

/* All of them, for free(). False: there is no memory. */
bool view_processes(const struct view *view, struct view_process **found, unsigned *count);

/* Leaves the calling function with an error, if expression is one. */
#define TRY(expression)                      \
	do {                                     \
		nvmlReturn_t try_result = (expression); \
		if (try_result != NVML_SUCCESS)      \
			return try_result;               \
	} while (0)

#endif
