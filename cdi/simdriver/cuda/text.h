/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of a module: PTX, of which the kernels with their parameters and
 * the global variables are read. The same text runs on a real card.
 *
 *   // tranche_sim_kernel NAME NANOSECONDS   the kernel takes that long; otherwise its first
 *                                            parameter, if it has 64 bits, says it
 *   // tranche_sim_module BYTES              memory of the card that the module takes; otherwise
 *                                            the length of the text
 */
#ifndef TRANCHE_SIM_TEXT_H
#define TRANCHE_SIM_TEXT_H

#include "sim.h"

struct sim_global {
	char *name;
	bool managed;
	uint64_t offset; /* in the module's memory */
	uint64_t size;
	uint64_t value_bytes; /* of value; what follows is zero */
	uint8_t *value;
};

struct sim_text {
	unsigned references;
	unsigned version; /* 78 for ".version 7.8" */
	unsigned target;  /* 80 for "sm_80" */
	unsigned kernels;
	struct sim_kernel *kernel;
	unsigned globals;
	struct sim_global *global;
	uint64_t bytes; /* of the card, all globals included */
};

/* INVALID_IMAGE: not the text of a module. NOT_SUPPORTED: code for a real card. INVALID_PTX: not
 * understood. */
CUresult sim_text_parse(const void *image, struct sim_text **text);
void sim_text_retain(struct sim_text *text);
void sim_text_release(struct sim_text *text);

/* NULL: there is none of that name. */
const struct sim_kernel *sim_text_kernel(const struct sim_text *text, const char *name);
const struct sim_global *sim_text_global(const struct sim_text *text, const char *name);

#endif
