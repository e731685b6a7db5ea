/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays and mipmapped arrays. Each takes whole frames. Its layout is plain rows, which
 * programs cannot see. Sparse arrays and formats of more than one plane are not
 * modelled.
 */
#include <stdlib.h>
#include <string.h>

#include "memory.h"

/* What rows are a multiple of. */
#define ROW_UNIT 512u
#define LEVELS_MAX 20u
#define FLAGS                                                                                                          \
	(CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER |       \
	 CUDA_ARRAY3D_DEPTH_TEXTURE | CUDA_ARRAY3D_COLOR_ATTACHMENT | CUDA_ARRAY3D_DEFERRED_MAPPING)

struct CUmipmappedArray_st {
	struct sim_handle handle;
	struct CUctx_st *context;
	CUDA_ARRAY3D_DESCRIPTOR descriptor;
	unsigned levels;
	struct CUarray_st *level[LEVELS_MAX];
	uint64_t size;
	struct sim_block *block; /* NULL: mapping is deferred */
	struct sim_link link;
};

/* Bytes of one channel, 0: not modelled. */
static size_t format_size(CUarray_format format)
{
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return 1;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4;
	default:
		return 0;
	}
}

static CUresult check_descriptor(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	unsigned channels = d->NumChannels;
	bool layered = d->Flags & CUDA_ARRAY3D_LAYERED;

	SIM_INVALID_IF(channels != 1 && channels != 2 && channels != 4);
	if (format_size(d->Format) == 0 || (d->Flags & ~(unsigned)FLAGS))
		return CUDA_ERROR_NOT_SUPPORTED;
	SIM_INVALID_IF(d->Width == 0 || (layered && d->Depth == 0) || (d->Depth > 0 && d->Height == 0 && !layered));
	if (d->Flags & CUDA_ARRAY3D_CUBEMAP)
		SIM_INVALID_IF(d->Width != d->Height || d->Depth == 0 || d->Depth % 6 != 0 || (!layered && d->Depth != 6));
	SIM_INVALID_IF(d->Width > 131072 || d->Height > 65536 || d->Depth > 16384);
	return CUDA_SUCCESS;
}

/* Fills in how an array is laid out. */
static void lay_out(struct CUarray_st *array, struct CUctx_st *context, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	array->context = context;
	array->descriptor = *d;
	array->element = d->NumChannels * format_size(d->Format);
	array->pitch = sim_round_up(d->Width * array->element, ROW_UNIT);
	array->slice = array->pitch * (d->Height ? d->Height : 1);
	array->size = array->slice * (d->Depth ? d->Depth : 1);
}

static CUresult create(CUarray *result, const CUDA_ARRAY3D_DESCRIPTOR *d, struct CUctx_st *context)
{
	struct CUarray_st *array;
	CUresult outcome = CUDA_SUCCESS;

	SIM_TRY(check_descriptor(d));
	SIM_TRY(engine_may_block(context));
	array = sim_new(SIM_ARRAY, sizeof(*array));
	if (!array)
		return CUDA_ERROR_OUT_OF_MEMORY;
	lay_out(array, context, d);
	pthread_mutex_lock(&sim_memory_lock);
	if (!(d->Flags & CUDA_ARRAY3D_DEFERRED_MAPPING))
		outcome = sim_block_make(context->device, SIMCARD_ARRAY, array->size, true, &array->block);
	if (outcome == CUDA_SUCCESS) {
		if (array->block)
			array->data = (uint8_t *)(uintptr_t)array->block->address;
		sim_list_add(&context->memory->arrays, &array->link);
		*result = array;
	} else {
		sim_delete(array);
	}
	pthread_mutex_unlock(&sim_memory_lock);
	return outcome;
}

CUresult cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
	SIM_CONTEXT_ENTER(context);
	SIM_INVALID_IF(!pHandle || !pAllocateArray);
	return create(pHandle, pAllocateArray, context);
}

CUresult cuArray3DCreate(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *pAllocateArray)
{
	SIM_CONTEXT_ENTER(context);
	SIM_INVALID_IF(!pHandle || !pAllocateArray);
	return create(pHandle,
		      &(CUDA_ARRAY3D_DESCRIPTOR){
			      .Width = pAllocateArray->Width,
			      .Height = pAllocateArray->Height,
			      .Depth = pAllocateArray->Depth,
			      .Format = pAllocateArray->Format,
			      .NumChannels = pAllocateArray->NumChannels,
			      .Flags = pAllocateArray->Flags,
		      },
		      context);
}

