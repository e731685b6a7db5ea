/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams, events, launches and copies.
 */
#include <pthread.h>
#include <sys/wait.h>

#include "work.h"

/* ---- order and times ------------------------------------------------------------------------- */

static void times_are_those_of_the_kernels(void)
{
	start();
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	hold(s);
	CUevent first = recorded(s);
	OK(launch(s, 2000000));
	CUevent second = recorded(s);
	OK(cuLaunchKernel(fixed, 64, 8, 2, 256, 1, 1, 0, s, NULL, NULL));
	CUevent third = recorded(s);
	GIVES(CUDA_ERROR_NOT_READY, cuEventQuery(third));
	GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
	float unused;
	GIVES(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&unused, first, third));
	let_go();
	OK(cuEventSynchronize(third));
	OK(cuEventQuery(third));
	OK(cuStreamQuery(s));
	CLOSE(between(first, second), 2.0F);
	CLOSE(between(second, third), 3.0F);
	CLOSE(between(third, first), -5.0F);
	/* Looking late does not make times later. */
	OK(launch(s, 40 * MS));
	OK(launch(s, 2 * MS));
	CUevent early = recorded(s);
	OK(launch(s, 3 * MS));
	CUevent late = recorded(s);
	usleep(60000);
	OK(cuEventQuery(late));
	CHECK(between(early, late) >= 3.0F && between(early, late) < 50.0F);
}

static void legacy_stream_comes_between_blocking_ones(void)
{
	start();
	CUstream a = stream(CU_STREAM_DEFAULT), b = stream(CU_STREAM_DEFAULT), apart = stream(CU_STREAM_NON_BLOCKING);
	hold(a);
	OK(launch(a, 2000000));
	CUevent after_a = recorded(a);
	OK(launch(NULL, 2000000));
	CUevent after_legacy = recorded(NULL);
	CUevent at_apart = recorded(apart);
	OK(launch(b, 1000000));
	CUevent after_b = recorded(b);
	OK(cuEventSynchronize(at_apart)); /* it does not wait for any of them */
	GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
	let_go();
	OK(cuCtxSynchronize());
	CLOSE(between(after_a, after_legacy), 2.0F);
	CLOSE(between(after_legacy, after_b), 1.0F);
}

static void blocking_streams_run_beside_each_other(void)
{
	start();
	CUstream a = stream(CU_STREAM_DEFAULT), b = stream(CU_STREAM_DEFAULT);
	hold(a);
	hold(b);
	for (int i = 0; i < 10; i++)
		OK(launch(a, 1000000));
	CUevent after_a = recorded(a);
	OK(launch(b, 1000000));
	CUevent after_b = recorded(b);
	let_go();
	OK(cuCtxSynchronize());
	CHECK(between(after_a, after_b) < -8.5F); /* streams take turns on the card */
}

static void urgent_streams_go_first(void)
{
	int least, greatest;
	start();
	OK(cuCtxGetStreamPriorityRange(&least, &greatest));
	CUstream ordinary, urgent;
	OK(cuStreamCreateWithPriority(&ordinary, CU_STREAM_NON_BLOCKING, least));
	OK(cuStreamCreateWithPriority(&urgent, CU_STREAM_NON_BLOCKING, greatest - 100));
	int priority;
	OK(cuStreamGetPriority(urgent, &priority));
	CHECK(priority == greatest);
	hold(ordinary);
	hold(urgent);
	OK(launch(ordinary, 1000000));
	OK(launch(urgent, 1000000));
	for (int i = 0; i < 5; i++) {
		OK(launch(ordinary, 1000000));
		OK(launch(urgent, 1000000));
	}
	CUevent after_urgent = recorded(urgent), after_ordinary = recorded(ordinary);
	let_go();
	OK(cuCtxSynchronize());
	/* Only what one of them has begun before the other is let go comes in between. */
	CHECK(between(after_urgent, after_ordinary) > 4.9F);
}

static void streams_wait_for_events(void)
{
	start();
	CUstream a = stream(CU_STREAM_NON_BLOCKING), b = stream(CU_STREAM_NON_BLOCKING);
	OK(cuStreamWaitEvent(b, event(), 0)); /* never recorded: nothing to wait for */
	hold(a);
	OK(launch(a, 3000000));
	CUevent e = event();
	OK(cuEventRecord(e, a));
	CUevent after_a = recorded(a);
	OK(cuStreamWaitEvent(b, e, 0));
	/* The next record does not concern who waits for this one. */
	OK(cuStreamWaitValue32(a, (CUdeviceptr)(uintptr_t)gate, 2, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuEventRecord(e, a));
	CUevent at_b = recorded(b);
	OK(cuEventDestroy_v2(e));
	GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(b));
	let_go();
	OK(cuEventSynchronize(at_b));
	GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(a));
	CLOSE(between(after_a, at_b), 0.0F);
	let_go();
	GIVES(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(e));
	OK(cuStreamSynchronize(a));
}

