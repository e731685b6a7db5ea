/* SPDX-License-Identifier: Apache-2.0
 *
 * The oldest way to launch: parameters and the block's shape are set on the
 * function first.
 */
#include <stdlib.h>
#include <string.h>

#include "launch.h"

enum { PARAMETERS = 4096 };

static pthread_mutex_t settings = PTHREAD_MUTEX_INITIALIZER;

static CUresult enter(CUfunction given, struct CUfunc_st **function)
{
	SIM_CONTEXT_ENTER(context);
	return sim_function(given, context, function);
}

static CUresult set_parameter(CUfunction given, int offset, const void *value, unsigned bytes)
{
	struct CUfunc_st *function;
	SIM_TRY(enter(given, &function));
	SIM_INVALID_IF(offset < 0 || (unsigned)offset > PARAMETERS || bytes > PARAMETERS - (unsigned)offset || !value);
	pthread_mutex_lock(&settings);
	if (!function->old_parameters)
		function->old_parameters = calloc(1, PARAMETERS);
	if (function->old_parameters)
		memcpy(function->old_parameters + offset, value, bytes);
	CUresult result = function->old_parameters ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_unlock(&settings);
	return result;
}

CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes)
{
	struct CUfunc_st *function;
	SIM_TRY(enter(hfunc, &function));
	SIM_INVALID_IF(numbytes > PARAMETERS);
	pthread_mutex_lock(&settings);
	function->parameter_size = numbytes;
	pthread_mutex_unlock(&settings);
	return CUDA_SUCCESS;
}

CUresult cuParamSeti(CUfunction hfunc, int offset, unsigned int value)
{
	return set_parameter(hfunc, offset, &value, sizeof(value));
}

CUresult cuParamSetf(CUfunction hfunc, int offset, float value)
{
	return set_parameter(hfunc, offset, &value, sizeof(value));
}

CUresult cuParamSetv(CUfunction hfunc, int offset, void *ptr, unsigned int numbytes)
{
	return set_parameter(hfunc, offset, ptr, numbytes);
}

CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z)
{
	struct CUfunc_st *function;
	SIM_TRY(enter(hfunc, &function));
	SIM_INVALID_IF(x <= 0 || y <= 0 || z <= 0);
	pthread_mutex_lock(&settings);
	function->block[0] = x;
	function->block[1] = y;
	function->block[2] = z;
	pthread_mutex_unlock(&settings);
	return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes)
{
	struct CUfunc_st *function;
	SIM_TRY(enter(hfunc, &function));
	pthread_mutex_lock(&settings);
	function->shared = bytes;
	pthread_mutex_unlock(&settings);
	return CUDA_SUCCESS;
}

static CUresult launch(CUfunction given, int width, int height, CUstream stream)
{
	struct CUfunc_st *function;
	uint8_t parameters[PARAMETERS] = {0};
	SIM_TRY(enter(given, &function));
	SIM_INVALID_IF(width <= 0 || height <= 0);
	pthread_mutex_lock(&settings);
	size_t size = function->parameter_size;
	if (function->old_parameters)
		memcpy(parameters, function->old_parameters, size);
	unsigned x = (unsigned)function->block[0], y = (unsigned)function->block[1], z = (unsigned)function->block[2];
	unsigned shared = function->shared;
	pthread_mutex_unlock(&settings);
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, parameters, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
	return cuLaunchKernel(given, (unsigned)width, (unsigned)height, 1, x, y, z, shared, stream, NULL, extra);
}

CUresult cuLaunch(CUfunction f)
{
	return launch(f, 1, 1, NULL);
}

CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height)
{
	return launch(f, grid_width, grid_height, NULL);
}

CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream)
{
	return launch(f, grid_width, grid_height, hStream);
}