CUresult cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
	SIM_CONTEXT_ENTER(context);
	SIM_INVALID_IF(!pHandle || !pAllocateArray);
	return create(pHandle,
		      &(CUDA_ARRAY3D_DESCRIPTOR){
			      .Width = pAllocateArray->Width,
			      .Height = pAllocateArray->Height,
			      .Format = pAllocateArray->Format,
			      .NumChannels = pAllocateArray->NumChannels,
		      },
		      context);
}

CUresult cuArrayCreate(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR_v1 *pAllocateArray)
{
	SIM_CONTEXT_ENTER(context);
	SIM_INVALID_IF(!pHandle || !pAllocateArray);
	return create(pHandle,
		      &(CUDA_ARRAY3D_DESCRIPTOR){
			      .Width = pAllocateArray->Width,
			      .Height = pAllocateArray->Height,
			      .Format = pAllocateArray->Format,
			      .NumChannels = pAllocateArray->NumChannels,
		      },
		      context);
}

static CUresult check(CUarray array)
{
	SIM_ENTER();
	return sim_is(array, SIM_ARRAY) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static void delete_array(struct CUarray_st *array)
{
	sim_list_remove(&array->link);
	sim_block_free(array->block);
	sim_delete(array);
}

CUresult cuArrayDestroy(CUarray hArray)
{
	SIM_TRY(check(hArray));
	/* A level ends with its mipmapped array. */
	if (hArray->level_of)
		return CUDA_ERROR_INVALID_HANDLE;
	SIM_TRY(engine_may_block(hArray->context));
	SIM_TRY(engine_device_wait(hArray->context->device));
	pthread_mutex_lock(&sim_memory_lock);
	delete_array(hArray);
	pthread_mutex_unlock(&sim_memory_lock);
	return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
	SIM_TRY(check(hArray));
	SIM_INVALID_IF(!pArrayDescriptor);
	*pArrayDescriptor = hArray->descriptor;
	return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1 *pArrayDescriptor, CUarray hArray)
{
	SIM_TRY(check(hArray));
	SIM_INVALID_IF(!pArrayDescriptor);
	*pArrayDescriptor = (CUDA_ARRAY3D_DESCRIPTOR_v1){
		.Width = (unsigned)hArray->descriptor.Width,
		.Height = (unsigned)hArray->descriptor.Height,
		.Depth = (unsigned)hArray->descriptor.Depth,
		.Format = hArray->descriptor.Format,
		.NumChannels = hArray->descriptor.NumChannels,
		.Flags = hArray->descriptor.Flags,
	};
	return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
	SIM_TRY(check(hArray));
	SIM_INVALID_IF(!pArrayDescriptor);
	*pArrayDescriptor = (CUDA_ARRAY_DESCRIPTOR){
		.Width = hArray->descriptor.Width,
		.Height = hArray->descriptor.Height,
		.Format = hArray->descriptor.Format,
		.NumChannels = hArray->descriptor.NumChannels,
	};
	return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1 *pArrayDescriptor, CUarray hArray)
{
	SIM_TRY(check(hArray));
	SIM_INVALID_IF(!pArrayDescriptor);
	*pArrayDescriptor = (CUDA_ARRAY_DESCRIPTOR_v1){
		.Width = (unsigned)hArray->descriptor.Width,
		.Height = (unsigned)hArray->descriptor.Height,
		.Format = hArray->descriptor.Format,
		.NumChannels = hArray->descriptor.NumChannels,
	};
	return CUDA_SUCCESS;
}

/* Only of arrays whose mapping is deferred, as it is documented. */
static CUresult requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *needs, uint64_t size, unsigned flags, CUdevice device)
{
	SIM_INVALID_IF(!needs || !(flags & CUDA_ARRAY3D_DEFERRED_MAPPING));
	if (!sim_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*needs = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = sim_round_up(size, SIM_FRAME), .alignment = SIM_FRAME};
	return CUDA_SUCCESS;
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements, CUarray array, CUdevice device)
{
	SIM_TRY(check(array));
	return requirements(memoryRequirements, array->size, array->descriptor.Flags, device);
}

/* ---- mipmapped arrays ----------------------------------------------------------------- */

static uint64_t halved(uint64_t extent, unsigned level)
{
	if (extent == 0)
		return 0;
	return extent >> level ? extent >> level : 1;
}

static CUDA_ARRAY3D_DESCRIPTOR level_descriptor(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned level)
{
	CUDA_ARRAY3D_DESCRIPTOR of_level = *d;

	of_level.Width = halved(d->Width, level);
	of_level.Height = halved(d->Height, level);
	/* Layers and faces do not become fewer. */
	if (!(d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)))
		of_level.Depth = halved(d->Depth, level);
	return of_level;
}