static void a_destroyed_stream_ends_its_work(void)
{
	start();
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	CUevent before = recorded(s);
	OK(launch(s, 3000000));
	CUevent after = recorded(s);
	OK(cuStreamDestroy_v2(s));
	GIVES(CUDA_ERROR_INVALID_HANDLE, launch(s, 1));
	GIVES(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(s));
	OK(cuEventSynchronize(after));
	CHECK(between(before, after) > 2.9F);
	/* Its memory is used again for another one. */
	CUstream other = stream(CU_STREAM_NON_BLOCKING);
	OK(cuStreamQuery(other));
	OK(launch(other, 1000));
	OK(cuStreamSynchronize(other));
}

static void a_full_queue_makes_launches_wait(void)
{
	start();
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	CUevent before = recorded(s);
	for (int i = 0; i < 20000; i++)
		OK(launch(s, 2000));
	CUevent after = recorded(s);
	OK(cuStreamSynchronize(s));
	CHECK(between(before, after) >= 40.0F);
}

/* ---- what streams are ------------------------------------------------------------------------- */

static void streams_say_what_they_are(void)
{
	unsigned flags;
	unsigned long long id, other;
	CUcontext of;
	CUdevice device;
	start();
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	OK(cuStreamGetFlags(s, &flags));
	CHECK(flags == CU_STREAM_NON_BLOCKING);
	OK(cuStreamGetFlags(CU_STREAM_PER_THREAD, &flags));
	CHECK(flags == CU_STREAM_DEFAULT);
	OK(cuStreamGetCtx(s, &of));
	CHECK(of == context);
	OK(cuStreamGetDevice(s, &device));
	CHECK(device == 0);
	OK(cuStreamGetId(NULL, &id));
	OK(cuStreamGetId(CU_STREAM_LEGACY, &other));
	CHECK(id == other);
	OK(cuStreamGetId_ptsz(NULL, &id));
	CHECK(id != other);
	OK(cuStreamGetId(CU_STREAM_PER_THREAD, &other));
	CHECK(id == other);
	GIVES(CUDA_ERROR_INVALID_HANDLE, cuStreamGetId((CUstream)&id, &id));
	GIVES(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2(CU_STREAM_LEGACY));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(&s, 2));
}

static void *thread_work(void *argument)
{
	unsigned long long *id = argument;
	OK(cuCtxSetCurrent(context));
	OK(cuStreamGetId(CU_STREAM_PER_THREAD, id));
	OK(launch(CU_STREAM_PER_THREAD, 2000000));
	return NULL; /* the stream ends with the thread, its work does not */
}

static void each_thread_has_its_stream(void)
{
	pthread_t thread;
	unsigned long long mine, other;
	start();
	OK(cuStreamGetId(CU_STREAM_PER_THREAD, &mine));
	CHECK(pthread_create(&thread, NULL, thread_work, &other) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(mine != other);
	/* Per-thread streams and the legacy stream follow each other. */
	CUevent after = recorded(NULL);
	OK(cuEventSynchronize(after));
	OK(cuCtxSynchronize());
}

/* ---- launches ---------------------------------------------------------------------------------- */

static void wrong_launches_are_refused(void)
{
	uint64_t none = 0, endless = UINT64_MAX;
	void *parameters[] = {&none}, *too_long[] = {&endless}, *missing[] = {NULL};
	start();
	GIVES(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(spin, 0, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(spin, 1, 65536, 1, 1, 1, 1, 0, NULL, parameters, NULL));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(spin, 1, 1, 1, 1025, 1, 1, 0, NULL, parameters, NULL));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(spin, 1, 1, 1, 64, 64, 1, 0, NULL, parameters, NULL));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 1 << 20, NULL, parameters, NULL));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, missing, NULL));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, too_long, NULL));
	GIVES(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel((CUfunction)context, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
	GIVES(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, cuLaunchCooperativeKernel(spin, 1 << 20, 1, 1, 1024, 1, 1, 0, NULL, parameters));
	CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT};
	CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, NULL, &attribute, 1};
	GIVES(CUDA_ERROR_NOT_SUPPORTED, cuLaunchKernelEx(&config, spin, parameters, NULL));
	OK(cuCtxSynchronize());
}

