/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of results, generated from cuda_consts.h.
 */
#ifndef TRANCHE_SIM_RESULTS_H
#define TRANCHE_SIM_RESULTS_H

struct sim_result {
	int value;
	const char *name;
	const char *text;
};

extern const struct sim_result sim_results[];
extern const unsigned sim_result_count;

#endif
