/* SPDX-License-Identifier: Apache-2.0
 *
 * What the process is, before and besides its devices.
 */
#ifndef TRANCHE_SIM_PROCESS_H
#define TRANCHE_SIM_PROCESS_H

#include "sim.h"

/* Without any card there is still a driver. */
#define SIM_DEFAULT_PROFILE 550u
#define SIM_DEFAULT_VERSION 12040u

/* 470, 535, 550 or 580, and the version of CUDA, of the first card. No need of cuInit. */
unsigned sim_profile(void);
unsigned sim_version(void);

/* Which of all cards a process sees and in which order, by the value of
 * CUDA_VISIBLE_DEVICES (NULL: not set). Returns how many. */
int sim_visible(const char *value, const struct card *cards, int all, int chosen[CARD_MAX]);

#endif