static void every_way_to_launch_takes_its_time(void)
{
	uint64_t time = 1000000;
	size_t size = sizeof(time);
	void *parameters[] = {&time};
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &time, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
	start();
	CUstream s = stream(CU_STREAM_DEFAULT);
	hold(s);
	CUevent before = recorded(s);
	OK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, s, NULL, extra));
	OK(cuLaunchKernel_ptsz(spin, 1, 1, 1, 1, 1, 1, 0, s, parameters, NULL));
	CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value = {.cooperative = 1}};
	CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, s, &attribute, 1};
	OK(cuLaunchKernelEx(&config, spin, parameters, NULL));
	OK(cuLaunchCooperativeKernel(spin, 1, 1, 1, 1, 1, 1, 0, s, parameters));
	CUDA_LAUNCH_PARAMS one = {spin, 1, 1, 1, 1, 1, 1, 0, s, parameters};
	OK(cuLaunchCooperativeKernelMultiDevice(&one, 1, 0));
	OK(cuFuncSetBlockShape(spin, 32, 1, 1));
	OK(cuParamSetv(spin, 0, &time, sizeof(time)));
	OK(cuParamSetSize(spin, sizeof(time)));
	OK(cuLaunchGridAsync(spin, 4, 4, s));
	CUevent after = recorded(s);
	OK(cuLaunchGrid(spin, 1, 1));
	OK(cuLaunch(spin));
	CUevent legacy = recorded(NULL);
	let_go();
	OK(cuEventSynchronize(legacy));
	CLOSE(between(before, after), 6.0F);
	CLOSE(between(after, legacy), 2.0F);
}

/* ---- the host ------------------------------------------------------------------------------------ */

static int order[64], ordered;

static void note(void *argument)
{
	order[ordered++] = (int)(intptr_t)argument;
}

static void host_functions_run_in_order(void)
{
	start();
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	for (intptr_t i = 0; i < 20; i++) {
		OK(launch(s, 100000));
		OK(cuLaunchHostFunc(s, note, (void *)i));
	}
	OK(cuStreamSynchronize(s));
	CHECK(ordered == 20);
	for (int i = 0; i < 20; i++)
		CHECK(order[i] == i);
}

static CUevent waited_for;

static void call_back(CUstream in, CUresult status, void *argument)
{
	CHECK(in == argument && status == CUDA_SUCCESS);
	GIVES(CUDA_ERROR_NOT_PERMITTED, cuEventSynchronize(waited_for));
	note(NULL);
}

static void callbacks_may_not_wait(void)
{
	start();
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	waited_for = recorded(s);
	OK(launch(s, 1000000));
	OK(cuStreamAddCallback(s, call_back, s, 0));
	CUevent after = recorded(s);
	OK(cuEventSynchronize(after));
	CHECK(ordered == 1);
	CHECK(between(waited_for, after) >= 1.0F);
}

/* ---- values ---------------------------------------------------------------------------------------- */

static void streams_wait_for_values(void)
{
	uint32_t *host;
	CUdeviceptr memory;
	start();
	CUstream a = stream(CU_STREAM_NON_BLOCKING), b = stream(CU_STREAM_NON_BLOCKING);
	OK(cuMemHostAlloc((void **)&host, 64, CU_MEMHOSTALLOC_DEVICEMAP));
	OK(cuMemAlloc_v2(&memory, 64));
	OK(cuMemsetD32_v2(memory, 0, 16));
	*host = 0;
	OK(cuStreamWaitValue32(a, (CUdeviceptr)(uintptr_t)host, 7, CU_STREAM_WAIT_VALUE_GEQ));
	OK(cuStreamWriteValue64(a, memory, 1ull << 40, CU_STREAM_WRITE_VALUE_DEFAULT));
	OK(cuStreamWaitValue64(b, memory, 1ull << 40, CU_STREAM_WAIT_VALUE_EQ));
	CUevent at_b = recorded(b);
	usleep(5000);
	GIVES(CUDA_ERROR_NOT_READY, cuEventQuery(at_b));
	__atomic_store_n(host, 8, __ATOMIC_SEQ_CST);
	OK(cuEventSynchronize(at_b));
	uint64_t value;
	OK(cuMemcpyDtoH_v2(&value, memory, sizeof(value)));
	CHECK(value == 1ull << 40);
	CUstreamBatchMemOpParams batch[] = {
		{.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = memory, .value = 3}},
		{.memoryBarrier = {.operation = CU_STREAM_MEM_OP_BARRIER}},
		{.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32, .address = memory, .value = 1, .flags = CU_STREAM_WAIT_VALUE_AND}},
	};
	OK(cuStreamBatchMemOp_v2(a, 3, batch, 0));
	OK(cuStreamSynchronize(a));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32(a, memory + 2, 1, 0));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32(a, 4096, 1, 0));
}

