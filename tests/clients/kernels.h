/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels as text: the same runs on the simulated driver, which takes from it
 * what the kernels are and how long they last, and on a real card, which
 * compiles it.
 *   spin     for as many nanoseconds as its first parameter says
 *   nothing  takes no parameters and ends at once
 */
#ifndef TRANCHE_KERNELS_H
#define TRANCHE_KERNELS_H

#include "client.h"

static const char kernels_text[] =
	"// tranche_sim_kernel nothing 2000\n"
	".version 6.0\n"
	".target sm_50\n"
	".address_size 64\n"
	".visible .entry spin(.param .u64 spin_nanoseconds)\n"
	"{\n"
	"	.reg .u64 %end, %now;\n"
	"	.reg .pred %more;\n"
	"	ld.param.u64 %end, [spin_nanoseconds];\n"
	"	mov.u64 %now, %globaltimer;\n"
	"	add.u64 %end, %end, %now;\n"
	"again:\n"
	"	mov.u64 %now, %globaltimer;\n"
	"	setp.lt.u64 %more, %now, %end;\n"
	"	@%more bra again;\n"
	"	ret;\n"
	"}\n"
	".visible .entry nothing()\n"
	"{\n"
	"	ret;\n"
	"}\n";

struct kernels {
	CUmodule module;
	CUfunction spin;
	CUfunction nothing;
};

/* Loads the kernels into the current context. */
static inline struct kernels load_kernels(void)
{
	struct kernels k;

	TRY(cuModuleLoadData(&k.module, kernels_text));
	TRY(cuModuleGetFunction(&k.spin, k.module, "spin"));
	TRY(cuModuleGetFunction(&k.nothing, k.module, "nothing"));
	return k;
}

static inline CUresult launch_spin(const struct kernels *k, uint64_t nanoseconds, CUstream stream)
{
	void *parameters[] = {&nanoseconds};

	return cuLaunchKernel(k->spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

#endif
