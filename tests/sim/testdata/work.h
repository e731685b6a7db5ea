/* SPDX-License-Identifier: Apache-2.0
 *
 * Work for the simulated card, for programs that test how it is done. Times are only
 * compared as the model has them: streams are held until all work is in them, so that
 * nothing depends on how fast this machine is.
 */
#ifndef TRANCHE_TEST_WORK_H
#define TRANCHE_TEST_WORK_H

#include <stdint.h>
#include <unistd.h>

#include "check.h"

#define MS ((uint64_t)1000000)

static CUcontext context;
static CUfunction spin, fixed, other;
static uint32_t *gate;

static inline void start(void)
{
	static const char text[] = ".version 7.0\n.target sm_50\n.address_size 64\n"
				   "// tranche_sim_kernel fixed 3000000\n"
				   ".visible .entry spin(.param .u64 nanoseconds)\n{\n\tret;\n}\n"
				   ".visible .entry other(.param .u64 nanoseconds, .param .u32 more)\n{\n\tret;\n}\n"
				   ".visible .entry fixed()\n{\n\tret;\n}\n";
	CUmodule module;
	OK(cuInit(0));
	OK(cuCtxCreate_v2(&context, 0, 0));
	OK(cuModuleLoadData(&module, text));
	OK(cuModuleGetFunction(&spin, module, "spin"));
	OK(cuModuleGetFunction(&other, module, "other"));
	OK(cuModuleGetFunction(&fixed, module, "fixed"));
	OK(cuMemHostAlloc((void **)&gate, sizeof(*gate), CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
	*gate = 0;
}

/* What comes after it in the stream waits for let_go. */
static inline void hold(CUstream stream)
{
	OK(cuStreamWaitValue32(stream, (CUdeviceptr)(uintptr_t)gate, *gate + 1, CU_STREAM_WAIT_VALUE_EQ));
}

static inline void let_go(void)
{
	__atomic_fetch_add(gate, 1, __ATOMIC_SEQ_CST);
}

static inline CUresult launch(CUstream stream, uint64_t nanoseconds)
{
	void *parameters[] = {&nanoseconds};
	return cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL);
}

static inline CUstream stream(unsigned flags)
{
	CUstream made;
	OK(cuStreamCreate(&made, flags));
	return made;
}

static inline CUevent event(void)
{
	CUevent made;
	OK(cuEventCreate(&made, CU_EVENT_DEFAULT));
	return made;
}

static inline CUevent recorded(CUstream in)
{
	CUevent made = event();
	OK(cuEventRecord(made, in));
	return made;
}

/* In milliseconds. */
static inline float between(CUevent from, CUevent to)
{
	float milliseconds;
	OK(cuEventElapsedTime(&milliseconds, from, to));
	return milliseconds;
}

#endif
