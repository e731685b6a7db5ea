/* SPDX-License-Identifier: Apache-2.0
 *
 * A kernel that works: it takes longer where somebody else has the card meanwhile, as
 * one that looks at the clock does not, and what was done of it is known.
 *
 *   arithmetic(nanoseconds, rounds, done)
 *
 * multiplies and adds so many rounds in all threads, then adds one to what done points
 * to. The simulated driver looks at the nanoseconds alone, and computes nothing.
 */
#ifndef TRANCHE_ARITHMETIC_H
#define TRANCHE_ARITHMETIC_H

#include "client.h"

/* Four chains, so that no multiplication waits for the one before. What comes of them is
 * stored where it is negative, which it never is and no compiler knows. */
#define ARITHMETIC_STEP                            \
	"	fma.rn.f32 %a, %a, %factor, %term;\n" \
	"	fma.rn.f32 %b, %b, %factor, %term;\n" \
	"	fma.rn.f32 %c, %c, %factor, %term;\n" \
	"	fma.rn.f32 %d, %d, %factor, %term;\n"

#define ARITHMETIC_THREADS 256u
#define ARITHMETIC_BLOCKS 4u /* of each multiprocessor */
#define ARITHMETIC_FMAS 16u  /* in a round of a thread */

static const char arithmetic_text[] =
	".version 6.0\n"
	".target sm_50\n"
	".address_size 64\n"
	".visible .entry arithmetic(.param .u64 arithmetic_nanoseconds, .param .u64 arithmetic_rounds, .param .u64 arithmetic_done)\n"
	"{\n"
	"	.reg .u64 %left, %done;\n"
	"	.reg .u32 %thread, %block;\n"
	"	.reg .f32 %a, %b, %c, %d, %factor, %term;\n"
	"	.reg .pred %more, %never, %other;\n"
	"	ld.param.u64 %left, [arithmetic_rounds];\n"
	"	ld.param.u64 %done, [arithmetic_done];\n"
	"	cvta.to.global.u64 %done, %done;\n"
	"	mov.u32 %thread, %tid.x;\n"
	"	mov.u32 %block, %ctaid.x;\n"
	"	cvt.rn.f32.u32 %a, %thread;\n"
	"	cvt.rn.f32.u32 %b, %block;\n"
	"	add.f32 %c, %a, %b;\n"
	"	add.f32 %d, %c, %b;\n"
	"	mov.f32 %factor, 0f3F000000;\n"
	"	mov.f32 %term, 0f3F800000;\n"
	"again:\n"
	ARITHMETIC_STEP ARITHMETIC_STEP ARITHMETIC_STEP ARITHMETIC_STEP
	"	sub.u64 %left, %left, 1;\n"
	"	setp.ne.u64 %more, %left, 0;\n"
	"	@%more bra again;\n"
	"	add.f32 %a, %a, %b;\n"
	"	add.f32 %c, %c, %d;\n"
	"	add.f32 %a, %a, %c;\n"
	"	setp.lt.f32 %never, %a, 0f00000000;\n"
	"	@%never st.global.f32 [%done+8], %a;\n"
	"	or.b32 %thread, %thread, %block;\n"
	"	setp.ne.u32 %other, %thread, 0;\n"
	"	@%other ret;\n"
	"	red.global.add.u64 [%done], 1;\n"
	"	ret;\n"
	"}\n";

struct arithmetic {
	CUfunction function;
	CUdeviceptr done;
	unsigned blocks;
};

/* Loads the kernel into the current context. */
static inline struct arithmetic load_arithmetic(void)
{
	struct arithmetic a;
	CUmodule module;
	CUdevice device;
	int multiprocessors;

	TRY(cuCtxGetDevice(&device));
	TRY(cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
	a.blocks = (unsigned)multiprocessors * ARITHMETIC_BLOCKS;
	TRY(cuModuleLoadData(&module, arithmetic_text));
	TRY(cuModuleGetFunction(&a.function, module, "arithmetic"));
	TRY(cuMemAlloc_v2(&a.done, 2 * sizeof(uint64_t)));
	TRY(cuMemsetD8_v2(a.done, 0, 2 * sizeof(uint64_t)));
	TRY(cuCtxSynchronize());
	return a;
}

static inline CUresult launch_arithmetic(const struct arithmetic *a, uint64_t nanoseconds, uint64_t rounds, CUstream stream)
{
	CUdeviceptr done = a->done;
	void *parameters[] = {&nanoseconds, &rounds, &done};

	return cuLaunchKernel(a->function, a->blocks, 1, 1, ARITHMETIC_THREADS, 1, 1, 0, stream, parameters, NULL);
}

/* How many kernels have ended, once all of them have. */
static inline uint64_t arithmetic_done(const struct arithmetic *a)
{
	uint64_t done;

	TRY(cuMemcpyDtoH_v2(&done, a->done, sizeof done));
	return done;
}

#endif
