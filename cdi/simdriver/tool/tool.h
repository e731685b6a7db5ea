/* SPDX-License-Identifier: Apache-2.0
 *
 * tranche-simcard: makes simulated cards and shows what is true on them.
 */
#ifndef TRANCHE_SIM_TOOL_H
#define TRANCHE_SIM_TOOL_H

#include <stdbool.h>
#include <stdint.h>

#include "card/card.h"

/* Ends the program with a message, "tranche-simcard: " before it. */
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What the options of all commands say. */
struct options {
	const char *dir;  /* of the cards */
	const char *card; /* UUID, NULL: all */
	bool json;
	uint64_t since;    /* first run to show */
	uint64_t interval; /* nanoseconds between two looks */
	uint64_t count;    /* looks, 0: until stopped */
	/* create */
	struct simcard facts;
};

/* Each is one command. They return the program's status. */
int command_create(struct options *o);
int command_list(const struct options *o);
int command_truth(const struct options *o);
int command_runs(const struct options *o);
int command_watch(const struct options *o);
int command_reap(const struct options *o);

/* Opens what o says, with pids, and ends the program where that is nothing. */
int open_cards(const struct options *o, enum card_access access, struct card *cards);

/* Prints a text as a JSON string. */
void print_json_text(const char *text);

#endif