/* As many levels as there are until all extents are 1. */
static unsigned levels_of(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned asked)
{
	uint64_t largest = d->Width > d->Height ? d->Width : d->Height;
	unsigned levels = 1;

	if (!(d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) && d->Depth > largest)
		largest = d->Depth;
	while (largest >> levels)
		levels++;
	return asked < levels ? asked : levels;
}

static void delete_mipmap(struct CUmipmappedArray_st *mipmap)
{
	sim_list_remove(&mipmap->link);
	for (unsigned i = 0; i < mipmap->levels; i++)
		sim_delete(mipmap->level[i]);
	sim_block_free(mipmap->block);
	sim_delete(mipmap);
}

static CUresult make_levels(struct CUmipmappedArray_st *mipmap)
{
	for (unsigned i = 0; i < mipmap->levels; i++) {
		CUDA_ARRAY3D_DESCRIPTOR d = level_descriptor(&mipmap->descriptor, i);
		struct CUarray_st *array = sim_new(SIM_ARRAY, sizeof(*array));

		if (!array)
			return CUDA_ERROR_OUT_OF_MEMORY;
		lay_out(array, mipmap->context, &d);
		array->level_of = mipmap;
		mipmap->level[i] = array;
		mipmap->size += array->size;
	}
	return CUDA_SUCCESS;
}

static CUresult fill(struct CUmipmappedArray_st *mipmap)
{
	uint8_t *data;

	SIM_TRY(make_levels(mipmap));
	if (mipmap->descriptor.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING)
		return CUDA_SUCCESS;
	SIM_TRY(sim_block_make(mipmap->context->device, SIMCARD_ARRAY, mipmap->size, true, &mipmap->block));
	data = (uint8_t *)(uintptr_t)mipmap->block->address;
	for (unsigned i = 0; i < mipmap->levels; i++) {
		mipmap->level[i]->data = data;
		data += mipmap->level[i]->size;
	}
	return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc, unsigned int numMipmapLevels)
{
	struct CUmipmappedArray_st *mipmap;
	CUresult result;

	SIM_CONTEXT_ENTER(context);
	SIM_INVALID_IF(!pHandle || !pMipmappedArrayDesc || numMipmapLevels == 0);
	SIM_TRY(check_descriptor(pMipmappedArrayDesc));
	SIM_TRY(engine_may_block(context));
	mipmap = sim_new(SIM_MIPMAP, sizeof(*mipmap));
	if (!mipmap)
		return CUDA_ERROR_OUT_OF_MEMORY;
	mipmap->context = context;
	mipmap->descriptor = *pMipmappedArrayDesc;
	mipmap->levels = levels_of(pMipmappedArrayDesc, numMipmapLevels);
	pthread_mutex_lock(&sim_memory_lock);
	result = fill(mipmap);
	if (result == CUDA_SUCCESS) {
		sim_list_add(&context->memory->mipmaps, &mipmap->link);
		*pHandle = mipmap;
	} else {
		delete_mipmap(mipmap);
	}
	pthread_mutex_unlock(&sim_memory_lock);
	return result;
}

static CUresult check_mipmap(CUmipmappedArray mipmap)
{
	SIM_ENTER();
	return sim_is(mipmap, SIM_MIPMAP) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
	SIM_TRY(check_mipmap(hMipmappedArray));
	SIM_TRY(engine_may_block(hMipmappedArray->context));
	SIM_TRY(engine_device_wait(hMipmappedArray->context->device));
	pthread_mutex_lock(&sim_memory_lock);
	delete_mipmap(hMipmappedArray);
	pthread_mutex_unlock(&sim_memory_lock);
	return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetLevel(CUarray *pLevelArray, CUmipmappedArray hMipmappedArray, unsigned int level)
{
	SIM_TRY(check_mipmap(hMipmappedArray));
	SIM_INVALID_IF(!pLevelArray || level >= hMipmappedArray->levels);
	*pLevelArray = hMipmappedArray->level[level];
	return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements, CUmipmappedArray mipmap, CUdevice device)
{
	SIM_TRY(check_mipmap(mipmap));
	return requirements(memoryRequirements, mipmap->size, mipmap->descriptor.Flags, device);
}

void sim_context_free_arrays(struct CUctx_st *context)
{
	struct sim_link *arrays = &context->memory->arrays;
	struct sim_link *mipmaps = &context->memory->mipmaps;

	while (arrays->next != arrays)
		delete_array(SIM_OF(arrays->next, struct CUarray_st, link));
	while (mipmaps->next != mipmaps)
		delete_mipmap(SIM_OF(mipmaps->next, struct CUmipmappedArray_st, link));
}