/* ---- copies ------------------------------------------------------------------------------------------ */

static void copies_follow_the_stream(void)
{
	enum { BYTES = 8 << 20 };
	unsigned char *host, *back;
	CUdeviceptr memory;
	start();
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	OK(cuMemHostAlloc((void **)&host, BYTES, 0));
	OK(cuMemHostAlloc((void **)&back, BYTES, 0));
	OK(cuMemAlloc_v2(&memory, BYTES));
	memset(host, 1, BYTES);
	hold(s);
	OK(cuMemcpyHtoDAsync_v2(memory, host, BYTES, s));
	CUevent before = recorded(s);
	OK(cuMemcpyDtoHAsync_v2(back, memory, BYTES, s));
	CUevent after = recorded(s);
	OK(cuMemsetD8Async(memory, 9, 4096, s));
	OK(cuMemsetD16Async(memory, 0x0203, 3, s));
	OK(cuMemsetD32Async(memory + 8, 0x04050607, 1, s));
	OK(cuMemcpyDtoHAsync_v2(back + 4096, memory, 16, s));
	CHECK(back[0] == 0 && back[BYTES - 1] == 0);
	let_go();
	OK(cuStreamSynchronize(s));
	static const unsigned char wanted[16] = {3, 2, 3, 2, 3, 2, 9, 9, 7, 6, 5, 4, 9, 9, 9, 9};
	CHECK(back[0] == 1 && back[BYTES - 1] == 1 && !memcmp(back + 4096, wanted, 16));
	/* 24 GB/s by default */
	CHECK(between(before, after) >= BYTES / 24e6F - 0.001F);
}

static void pageable_memory_is_read_at_once(void)
{
	unsigned char small[64], *large = malloc(4 << 20), *back = calloc(1, 4 << 20);
	CUdeviceptr memory;
	start();
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	OK(cuMemAlloc_v2(&memory, 8 << 20));
	memset(small, 5, sizeof(small));
	memset(large, 6, 4 << 20);
	OK(launch(s, 2000000));
	OK(cuMemcpyHtoDAsync_v2(memory, small, sizeof(small), s));
	OK(cuMemcpyHtoDAsync_v2(memory + (4 << 20), large, 4 << 20, s));
	memset(small, 0, sizeof(small));
	memset(large, 0, 4 << 20);
	OK(cuMemcpyDtoHAsync_v2(back, memory, sizeof(small), s));
	CHECK(back[0] == 5 && back[63] == 5);
	OK(cuMemcpyDtoH_v2(back, memory + (4 << 20), 4 << 20));
	CHECK(back[0] == 6 && back[(4 << 20) - 1] == 6);
	free(large);
	free(back);
}

static void copies_have_up_to_three_dimensions(void)
{
	unsigned char host[4 * 5 * 6], back[4 * 5 * 6];
	CUdeviceptr memory;
	start();
	for (unsigned i = 0; i < sizeof(host); i++)
		host[i] = (unsigned char)i;
	OK(cuMemAlloc_v2(&memory, 1 << 20));
	/* 4 wide, 5 high, 6 deep; to rows of 16 and slices of 8 rows */
	CUDA_MEMCPY3D to = {
		.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = host, .srcPitch = 4, .srcHeight = 5,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = memory, .dstPitch = 16, .dstHeight = 8, .dstXInBytes = 2, .dstY = 1,
		.WidthInBytes = 4, .Height = 5, .Depth = 6,
	};
	OK(cuMemcpy3D_v2(&to));
	OK(cuMemcpyDtoH_v2(back, memory + 2 + 16 + 3 * 128 + 2 * 16, 4));
	CHECK(!memcmp(back, host + 3 * 20 + 2 * 4, 4));
	CUDA_MEMCPY3D from = {
		.dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = back, .dstPitch = 4, .dstHeight = 5,
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = memory, .srcPitch = 16, .srcHeight = 8, .srcXInBytes = 2, .srcY = 1,
		.WidthInBytes = 4, .Height = 5, .Depth = 6,
	};
	OK(cuMemcpy3D_v2(&from));
	CHECK(!memcmp(back, host, sizeof(host)));
	CUDA_MEMCPY2D two = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = memory, .srcPitch = 16, .srcXInBytes = 2, .srcY = 1,
		.dstMemoryType = CU_MEMORYTYPE_UNIFIED, .dstDevice = (CUdeviceptr)(uintptr_t)back, .dstPitch = 4,
		.WidthInBytes = 4, .Height = 5,
	};
	memset(back, 0, sizeof(back));
	OK(cuMemcpy2D_v2(&two));
	CHECK(!memcmp(back, host, 20) && back[20] == 0);
	two.srcPitch = 5;
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&two));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(memory + (1 << 21), host, 1));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(memory + 1, 0, 1));
	OK(cuMemsetD2D16_v2(memory, 64, 0x0101, 4, 3));
	OK(cuMemcpy((CUdeviceptr)(uintptr_t)back, memory + 128, 8));
	CHECK(back[0] == 1 && back[7] == 1);
}

