/* SPDX-License-Identifier: Apache-2.0
 *
 * What cuGetProcAddress answers: generated from the answers of real drivers.
 * Does not include cuda.h, whose prototypes the table does without.
 */
#ifndef TRANCHE_SIM_ANSWERS_H
#define TRANCHE_SIM_ANSWERS_H

#include <stdint.h>

enum {
	SIM_LEGACY = 1,
	SIM_PER_THREAD = 2,
};

/* Bits of profiles. */
enum {
	SIM_PROFILE_470 = 1,
	SIM_PROFILE_535 = 2,
	SIM_PROFILE_550 = 4,
	SIM_PROFILE_580 = 8,
};

struct sim_answer {
	const char *name;
	int (*function)(void);
	uint16_t since;
	uint8_t profiles;
	uint8_t flag;
};

/* Sorted by name, then by since. */
extern const struct sim_answer sim_answers[];
extern const unsigned sim_answer_count;

#endif
