/* SPDX-License-Identifier: Apache-2.0
 *
 * What copies and fills do. They take the time that the card's copy engine needs for
 * so many bytes.
 */
#include "copy.h"

#include <stdlib.h>
#include <string.h>

/* Up to here whoever looks at the line of time copies by the way. */
#define SMALL (64u << 10)
/* Pageable memory up to here is read when the copy is asked for; for more the caller waits. */
#define STAGED (64u << 10)

/* One end of a copy. */
struct end {
	uint8_t *data;
	size_t pitch, slice;
	int device;
	bool pageable;
};

struct end_params {
	CUmemorytype type;
	void *host;
	CUdeviceptr device;
	CUarray array;
	size_t x, y, z, level, pitch, height;
};

/* ---- checks ------------------------------------------------------------------------------ */

static bool product(size_t a, size_t b, size_t *result)
{
	return !__builtin_mul_overflow(a, b, result);
}

static CUresult accessible(CUdeviceptr address, size_t bytes, int *device)
{
	CUresult result = sim_memory_check(address, bytes, device);
	if (result != CUDA_SUCCESS && graph_memory_covers(address, bytes, device))
		return CUDA_SUCCESS;
	return result;
}

static CUresult array_end(const struct end_params *p, const CUDA_MEMCPY3D *copy, struct end *end)
{
	if (!sim_is(p->array, SIM_ARRAY))
		return CUDA_ERROR_INVALID_HANDLE;
	const struct CUarray_st *array = p->array;
	const CUDA_ARRAY3D_DESCRIPTOR *d = &array->descriptor;
	size_t width = d->Width * array->element, height = d->Height ? d->Height : 1, depth = d->Depth ? d->Depth : 1;
	SIM_INVALID_IF(copy->WidthInBytes > width || p->x > width - copy->WidthInBytes);
	SIM_INVALID_IF(copy->Height > height || p->y > height - copy->Height);
	SIM_INVALID_IF(copy->Depth > depth || p->z > depth - copy->Depth);
	if (!array->data)
		return CUDA_ERROR_NOT_SUPPORTED;
	end->data = array->data + p->z * array->slice + p->y * array->pitch + p->x;
	end->pitch = array->pitch;
	end->slice = array->slice;
	end->device = array->context->device->ordinal;
	return CUDA_SUCCESS;
}

/* Where the first byte is, and how many there are up to the last one. */
static CUresult linear_extent(const struct end_params *p, const CUDA_MEMCPY3D *copy, struct end *end, size_t *offset, size_t *bytes)
{
	size_t pitch = p->pitch ? p->pitch : p->x + copy->WidthInBytes;
	size_t height = p->height ? p->height : p->y + copy->Height;
	size_t rows, slices, z;
	SIM_INVALID_IF(pitch < copy->WidthInBytes || p->x > pitch - copy->WidthInBytes);
	SIM_INVALID_IF(copy->Depth > 1 && (height < copy->Height || p->y > height - copy->Height));
	SIM_INVALID_IF(!product(pitch, height, &end->slice) || !product(end->slice, p->z, &z));
	SIM_INVALID_IF(!product(pitch, copy->Height - 1, &rows) || !product(end->slice, copy->Depth - 1, &slices));
	SIM_INVALID_IF(!product(pitch, p->y, offset));
	SIM_INVALID_IF(__builtin_add_overflow(*offset, z, offset) || __builtin_add_overflow(*offset, p->x, offset));
	SIM_INVALID_IF(__builtin_add_overflow(rows, slices, bytes) || __builtin_add_overflow(*bytes, copy->WidthInBytes, bytes));
	end->pitch = pitch;
	return CUDA_SUCCESS;
}

static CUresult linear_end(const struct end_params *p, const CUDA_MEMCPY3D *copy, struct end *end)
{
	size_t offset, bytes;
	SIM_TRY(linear_extent(p, copy, end, &offset, &bytes));
	CUdeviceptr address = p->type == CU_MEMORYTYPE_HOST ? (CUdeviceptr)(uintptr_t)p->host : p->device;
	SIM_INVALID_IF(address == 0 || __builtin_add_overflow(address, offset, &address));
	end->data = (uint8_t *)(uintptr_t)address;
	end->device = -1;
	bool known = p->type != CU_MEMORYTYPE_HOST && accessible(address, bytes, &end->device) == CUDA_SUCCESS;
	/* Any other address of a unified one is the program's own memory. */
	SIM_INVALID_IF(!known && p->type == CU_MEMORYTYPE_DEVICE);
	end->pageable = !known && !sim_memory_pinned(end->data);
	return CUDA_SUCCESS;
}