static void copies_reach_arrays(void)
{
	float host[16 * 4], back[16 * 4];
	CUarray array, line;
	CUdeviceptr memory;
	CUDA_ARRAY_DESCRIPTOR plane = {16, 4, CU_AD_FORMAT_FLOAT, 1}, row = {16, 0, CU_AD_FORMAT_FLOAT, 1};
	start();
	for (int i = 0; i < 64; i++)
		host[i] = (float)i;
	OK(cuArrayCreate_v2(&array, &plane));
	OK(cuArrayCreate_v2(&line, &row));
	OK(cuMemAlloc_v2(&memory, sizeof(host)));
	CUDA_MEMCPY2D to = {
		.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = host, .srcPitch = 64, .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = array,
		.WidthInBytes = 64, .Height = 4,
	};
	OK(cuMemcpy2D_v2(&to));
	CUDA_MEMCPY2D from = {
		.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = array, .srcXInBytes = 8, .srcY = 1, .dstMemoryType = CU_MEMORYTYPE_HOST,
		.dstHost = back, .dstPitch = 56, .WidthInBytes = 56, .Height = 2,
	};
	OK(cuMemcpy2D_v2(&from));
	CHECK(back[0] == 18 && back[13] == 31 && back[14] == 34);
	from.Height = 4;
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&from));
	OK(cuMemcpyHtoA_v2(line, 4, host, 8));
	OK(cuMemcpyAtoD_v2(memory, line, 4, 8));
	OK(cuMemcpyDtoA_v2(line, 16, memory, 8));
	OK(cuMemcpyAtoH_v2(back, line, 16, 8));
	CHECK(back[0] == 0 && back[1] == 1);
}

/* ---- two cards -------------------------------------------------------------------------------------------- */

static void events_order_streams_of_two_cards(void)
{
	CUcontext second;
	CUdeviceptr here, there;
	unsigned value = 0;
	float unused;
	start();
	CUstream a = stream(CU_STREAM_NON_BLOCKING);
	CUevent before = recorded(a);
	OK(cuMemAlloc_v2(&here, 4));
	hold(a);
	OK(launch(a, 5000000));
	OK(cuMemsetD32Async(here, 77, 1, a));
	CUevent after = recorded(a);
	OK(cuCtxCreate_v2(&second, 0, 1));
	CUstream b = stream(CU_STREAM_NON_BLOCKING);
	OK(cuMemAlloc_v2(&there, 4));
	OK(cuStreamWaitEvent(b, after, 0));
	OK(cuMemcpyPeerAsync(there, second, here, context, 4, b));
	OK(cuLaunchHostFunc(b, note, NULL));
	CUevent end = recorded(b);
	CHECK(ordered == 0);
	let_go();
	OK(cuEventSynchronize(end));
	CHECK(ordered == 1);
	OK(cuEventQuery(after));
	CHECK(between(before, after) >= 5.0F);
	GIVES(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&unused, before, end));
	OK(cuMemcpyDtoH_v2(&value, there, 4));
	CHECK(value == 77);
	GIVES(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(end, a));
}

/* ---- ending ---------------------------------------------------------------------------------------------- */

static void contexts_end_with_work(void)
{
	start();
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	CUevent e = event();
	OK(launch(s, 3000000));
	OK(cuEventRecord(e, s));
	OK(launch(CU_STREAM_PER_THREAD, 1000000));
	OK(cuCtxDestroy_v2(context));
	GIVES(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(e));
	start();
	OK(launch(CU_STREAM_PER_THREAD, 1000));
	OK(launch(NULL, 1000));
	OK(cuCtxSynchronize());
	OK(cuCtxDestroy_v2(context));
}

