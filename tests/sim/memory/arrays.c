/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays and mipmapped arrays.
 */
#include "check.h"

static struct simcard *page;

static void arrays_take_whole_frames(void)
{
	CUDA_ARRAY3D_DESCRIPTOR three = {.Width = 100, .Height = 60, .Depth = 10, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4}, got;
	CUDA_ARRAY_DESCRIPTOR two = {1000, 1000, CU_AD_FORMAT_UNSIGNED_INT8, 4}, got_two;
	CUDA_ARRAY_DESCRIPTOR one = {7, 0, CU_AD_FORMAT_HALF, 1};
	CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
	CUarray a, b, c, plane;
	uint64_t before;

	OK(cuArrayCreate_v2(&a, &one));
	EQUAL(FRAME, held(page, SIMCARD_ARRAY));
	before = held(page, SIMCARD_ARRAY);
	OK(cuArrayCreate_v2(&b, &two));
	CHECK(held(page, SIMCARD_ARRAY) - before >= 4000000 && held(page, SIMCARD_ARRAY) - before <= 3 * FRAME);
	before = held(page, SIMCARD_ARRAY);
	OK(cuArray3DCreate_v2(&c, &three));
	CHECK(held(page, SIMCARD_ARRAY) - before >= 100 * 60 * 10 * 16);
	OK(cuArray3DGetDescriptor_v2(&got, c));
	CHECK(memcmp(&got, &three, sizeof(got)) == 0);
	OK(cuArrayGetDescriptor_v2(&got_two, b));
	CHECK(got_two.Width == 1000 && got_two.NumChannels == 4);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuArrayGetMemoryRequirements(&needs, c, 0));
	FAILS(CUDA_ERROR_NOT_SUPPORTED, cuArrayGetPlane(&plane, c, 0));
	OK(cuArrayDestroy(a));
	OK(cuArrayDestroy(b));
	OK(cuArrayDestroy(c));
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(c));
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuArrayGetDescriptor_v2(&got_two, b));
	EQUAL(0, held(page, SIMCARD_ARRAY));
}

static void deferred_arrays_say_what_they_need(void)
{
	CUDA_ARRAY3D_DESCRIPTOR d = {.Width = 1000, .Height = 1000, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1,
				     .Flags = CUDA_ARRAY3D_DEFERRED_MAPPING};
	CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
	CUmipmappedArray mipmap;
	CUarray array;

	OK(cuArray3DCreate_v2(&array, &d));
	EQUAL(0, held(page, SIMCARD_ARRAY));
	OK(cuArrayGetMemoryRequirements(&needs, array, 0));
	OK(cuArrayDestroy(array));
	OK(cuMipmappedArrayCreate(&mipmap, &d, 3));
	EQUAL(0, held(page, SIMCARD_ARRAY));
	OK(cuMipmappedArrayGetMemoryRequirements(&needs, mipmap, 0));
	CHECK(needs.size >= 4000000 + 1000000);
	OK(cuMipmappedArrayDestroy(mipmap));
	d.Flags = 0;
	OK(cuMipmappedArrayCreate(&mipmap, &d, 3));
	EQUAL(needs.size, held(page, SIMCARD_ARRAY));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayGetMemoryRequirements(&needs, mipmap, 0));
	OK(cuMipmappedArrayDestroy(mipmap));
	EQUAL(0, held(page, SIMCARD_ARRAY));
}

static void levels_are_arrays(void)
{
	CUDA_ARRAY3D_DESCRIPTOR d = {.Width = 64, .Height = 16, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1}, of_level;
	CUmipmappedArray mipmap;
	CUarray level;

	OK(cuMipmappedArrayCreate(&mipmap, &d, 100));
	OK(cuMipmappedArrayGetLevel(&level, mipmap, 6));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayGetLevel(&level, mipmap, 7));
	OK(cuMipmappedArrayGetLevel(&level, mipmap, 5));
	OK(cuArray3DGetDescriptor_v2(&of_level, level));
	CHECK(of_level.Width == 2 && of_level.Height == 1);
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(level));
	OK(cuMipmappedArrayDestroy(mipmap));
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuArray3DGetDescriptor_v2(&of_level, level));
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuMipmappedArrayDestroy(mipmap));
}

static void what_is_written_can_be_read(void)
{
	CUDA_ARRAY_DESCRIPTOR d = {30, 20, CU_AD_FORMAT_UNSIGNED_INT8, 1};
	unsigned char out[600], in[600] = {0};
	CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = out, .srcPitch = 30, .dstMemoryType = CU_MEMORYTYPE_ARRAY,
			      .WidthInBytes = 30, .Height = 20};
	CUarray array;

	for (int i = 0; i < 600; i++)
		out[i] = (unsigned char)i;
	OK(cuArrayCreate_v2(&array, &d));
	copy.dstArray = array;
	OK(cuMemcpy2D_v2(&copy));
	copy = (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = array, .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = in,
			       .dstPitch = 30, .WidthInBytes = 30, .Height = 20};
	OK(cuMemcpy2D_v2(&copy));
	CHECK(memcmp(in, out, sizeof(in)) == 0);
	OK(cuArrayDestroy(array));
}

static void what_cannot_be_is_refused(void)
{
	static const struct {
		CUDA_ARRAY3D_DESCRIPTOR descriptor;
		CUresult result;
	} rows[] = {
		{{0, 0, 0, CU_AD_FORMAT_FLOAT, 1, 0}, CUDA_ERROR_INVALID_VALUE},
		{{8, 0, 8, CU_AD_FORMAT_FLOAT, 1, 0}, CUDA_ERROR_INVALID_VALUE},
		{{8, 8, 0, CU_AD_FORMAT_FLOAT, 3, 0}, CUDA_ERROR_INVALID_VALUE},
		{{8, 9, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP}, CUDA_ERROR_INVALID_VALUE},
		{{8, 8, 5, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP}, CUDA_ERROR_INVALID_VALUE},
		{{8, 8, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED}, CUDA_ERROR_INVALID_VALUE},
		{{8, 8, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE}, CUDA_ERROR_NOT_SUPPORTED},
		{{8, 8, 0, CU_AD_FORMAT_NV12, 1, 0}, CUDA_ERROR_NOT_SUPPORTED},
		{{1 << 30, 8, 0, CU_AD_FORMAT_FLOAT, 1, 0}, CUDA_ERROR_INVALID_VALUE},
		{{65536, 65536, 0, CU_AD_FORMAT_FLOAT, 4, 0}, CUDA_ERROR_OUT_OF_MEMORY},
	};
	CUarray array;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		FAILS(rows[i].result, cuArray3DCreate_v2(&array, &rows[i].descriptor));
	FAILS(CUDA_ERROR_INVALID_VALUE, cuArray3DCreate_v2(&array, NULL));
	EQUAL(0, held(page, SIMCARD_ARRAY));
}

int main(void)
{
	CUcontext context;

	page = card_page(0);
	context = new_context(0);
	arrays_take_whole_frames();
	deferred_arrays_say_what_they_need();
	levels_are_arrays();
	what_is_written_can_be_read();
	what_cannot_be_is_refused();
	OK(cuCtxDestroy_v2(context));
	BOOKS(page);
	return 0;
}