static CUresult resolve(const struct end_params *p, const CUDA_MEMCPY3D *copy, struct end *end)
{
	memset(end, 0, sizeof(*end));
	SIM_INVALID_IF(p->level != 0);
	switch (p->type) {
	case CU_MEMORYTYPE_ARRAY:
		return array_end(p, copy, end);
	case CU_MEMORYTYPE_HOST:
	case CU_MEMORYTYPE_DEVICE:
	case CU_MEMORYTYPE_UNIFIED:
		return linear_end(p, copy, end);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* ---- jobs ---------------------------------------------------------------------------------- */

static void run_copy(struct job *job)
{
	const struct copy *copy = (const struct copy *)job;
	const uint8_t *from = copy->staged ? copy->staged : copy->from;
	for (size_t z = 0; z < copy->depth; z++)
		for (size_t y = 0; y < copy->height; y++)
			memmove(copy->to + z * copy->to_slice + y * copy->to_pitch, from + z * copy->from_slice + y * copy->from_pitch,
				copy->width);
}

static void drop_copy(struct job *job)
{
	free(((struct copy *)job)->staged);
	free(job);
}

/* The time that the copy engine needs for so many bytes. */
static void take_time(struct job *job, const struct sim_device *device, size_t bytes)
{
	uint64_t rate = device->card.page->copy_bytes_per_second;
	job->nanoseconds = rate ? (uint64_t)((double)bytes * 1e9 / (double)rate) : 0;
}

CUresult copy_make(const CUDA_MEMCPY3D *params, const struct sim_device *device, struct copy **made)
{
	*made = NULL;
	if (params->WidthInBytes == 0 || params->Height == 0 || params->Depth == 0)
		return CUDA_SUCCESS;
	const struct end_params source = {params->srcMemoryType, (void *)(uintptr_t)params->srcHost, params->srcDevice, params->srcArray,
					  params->srcXInBytes, params->srcY, params->srcZ, params->srcLOD, params->srcPitch,
					  params->srcHeight};
	const struct end_params destination = {params->dstMemoryType, params->dstHost, params->dstDevice, params->dstArray,
					       params->dstXInBytes, params->dstY, params->dstZ, params->dstLOD, params->dstPitch,
					       params->dstHeight};
	struct end from, to;
	SIM_TRY(resolve(&source, params, &from));
	SIM_TRY(resolve(&destination, params, &to));
	struct copy *copy = calloc(1, sizeof(*copy));
	if (!copy)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*copy = (struct copy){
		.job = {.hand = HAND_COPY, .run = run_copy, .drop = drop_copy},
		.to = to.data, .to_pitch = to.pitch, .to_slice = to.slice, .to_device = to.device, .to_pageable = to.pageable,
		.from = from.data, .from_pitch = from.pitch, .from_slice = from.slice, .from_device = from.device,
		.from_pageable = from.pageable,
		.width = params->WidthInBytes, .height = params->Height, .depth = params->Depth,
	};
	size_t bytes = copy->width * copy->height * copy->depth;
	if (bytes <= SMALL)
		copy->job.hand = HAND_NONE;
	if (to.device >= 0 || from.device >= 0)
		take_time(&copy->job, device, bytes);
	*made = copy;
	return CUDA_SUCCESS;
}

static void run_fill(struct job *job)
{
	const struct fill *fill = (const struct fill *)job;
	for (size_t y = 0; y < fill->height; y++) {
		uint8_t *row = fill->to + y * fill->pitch;
		if (fill->element == 1) {
			memset(row, (int)fill->value, fill->width);
			continue;
		}
		for (size_t x = 0; x < fill->width; x += fill->element)
			memcpy(row + x, &fill->value, fill->element);
	}
}

static void drop_fill(struct job *job)
{
	free(job);
}

CUresult fill_make(const CUDA_MEMSET_NODE_PARAMS_v2 *params, const struct sim_device *device, struct fill **made)
{
	unsigned element = params->elementSize;
	size_t width, rows, bytes;
	*made = NULL;
	SIM_INVALID_IF(element != 1 && element != 2 && element != 4);
	SIM_INVALID_IF(params->dst % element != 0 || !product(params->width, element, &width));
	if (params->width == 0 || params->height == 0)
		return CUDA_SUCCESS;
	SIM_INVALID_IF(params->height > 1 && (params->pitch < width || params->pitch % element != 0));
	SIM_INVALID_IF(!product(params->pitch, params->height - 1, &rows) || __builtin_add_overflow(rows, width, &bytes));
	struct fill fill = {
		.job = {.hand = width * params->height <= SMALL ? HAND_NONE : HAND_COPY, .run = run_fill, .drop = drop_fill},
		.to = (uint8_t *)(uintptr_t)params->dst, .pitch = params->pitch, .width = width, .height = params->height,
		.value = params->value, .element = element,
	};
	SIM_TRY(accessible(params->dst, bytes, &fill.device));
	take_time(&fill.job, device, width * params->height);
	*made = malloc(sizeof(**made));
	if (!*made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	**made = fill;
	return CUDA_SUCCESS;
}

/* ---- in streams ------------------------------------------------------------------------------ */

static CUresult submit(struct CUstream_st *stream, struct job *job, bool wait)
{
	if (job) {
		struct command command = {.kind = COMMAND_JOB, .slow = true, .payload = job};
		SIM_TRY(queue_submit(stream->queue, command));
	}
	if (wait)
		queue_wait(stream->queue, queue_tail(stream->queue));
	return CUDA_SUCCESS;
}

/* Reads pageable memory now. False: the caller has to wait until it is copied. */
static bool stage(struct copy *copy)
{
	size_t bytes = copy->width * copy->height * copy->depth;
	if (bytes > STAGED)
		return false;
	copy->staged = malloc(bytes);
	if (!copy->staged)
		return false;
	struct copy reading = *copy;
	reading.staged = NULL;
	reading.to = copy->staged;
	reading.to_pitch = copy->width;
	reading.to_slice = copy->width * copy->height;
	run_copy(&reading.job);
	copy->from_pitch = reading.to_pitch;
	copy->from_slice = reading.to_slice;
	return true;
}

/* The stream, for a copy or fill that waits or does not. */
static CUresult enter(CUstream given, unsigned how, struct CUstream_st **stream)
{
	SIM_TRY(stream_enter(given, how & PER_THREAD, stream));
	if (how & COPY_ASYNC)
		return CUDA_SUCCESS;
	if (in_callback)
		return CUDA_ERROR_NOT_PERMITTED;
	SIM_TRY(capture_forbids(*stream));
	return engine_may_block((*stream)->context);
}

CUresult copy_run(const CUDA_MEMCPY3D *params, CUstream given, unsigned how)
{
	struct CUstream_st *stream;
	struct copy *copy;
	SIM_TRY(enter(given, how, &stream));
	SIM_TRY(copy_make(params, stream->context->device, &copy));
	if (stream_captures(stream)) {
		CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_MEMCPY, .memcpy = {.copyCtx = stream->context, .copyParams = *params}};
		if (copy)
			drop_copy(&copy->job);
		return capture_node(stream, &node, NULL);
	}
	if (!copy)
		return submit(stream, NULL, !(how & COPY_ASYNC));
	/* From device to device no function waits. */
	bool wait = !(how & COPY_ASYNC) && (copy->to_device < 0 || copy->from_device < 0);
	if ((how & COPY_ASYNC) && (copy->to_pageable || (copy->from_pageable && !stage(copy))))
		wait = true;
	return submit(stream, &copy->job, wait && !in_callback);
}

CUresult fill_run(CUdeviceptr to, size_t pitch, unsigned value, unsigned element, size_t width, size_t height, CUstream given,
		  unsigned how)
{
	struct CUstream_st *stream;
	struct fill *fill;
	SIM_TRY(enter(given, how, &stream));
	CUDA_MEMSET_NODE_PARAMS_v2 params = {.dst = to, .pitch = pitch, .value = value, .elementSize = element, .width = width,
					     .height = height, .ctx = stream->context};
	SIM_TRY(fill_make(&params, stream->context->device, &fill));
	if (stream_captures(stream)) {
		CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_MEMSET, .memset = params};
		free(fill);
		return capture_node(stream, &node, NULL);
	}
	if (!fill)
		return CUDA_SUCCESS;
	/* Only host memory is filled before the function returns. */
	return submit(stream, &fill->job, !(how & COPY_ASYNC) && fill->device < 0);
}