static void a_primary_context_can_be_reset(void)
{
	CUmodule module;
	OK(cuInit(0));
	for (int i = 0; i < 3; i++) {
		OK(cuDevicePrimaryCtxRetain(&context, 0));
		OK(cuCtxSetCurrent(context));
		OK(cuModuleLoadData(&module, ".version 7.0\n.target sm_50\n.address_size 64\n"
					     ".visible .entry spin(.param .u64 nanoseconds)\n{\n\tret;\n}\n"));
		OK(cuModuleGetFunction(&spin, module, "spin"));
		OK(launch(CU_STREAM_PER_THREAD, 100000));
		OK(launch(NULL, 100000));
		OK(cuDevicePrimaryCtxReset_v2(0));
		OK(cuDevicePrimaryCtxRelease_v2(0));
	}
}

static void exit_while_busy(void)
{
	start();
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	for (int i = 0; i < 100; i++)
		OK(launch(s, 1000000000));
	OK(cuLaunchHostFunc(NULL, note, NULL));
	exit(0);
}

static void a_forked_child_is_refused(void)
{
	start();
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	CUevent e = recorded(s);
	OK(launch(s, 20000000));
	pid_t child = fork();
	if (child == 0) {
		GIVES(CUDA_ERROR_NOT_INITIALIZED, launch(s, 1));
		GIVES(CUDA_ERROR_NOT_INITIALIZED, cuStreamSynchronize(s));
		GIVES(CUDA_ERROR_NOT_INITIALIZED, cuEventSynchronize(e));
		GIVES(CUDA_ERROR_NOT_INITIALIZED, cuCtxSynchronize());
		_Exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	OK(cuStreamSynchronize(s));
}

/* ---- many threads ---------------------------------------------------------------------------------------- */

static void *hammer(void *argument)
{
	CUstream shared = argument;
	OK(cuCtxSetCurrent(context));
	CUstream own = stream(CU_STREAM_DEFAULT);
	CUevent e = event();
	for (int i = 0; i < 200; i++) {
		OK(launch(i % 3 ? own : shared, 2000));
		OK(cuEventRecord(e, i % 2 ? own : shared));
		if (i % 5 == 0)
			OK(cuStreamWaitEvent(own, e, 0));
		if (i % 20 == 0)
			OK(launch(NULL, 1000));
		if (i % 50 == 0)
			OK(cuEventSynchronize(e));
		cuStreamQuery(shared);
	}
	OK(cuStreamSynchronize(own));
	OK(cuStreamDestroy_v2(own));
	OK(cuEventDestroy_v2(e));
	return NULL;
}

static void threads_share_streams(void)
{
	pthread_t thread[8];
	start();
	CUstream shared = stream(CU_STREAM_DEFAULT);
	for (int i = 0; i < 8; i++)
		CHECK(pthread_create(&thread[i], NULL, hammer, shared) == 0);
	for (int i = 0; i < 8; i++)
		CHECK(pthread_join(thread[i], NULL) == 0);
	OK(cuCtxSynchronize());
}

#define TEST(name) {#name, name}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(times_are_those_of_the_kernels),
		TEST(legacy_stream_comes_between_blocking_ones),
		TEST(blocking_streams_run_beside_each_other),
		TEST(urgent_streams_go_first),
		TEST(streams_wait_for_events),
		TEST(a_destroyed_stream_ends_its_work),
		TEST(a_full_queue_makes_launches_wait),
		TEST(streams_say_what_they_are),
		TEST(each_thread_has_its_stream),
		TEST(wrong_launches_are_refused),
		TEST(every_way_to_launch_takes_its_time),
		TEST(host_functions_run_in_order),
		TEST(callbacks_may_not_wait),
		TEST(streams_wait_for_values),
		TEST(copies_follow_the_stream),
		TEST(pageable_memory_is_read_at_once),
		TEST(copies_have_up_to_three_dimensions),
		TEST(copies_reach_arrays),
		TEST(events_order_streams_of_two_cards),
		TEST(contexts_end_with_work),
		TEST(a_primary_context_can_be_reset),
		TEST(exit_while_busy),
		TEST(a_forked_child_is_refused),
		TEST(threads_share_streams),
		{NULL, NULL},
	};
	return run_test(tests, argc, argv);
}
