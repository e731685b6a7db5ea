/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulated NVML: what its files share. It tells what the cards' own pages
 * say; nothing of it is remembered here and no thread runs for it.
 *
 * Cards are found when NVML is started, and a card that was found once stays
 * mapped for the life of the process: to close its file of locks would give back the locks
 * of a CUDA driver in the same process. All functions may be called by
 * several threads at once; only start and end take a lock.
 */
#ifndef TRANCHE_SIM_NVML_H
#define TRANCHE_SIM_NVML_H

#include <stdbool.h>
#include <stdint.h>

#include "card/card.h"
#include "nvml.h"

struct nvmlDevice_st {
	struct card card;
	uint64_t identity[2]; /* of its page's file */
	unsigned position;    /* in the list of devices */
};

/* ---- entering ------------------------------------------------------------ */

/* NVML_ERROR_UNINITIALIZED between the last nvmlShutdown and the next start. */
nvmlReturn_t sim_enter(void);
/* The same, and whether it is a device. */
nvmlReturn_t sim_enter_device(nvmlDevice_t device);

unsigned sim_count(void);
nvmlDevice_t sim_device(unsigned position);

#define SIM_TRY(expression)                      \
	do {                                         \
		nvmlReturn_t sim_result_ = (expression); \
		if (sim_result_ != NVML_SUCCESS)         \
			return sim_result_;                  \
	} while (0)

#define SIM_INVALID_IF(condition)               \
	do {                                        \
		if (condition)                          \
			return NVML_ERROR_INVALID_ARGUMENT; \
	} while (0)

/* Answers with one number of the device's page. */
#define SIM_ANSWER(device, place, value)   \
	do {                                   \
		SIM_TRY(sim_enter_device(device)); \
		SIM_INVALID_IF(!(place));          \
		*(place) = (value);                \
		return NVML_SUCCESS;               \
	} while (0)

/* Copies a text into the caller's room of length bytes. */
nvmlReturn_t sim_text(char *room, unsigned length, const char *text);

/* ---- processes ------------------------------------------------------------ */

struct sim_process {
	unsigned pid;
	unsigned first_slot;
	uint64_t used; /* bytes */
	uint64_t started;
};

/* Those that are alive and have a context, at most SIMCARD_MAX_SLOTS. of_slot says for
 * each slot which of them it belongs to, -1: none; may be NULL. */
unsigned sim_processes(const struct card *card, struct sim_process *found, int16_t *of_slot);

/* What all living processes hold. */
uint64_t sim_used(const struct card *card);

/* ---- the past --------------------------------------------------------------
 * The driver samples every HISTORY_PERIOD, on a grid of the wall clock; a
 * sample can be read HISTORY_DELAY after its time. Times are ns. */

#define HISTORY_PERIOD 100000000ull
#define HISTORY_DELAY 20000000ull
/* What a utilisation is taken over: a sixth of a second, as NVML says. */
#define HISTORY_WINDOW 166666667ull
/* How far back samples are kept. */
#define HISTORY_LENGTH 10000000000ull

struct history {
	uint64_t newest;     /* the newest sample, CLOCK_REALTIME */
	uint64_t monotonic;  /* the same moment in CLOCK_MONOTONIC */
	uint64_t remembered; /* since then all runs are known, CLOCK_MONOTONIC */
};

struct history history_now(const struct card *card);

/* Calls visit for each run of kernels that the card remembers and that belongs to the present owner of
 * its slot. */
void history_visit(const struct card *card, void (*visit)(const struct simcard_run *run, void *argument), void *argument);

/* How much of a run is between two moments. */
uint64_t history_overlap(const struct simcard_run *run, uint64_t from, uint64_t to);

/* Whole percents. */
unsigned history_percent(uint64_t part, uint64_t whole);

#endif
