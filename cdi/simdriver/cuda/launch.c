/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernel launches. What a kernel computes is not simulated, only how long it takes,
 * which its module or its first parameter says, however many blocks it has.
 */
#include "launch.h"

#include <string.h>

#define MAX_GRID_X 0x7fffffffu
#define MAX_GRID_YZ 65535u
#define MAX_THREADS 1024u
#define MAX_BLOCK_Z 64u
#define SHARED_WITHOUT_ASKING (48u << 10)

/* Longer ones are a parameter that was meant to be something else. */
#define LONGEST (24ull * 3600 * 1000000000)

/* ---- what is launched --------------------------------------------------------------- */

static CUresult check_shape(const CUDA_KERNEL_NODE_PARAMS_v3 *p, const struct CUfunc_st *function)
{
	SIM_INVALID_IF(p->gridDimX == 0 || p->gridDimY == 0 || p->gridDimZ == 0);
	SIM_INVALID_IF(p->gridDimX > MAX_GRID_X || p->gridDimY > MAX_GRID_YZ || p->gridDimZ > MAX_GRID_YZ);
	SIM_INVALID_IF(p->blockDimX == 0 || p->blockDimY == 0 || p->blockDimZ == 0);
	SIM_INVALID_IF(p->blockDimX > MAX_THREADS || p->blockDimY > MAX_THREADS || p->blockDimZ > MAX_BLOCK_Z);
	SIM_INVALID_IF(p->blockDimX * p->blockDimY * p->blockDimZ > MAX_THREADS);
	int allowed = function->attribute[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES];
	SIM_INVALID_IF(p->sharedMemBytes > SHARED_WITHOUT_ASKING && p->sharedMemBytes > (unsigned)(allowed > 0 ? allowed : 0));
	return CUDA_SUCCESS;
}

/* The buffer that CU_LAUNCH_PARAM_* name. */
static CUresult packed_parameters(void **extra, const uint8_t **buffer, size_t *size)
{
	*buffer = NULL;
	*size = 0;
	for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
		if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
			*buffer = extra[1];
		} else {
			SIM_INVALID_IF(extra[0] != CU_LAUNCH_PARAM_BUFFER_SIZE || !extra[1]);
			*size = *(size_t *)extra[1];
		}
	}
	return CUDA_SUCCESS;
}

static CUresult read_duration(const CUDA_KERNEL_NODE_PARAMS_v3 *p, const struct sim_kernel *kernel, uint64_t *nanoseconds)
{
	const uint8_t *from = NULL;
	SIM_INVALID_IF(p->kernelParams && p->extra);
	if (p->extra) {
		size_t size;
		SIM_TRY(packed_parameters(p->extra, &from, &size));
		SIM_INVALID_IF(size < kernel->parameter_bytes || (size > 0 && !from));
	} else if (kernel->parameters > 0) {
		SIM_INVALID_IF(!p->kernelParams);
		for (unsigned i = 0; i < kernel->parameters; i++)
			SIM_INVALID_IF(!p->kernelParams[i]);
		from = p->kernelParams[0];
	}
	*nanoseconds = kernel->nanoseconds;
	if (kernel->fixed)
		return CUDA_SUCCESS;
	/* A kernel of which nothing says how long it takes. */
	if (kernel->parameters == 0 || kernel->parameter[0].size != sizeof(*nanoseconds))
		return CUDA_ERROR_NOT_SUPPORTED;
	memcpy(nanoseconds, from, sizeof(*nanoseconds));
	return *nanoseconds <= LONGEST ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult launch_check(const CUDA_KERNEL_NODE_PARAMS_v3 *params, struct CUctx_st *context, struct CUfunc_st **function,
		      uint64_t *nanoseconds)
{
	CUfunction given = params->func ? params->func : (CUfunction)(void *)params->kern;
	SIM_TRY(sim_function(given, context, function));
	SIM_TRY(check_shape(params, *function));
	return read_duration(params, (*function)->kernel, nanoseconds);
}

CUresult launch_check_cooperative(const CUDA_KERNEL_NODE_PARAMS_v3 *params, const struct CUctx_st *context)
{
	const struct simcard *page = context->device->card.page;
	uint64_t threads = params->blockDimX * params->blockDimY * params->blockDimZ;
	uint64_t blocks = (uint64_t)params->gridDimX * params->gridDimY * params->gridDimZ;
	SIM_INVALID_IF(threads == 0);
	return blocks <= page->multiprocessors * (page->threads_per_multiprocessor / threads) ? CUDA_SUCCESS :
												CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
}

/* ---- launching ------------------------------------------------------------------------ */

static CUresult launch_on(const CUDA_KERNEL_NODE_PARAMS_v3 *params, struct CUstream_st *stream)
{
	struct CUfunc_st *function;
	uint64_t nanoseconds;
	SIM_TRY(launch_check(params, stream->context, &function, &nanoseconds));
	if (!SIM_LIKELY(!stream_captures(stream))) {
		CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_KERNEL, .kernel = *params};
		return capture_node(stream, &node, NULL);
	}
	return queue_submit(stream->queue, (struct command){.kind = COMMAND_KERNEL, .nanoseconds = nanoseconds});
}

static CUresult launch(const CUDA_KERNEL_NODE_PARAMS_v3 *params, CUstream given, bool per_thread, bool cooperative)
{
	struct CUstream_st *stream;
	SIM_TRY(stream_enter(given, per_thread, &stream));
	if (cooperative)
		SIM_TRY(launch_check_cooperative(params, stream->context));
	return launch_on(params, stream);
}

