/* SPDX-License-Identifier: Apache-2.0
 *
 * Primary contexts: one for each device and process, counted. Its handle stays
 * the same when it ends and begins again.
 */
#include "context.h"

/* Around making and ending primary contexts. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool active(const struct sim_device *device)
{
	return device->primary && !__atomic_load_n(&device->primary->dead, __ATOMIC_ACQUIRE);
}

static CUresult start(struct sim_device *device)
{
	struct CUctx_st *context = device->primary;

	if (active(device))
		return CUDA_SUCCESS;
	if (!context) {
		context = sim_new(SIM_CONTEXT, sizeof(*context));
		if (!context)
			return CUDA_ERROR_OUT_OF_MEMORY;
		context->device = device;
		context->primary = true;
		context->dead = true;
		context->version = 3020;
		device->primary = context;
	}
	context->flags = device->primary_flags;
	return sim_context_start(context);
}

static CUresult retain(CUcontext *pctx, struct sim_device *device)
{
	CUresult result;

	pthread_mutex_lock(&lock);
	result = start(device);
	if (result == CUDA_SUCCESS) {
		device->primary_count++;
		*pctx = device->primary;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
	SIM_ENTER();
	SIM_INVALID_IF(!pctx);
	if (!sim_device(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	return retain(pctx, sim_device(dev));
}

static CUresult release(CUdevice dev)
{
	struct sim_device *device = sim_device(dev);
	CUresult result = CUDA_SUCCESS;

	SIM_ENTER();
	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&lock);
	if (device->primary_count == 0)
		result = CUDA_ERROR_INVALID_CONTEXT;
	else if (--device->primary_count == 0 && active(device))
		sim_context_stop(device->primary);
	pthread_mutex_unlock(&lock);
	return result;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
	return release(dev);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	return release(dev);
}

/* Who has retained the context still has to release it. */
static CUresult reset(CUdevice dev)
{
	struct sim_device *device = sim_device(dev);

	SIM_ENTER();
	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&lock);
	if (active(device))
		sim_context_stop(device->primary);
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev)
{
	return reset(dev);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	return reset(dev);
}

static CUresult set_flags(CUdevice dev, unsigned flags)
{
	struct sim_device *device = sim_device(dev);

	SIM_ENTER();
	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	SIM_TRY(sim_context_flags_check(flags));
	pthread_mutex_lock(&lock);
	device->primary_flags = flags;
	if (active(device))
		__atomic_store_n(&device->primary->flags, flags, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags)
{
	return set_flags(dev, flags);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
	return set_flags(dev, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *is_active)
{
	struct sim_device *device = sim_device(dev);

	SIM_ENTER();
	SIM_INVALID_IF(!flags || !is_active);
	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&lock);
	*flags = device->primary_flags;
	*is_active = active(device);
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}