#define PARAMS(f, gx, gy, gz, bx, by, bz, shared, parameters, more)                                              \
	{.func = (f), .gridDimX = (gx), .gridDimY = (gy), .gridDimZ = (gz), .blockDimX = (bx), .blockDimY = (by), \
	 .blockDimZ = (bz), .sharedMemBytes = (shared), .kernelParams = (parameters), .extra = (more)}

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX,
			unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream, void **kernelParams,
			void **extra)
{
	const CUDA_KERNEL_NODE_PARAMS_v3 params =
		PARAMS(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, kernelParams, extra);
	return launch(&params, hStream, LEGACY, false);
}

CUresult cuLaunchKernel_ptsz(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX,
			     unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
			     void **kernelParams, void **extra)
{
	const CUDA_KERNEL_NODE_PARAMS_v3 params =
		PARAMS(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, kernelParams, extra);
	return launch(&params, hStream, PER_THREAD, false);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
				   unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes,
				   CUstream hStream, void **kernelParams)
{
	const CUDA_KERNEL_NODE_PARAMS_v3 params =
		PARAMS(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, kernelParams, NULL);
	return launch(&params, hStream, LEGACY, true);
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
					unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
					unsigned int sharedMemBytes, CUstream hStream, void **kernelParams)
{
	const CUDA_KERNEL_NODE_PARAMS_v3 params =
		PARAMS(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, kernelParams, NULL);
	return launch(&params, hStream, PER_THREAD, true);
}

/* Attributes that change nothing here are let pass, those that would have an effect are not. */
static CUresult read_attributes(const CUlaunchConfig *config, bool *cooperative)
{
	SIM_INVALID_IF(config->numAttrs > 0 && !config->attrs);
	for (unsigned i = 0; i < config->numAttrs; i++) {
		const CUlaunchAttribute *attribute = &config->attrs[i];
		switch (attribute->id) {
		case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
			*cooperative = attribute->value.cooperative != 0;
			break;
		case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
		case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
		case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
			return CUDA_ERROR_NOT_SUPPORTED;
		default:
			SIM_INVALID_IF((unsigned)attribute->id > CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING);
			break;
		}
	}
	return CUDA_SUCCESS;
}

static CUresult launch_ex(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra, bool per_thread)
{
	bool cooperative = false;
	SIM_ENTER();
	SIM_INVALID_IF(!config);
	SIM_TRY(read_attributes(config, &cooperative));
	const CUDA_KERNEL_NODE_PARAMS_v3 params = PARAMS(f, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX,
							 config->blockDimY, config->blockDimZ, config->sharedMemBytes, kernelParams, extra);
	return launch(&params, config->hStream, per_thread, cooperative);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
	return launch_ex(config, f, kernelParams, extra, LEGACY);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
	return launch_ex(config, f, kernelParams, extra, PER_THREAD);
}

/* ---- several devices at once ------------------------------------------------------------- */

static CUresult check_devices(CUDA_LAUNCH_PARAMS *list, unsigned count, struct CUstream_st **streams)
{
	struct CUctx_st *context;
	SIM_TRY(sim_current(&context));
	for (unsigned i = 0; i < count; i++) {
		/* Default streams belong to the current context only. */
		SIM_INVALID_IF(!list[i].hStream || list[i].hStream == CU_STREAM_LEGACY || list[i].hStream == CU_STREAM_PER_THREAD);
		SIM_TRY(engine_stream(list[i].hStream, LEGACY, context, &streams[i]));
		if (stream_captures(streams[i]))
			return capture_forbids(streams[i]);
		for (unsigned k = 0; k < i; k++)
			SIM_INVALID_IF(streams[k]->context->device == streams[i]->context->device);
		const CUDA_KERNEL_NODE_PARAMS_v3 params =
			PARAMS(list[i].function, list[i].gridDimX, list[i].gridDimY, list[i].gridDimZ, list[i].blockDimX, list[i].blockDimY,
			       list[i].blockDimZ, list[i].sharedMemBytes, list[i].kernelParams, NULL);
		struct CUfunc_st *function;
		uint64_t nanoseconds;
		SIM_TRY(launch_check(&params, streams[i]->context, &function, &nanoseconds));
		SIM_TRY(launch_check_cooperative(&params, streams[i]->context));
	}
	return CUDA_SUCCESS;
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launchParamsList, unsigned int numDevices, unsigned int flags)
{
	struct CUstream_st *streams[CARD_MAX];
	SIM_ENTER();
	SIM_INVALID_IF(!launchParamsList || numDevices == 0 || numDevices > (unsigned)sim_device_count());
	SIM_INVALID_IF(flags & ~(unsigned)(CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC |
					   CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC));
	SIM_TRY(check_devices(launchParamsList, numDevices, streams));
	/* Before and after: each stream waits for what the others have by then. */
	uint64_t marks[CARD_MAX];
	for (unsigned step = 0; step < 3; step++) {
		unsigned without = step == 0 ? CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC :
					       CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC;
		for (unsigned i = 0; i < numDevices; i++)
			marks[i] = engine_mark(streams[i]);
		for (unsigned i = 0; i < numDevices; i++) {
			const CUDA_LAUNCH_PARAMS *one = &launchParamsList[i];
			const CUDA_KERNEL_NODE_PARAMS_v3 params =
				PARAMS(one->function, one->gridDimX, one->gridDimY, one->gridDimZ, one->blockDimX, one->blockDimY,
				       one->blockDimZ, one->sharedMemBytes, one->kernelParams, NULL);
			if (step == 1)
				SIM_TRY(launch_on(&params, streams[i]));
			for (unsigned k = 0; step != 1 && !(flags & without) && k < numDevices; k++)
				SIM_TRY(engine_stream_wait_mark(streams[i], marks[k]));
		}
	}
	return CUDA_SUCCESS;
}
