/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs and captures.
 */
#include <pthread.h>

#include "work.h"

#define MIB ((size_t)1 << 20)

static CUstream s;

static void begin_test(void)
{
	start();
	s = stream(CU_STREAM_NON_BLOCKING);
}

static CUgraph graph(void)
{
	CUgraph made;
	OK(cuGraphCreate(&made, 0));
	return made;
}

static CUgraphNode kernel(CUgraph in, CUgraphNode after, uint64_t nanoseconds)
{
	CUgraphNode made;
	void *parameters[] = {&nanoseconds};
	CUDA_KERNEL_NODE_PARAMS params = {.func = spin, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1,
					  .blockDimZ = 1, .kernelParams = parameters};
	OK(cuGraphAddKernelNode_v2(&made, in, &after, after != NULL, &params));
	return made;
}

static CUgraphExec executable(CUgraph of)
{
	CUgraphExec made;
	OK(cuGraphInstantiateWithFlags(&made, of, 0));
	return made;
}

/* How long a launch takes on the card. */
static float time_of(CUgraphExec exec)
{
	float milliseconds;
	CUevent before = event(), after = event();
	hold(s);
	OK(cuEventRecord(before, s));
	OK(cuGraphLaunch(exec, s));
	OK(cuEventRecord(after, s));
	let_go();
	OK(cuStreamSynchronize(s));
	OK(cuEventElapsedTime(&milliseconds, before, after));
	return milliseconds;
}

static size_t nodes(CUgraph of)
{
	size_t count = 0;
	OK(cuGraphGetNodes(of, NULL, &count));
	return count;
}

/* ---- nodes ------------------------------------------------------------------------------------ */

static int noted[16], notes;

static void note(void *argument)
{
	noted[notes++] = (int)(intptr_t)argument;
}

static void nodes_run_in_the_order_of_their_edges(void)
{
	CUdeviceptr memory;
	uint32_t *host;
	begin_test();
	OK(cuMemAlloc_v2(&memory, 64));
	OK(cuMemHostAlloc((void **)&host, 64, 0));
	CUgraph g = graph();
	CUgraphNode fill, copy, work, hosts[2], empty, first[2];
	CUDA_MEMSET_NODE_PARAMS value = {.dst = memory, .value = 0x01020304, .elementSize = 4, .width = 4, .height = 1};
	CUDA_MEMCPY3D out = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = memory, .dstMemoryType = CU_MEMORYTYPE_HOST,
			     .dstHost = host, .WidthInBytes = 16, .Height = 1, .Depth = 1};
	/* Made in an order that is not theirs. */
	OK(cuGraphAddMemcpyNode(&copy, g, NULL, 0, &out, context));
	OK(cuGraphAddMemsetNode(&fill, g, NULL, 0, &value, context));
	OK(cuGraphAddDependencies(g, &fill, &copy, 1));
	work = kernel(g, NULL, 2000000);
	CUDA_HOST_NODE_PARAMS one = {note, (void *)1}, two = {note, (void *)2};
	OK(cuGraphAddHostNode(&hosts[1], g, &copy, 1, &two));
	OK(cuGraphAddHostNode(&hosts[0], g, &work, 1, &one));
	OK(cuGraphAddDependencies(g, &hosts[0], &fill, 1));
	OK(cuGraphAddEmptyNode(&empty, g, hosts, 2));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(g, &fill, &copy, 1)); /* again */
	size_t count = 2, edges = 0;
	OK(cuGraphGetRootNodes(g, first, &count));
	CHECK(count == 1 && first[0] == work);
	OK(cuGraphGetEdges(g, NULL, NULL, &edges));
	CHECK(nodes(g) == 6 && edges == 6);
	count = 2;
	OK(cuGraphNodeGetDependencies(empty, first, &count));
	CHECK(count == 2 && first[0] == hosts[0] && first[1] == hosts[1]);
	CUgraphExec exec = executable(g);
	OK(cuGraphDestroy(g)); /* the executable has all it needs */
	for (int i = 0; i < 2; i++) {
		memset(host, 0, 64);
		notes = 0;
		CHECK(time_of(exec) >= 2.0F);
		CHECK(host[0] == 0x01020304 && host[3] == 0x01020304 && host[4] == 0);
		CHECK(notes == 2 && noted[0] == 1 && noted[1] == 2);
	}
	OK(cuGraphExecDestroy(exec));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, s));
}

static void a_circle_cannot_run(void)
{
	CUgraphNode at = NULL;
	CUgraphExec exec;
	char log[64] = "x";
	begin_test();
	CUgraph g = graph();
	CUgraphNode a = kernel(g, NULL, 1), b = kernel(g, a, 1);
	OK(cuGraphAddDependencies(g, &b, &a, 1));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate_v2(&exec, g, &at, log, sizeof(log)));
	CHECK((at == a || at == b) && log[0] == '\0');
	CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};
	GIVES(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithParams(&exec, g, &params));
	CHECK(params.result_out == CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE);
	OK(cuGraphRemoveDependencies(g, &b, &a, 1));
	OK(cuGraphInstantiateWithParams(&exec, g, &params));
	CHECK(params.result_out == CUDA_GRAPH_INSTANTIATE_SUCCESS);
	OK(cuGraphDestroyNode(a));
	CHECK(nodes(g) == 1);
	GIVES(CUDA_ERROR_INVALID_VALUE, cuGraphDestroyNode(a));
}

static void parameters_are_kept_and_given_back(void)
{
	CUgraphNodeType type;
	begin_test();
	CUgraph g = graph();
	uint64_t time = 3000000;
	unsigned more = 77;
	struct {
		uint64_t time;
		unsigned more;
	} packed = {time, more};
	size_t size = sizeof(packed);
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
	CUDA_KERNEL_NODE_PARAMS params = {.func = other, .gridDimX = 2, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 4, .blockDimY = 1,
					  .blockDimZ = 1, .extra = extra};
	CUgraphNode node, event_node;
	OK(cuGraphAddKernelNode_v2(&node, g, NULL, 0, &params));
	memset(&packed, 0xff, sizeof(packed));
	CUDA_KERNEL_NODE_PARAMS kept;
	OK(cuGraphKernelNodeGetParams_v2(node, &kept));
	CHECK(kept.func == other && kept.gridDimX == 2 && kept.blockDimX == 4 && !kept.extra);
	CHECK(*(uint64_t *)kept.kernelParams[0] == time && *(unsigned *)kept.kernelParams[1] == more);
	OK(cuGraphNodeGetType(node, &type));
	CHECK(type == CU_GRAPH_NODE_TYPE_KERNEL);
	CUgraphExec exec = executable(g);
	CLOSE(time_of(exec), 3.0F);
	/* What it was given back may be changed and given again. */
	*(uint64_t *)kept.kernelParams[0] = 1000000;
	OK(cuGraphExecKernelNodeSetParams_v2(exec, node, &kept));
	CLOSE(time_of(exec), 1.0F);
	OK(cuGraphKernelNodeSetParams_v2(node, &kept));
	CUevent e = event(), got;
	OK(cuGraphAddEventRecordNode(&event_node, g, &node, 1, e));
	OK(cuGraphEventRecordNodeGetEvent(event_node, &got));
	CHECK(got == e);
	GIVES(CUDA_ERROR_INVALID_VALUE, cuGraphEventWaitNodeGetEvent(event_node, &got));
	CUkernelNodeAttrValue attribute = {.priority = -3};
	OK(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &attribute));
	attribute.priority = 0;
	OK(cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &attribute));
	CHECK(attribute.priority == -3);
	/* Nodes can be switched off in the executable. */
	OK(cuGraphNodeSetEnabled(exec, node, 0));
	CLOSE(time_of(exec), 0.0F);
}

static void child_graphs_are_copies(void)
{
	begin_test();
	CUgraph outer = graph(), inner = graph(), inside;
	CUgraphNode first = kernel(outer, NULL, 1000000), child, kept[1];
	CUgraphNode work = kernel(inner, NULL, 2000000);
	OK(cuGraphAddChildGraphNode(&child, outer, &first, 1, inner));
	kernel(inner, work, 50000000); /* comes too late */
	OK(cuGraphDestroy(inner));
	OK(cuGraphChildGraphNodeGetGraph(child, &inside));
	size_t count = 1;
	OK(cuGraphGetNodes(inside, kept, &count));
	CHECK(count == 1 && kept[0] != work);
	GIVES(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(inside));
	CUgraphExec exec = executable(outer);
	CLOSE(time_of(exec), 3.0F);
	CUDA_KERNEL_NODE_PARAMS params;
	OK(cuGraphKernelNodeGetParams_v2(kept[0], &params));
	uint64_t longer = 4000000;
	void *parameters[] = {&longer};
	params.kernelParams = parameters;
	OK(cuGraphExecKernelNodeSetParams_v2(exec, kept[0], &params));
	CLOSE(time_of(exec), 5.0F);
	CUgraph copy;
	CUgraphNode found;
	OK(cuGraphClone(&copy, outer));
	OK(cuGraphNodeFindInClone(&found, first, copy));
	CHECK(found != first && nodes(copy) == 2);
	OK(cuGraphDestroy(outer));
	OK(cuGraphDestroy(copy));
}

static void executables_are_updated_after_other_graphs(void)
{
	begin_test();
	CUgraph g = graph(), same = graph(), different = graph();
	CUgraphNode a = kernel(g, NULL, 1000000);
	kernel(g, a, 1000000);
	a = kernel(same, NULL, 2000000);
	kernel(same, a, 3000000);
	kernel(different, NULL, 1);
	CUgraphNode b = kernel(different, NULL, 1);
	CUgraphExec exec = executable(g);
	CUgraphExecUpdateResultInfo info;
	OK(cuGraphExecUpdate_v2(exec, same, &info));
	CHECK(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
	CLOSE(time_of(exec), 5.0F);
	GIVES(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2(exec, different, &info));
	CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED && info.errorNode == b);
	CUgraphNode at;
	CUgraphExecUpdateResult result;
	kernel(different, b, 1);
	GIVES(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, different, &at, &result));
	CHECK(result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
	CLOSE(time_of(exec), 5.0F);
}

static void events_are_part_of_graphs(void)
{
	float milliseconds;
	begin_test();
	CUgraph g = graph();
	CUevent first = event(), second = event(), outside = event();
	CUgraphNode wait, node;
	OK(cuGraphAddEventWaitNode(&wait, g, NULL, 0, outside));
	OK(cuGraphAddEventRecordNode(&node, g, &wait, 1, first));
	node = kernel(g, node, 2000000);
	OK(cuGraphAddEventRecordNode(&node, g, &node, 1, second));
	CUgraphExec exec = executable(g);
	for (int i = 0; i < 2; i++) {
		CUstream elsewhere;
		OK(cuStreamCreate(&elsewhere, CU_STREAM_NON_BLOCKING));
		hold(elsewhere);
		OK(cuEventRecord(outside, elsewhere));
		OK(cuGraphLaunch(exec, s));
		let_go();
		OK(cuEventSynchronize(second));
		OK(cuEventElapsedTime(&milliseconds, first, second));
		CLOSE(milliseconds, 2.0F);
		OK(cuEventElapsedTime(&milliseconds, outside, first));
		CLOSE(milliseconds, 0.0F);
		OK(cuStreamDestroy_v2(elsewhere));
	}
}

static void launches_of_one_executable_follow_each_other(void)
{
	float milliseconds;
	CUstream t;
	begin_test();
	OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
	CUgraph g = graph();
	CUgraphNode work = kernel(g, NULL, 3000000);
	CUDA_HOST_NODE_PARAMS host = {note, NULL};
	OK(cuGraphAddHostNode(&work, g, &work, 1, &host));
	kernel(g, work, 1000000);
	CUgraphExec exec = executable(g);
	CUevent one = event(), two = event();
	OK(cuGraphLaunch(exec, s));
	OK(cuEventRecord(one, s));
	OK(cuGraphLaunch(exec, t));
	OK(cuEventRecord(two, t));
	OK(cuEventSynchronize(two));
	OK(cuEventElapsedTime(&milliseconds, one, two));
	CHECK(milliseconds >= 4.0F && notes == 2);
}

static void conditions_are_what_they_start_with(void)
{
	begin_test();
	for (unsigned value = 0; value < 3; value++) {
		CUgraph g = graph();
		CUgraphConditionalHandle handle;
		OK(cuGraphConditionalHandleCreate(&handle, g, context, value, CU_GRAPH_COND_ASSIGN_DEFAULT));
		CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
					    .conditional = {.handle = handle, .type = CU_GRAPH_COND_TYPE_SWITCH, .size = 2, .ctx = context}};
		CUgraphNode node;
		OK(cuGraphAddNode(&node, g, NULL, 0, &params));
		kernel(params.conditional.phGraph_out[0], NULL, 1000000);
		kernel(params.conditional.phGraph_out[1], NULL, 2000000);
		CLOSE(time_of(executable(g)), value < 2 ? (float)(value + 1) : 0.0F);
	}
	CUgraph g = graph();
	CUgraphConditionalHandle handle;
	OK(cuGraphConditionalHandleCreate(&handle, g, context, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
				    .conditional = {.handle = handle, .type = CU_GRAPH_COND_TYPE_WHILE, .size = 1, .ctx = context}};
	CUgraphNode node;
	CUgraphExec exec;
	OK(cuGraphAddNode(&node, g, NULL, 0, &params));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode(&node, g, NULL, 0, &params)); /* the handle has its node */
	GIVES(CUDA_ERROR_NOT_SUPPORTED, cuGraphInstantiateWithFlags(&exec, g, 0)); /* it would never end */
}

static void user_objects_live_as_long_as_graphs(void)
{
	CUuserObject object;
	begin_test();
	CUgraph g = graph(), copy;
	OK(cuUserObjectCreate(&object, (void *)5, note, 1, 1));
	OK(cuGraphRetainUserObject(g, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
	OK(cuGraphClone(&copy, g));
	OK(cuGraphDestroy(g));
	CHECK(notes == 0);
	OK(cuGraphDestroy(copy));
	CHECK(notes == 1 && noted[0] == 5);
	GIVES(CUDA_ERROR_INVALID_VALUE, cuUserObjectRelease(object, 1));
}

/* ---- memory ------------------------------------------------------------------------------------- */

static uint64_t graph_memory(CUgraphMem_attribute attribute)
{
	uint64_t value;
	OK(cuDeviceGetGraphMemAttribute(0, attribute, &value));
	return value;
}

static uint64_t free_memory(void)
{
	size_t left, total;
	OK(cuMemGetInfo_v2(&left, &total));
	return left;
}

static CUgraphNode allocate(CUgraph in, size_t bytes, CUdeviceptr *address)
{
	CUgraphNode node;
	CUDA_MEM_ALLOC_NODE_PARAMS params = {
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}}, .bytesize = bytes};
	OK(cuGraphAddMemAllocNode(&node, in, NULL, 0, &params));
	*address = params.dptr;
	CHECK(*address);
	return node;
}

static void memory_comes_with_the_first_launch(void)
{
	CUdeviceptr address, asked;
	CUgraphNode fill, freed;
	CUDA_MEM_ALLOC_NODE_PARAMS params;
	begin_test();
	uint64_t before = free_memory();
	CUgraph g = graph(), copy;
	CUgraphNode alloc = allocate(g, 5 * MIB, &address);
	CUDA_MEMSET_NODE_PARAMS value = {.dst = address, .value = 7, .elementSize = 1, .width = 5 * MIB, .height = 1};
	OK(cuGraphAddMemsetNode(&fill, g, &alloc, 1, &value, context));
	OK(cuGraphAddMemFreeNode(&freed, g, &fill, 1, address));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&freed, g, &fill, 1, address));
	OK(cuGraphMemAllocNodeGetParams(alloc, &params));
	CHECK(params.dptr == address && params.bytesize == 5 * MIB);
	OK(cuGraphMemFreeNodeGetParams(freed, &asked));
	CHECK(asked == address);
	GIVES(CUDA_ERROR_NOT_SUPPORTED, cuGraphClone(&copy, g));
	GIVES(CUDA_ERROR_NOT_SUPPORTED, cuGraphDestroyNode(fill));
	CUgraphExec exec = executable(g), second;
	GIVES(CUDA_ERROR_NOT_SUPPORTED, cuGraphInstantiateWithFlags(&second, g, 0));
	CHECK(free_memory() == before && graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 0);
	OK(cuGraphUpload(exec, s));
	CHECK(before - free_memory() == 6 * MIB && graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 6 * MIB);
	for (int i = 0; i < 3; i++)
		OK(cuGraphLaunch(exec, s));
	OK(cuStreamSynchronize(s));
	CHECK(before - free_memory() == 6 * MIB && graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 6 * MIB);
	/* It stays with the device until it is trimmed. */
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(g));
	CHECK(before - free_memory() == 6 * MIB && graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 0);
	OK(cuDeviceGraphMemTrim(0));
	CHECK(free_memory() == before && graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 0);
	CHECK(graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) == 6 * MIB);
	uint64_t zero = 0;
	OK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &zero));
	CHECK(graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) == 0);
}

static void memory_that_is_not_freed_stays_allocated(void)
{
	CUdeviceptr address;
	unsigned char byte;
	begin_test();
	CUgraph g = graph();
	allocate(g, MIB, &address);
	CUgraphExec exec = executable(g);
	OK(cuGraphLaunch(exec, s));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, s)); /* it is allocated still */
	OK(cuMemsetD8Async(address, 9, MIB, s));
	OK(cuDeviceGraphMemTrim(0)); /* not while it is */
	OK(cuMemcpyDtoHAsync_v2(&byte, address + MIB - 1, 1, s));
	OK(cuStreamSynchronize(s));
	CHECK(byte == 9);
	OK(cuMemFreeAsync(address, s));
	OK(cuGraphLaunch(exec, s));
	OK(cuMemFree_v2(address));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address));
	/* Another graph may free it. */
	OK(cuGraphLaunch(exec, s));
	CUgraph freeing = graph();
	CUgraphNode node;
	OK(cuGraphAddMemFreeNode(&node, freeing, NULL, 0, address));
	OK(cuGraphLaunch(executable(freeing), s));
	OK(cuGraphLaunch(exec, s));
	OK(cuStreamSynchronize(s));
	OK(cuGraphExecDestroy(exec));
	CHECK(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 2 * MIB);
	/* Or it is freed by its next launch. */
	CUgraphExec again;
	OK(cuMemFree_v2(address));
	OK(cuGraphInstantiateWithFlags(&again, g, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
	for (int i = 0; i < 3; i++)
		OK(cuGraphLaunch(again, s));
	OK(cuStreamSynchronize(s));
	OK(cuCtxDestroy_v2(context)); /* with all of it */
	CHECK(graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 0);
}

static void graphs_are_refused_what_is_not_there(void)
{
	CUdeviceptr address;
	begin_test();
	size_t left = free_memory();
	CUgraph big = graph(), small = graph();
	allocate(big, left + 2 * MIB, &address);
	CUgraphExec exec = executable(big);
	GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuGraphLaunch(exec, s));
	GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuGraphUpload(exec, s));
	allocate(small, 4 * MIB, &address);
	exec = executable(small);
	OK(cuGraphLaunch(exec, s));
	OK(cuMemFreeAsync(address, s));
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(small));
	CHECK(graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 4 * MIB);
	/* What another graph left is used when it is needed. */
	CUgraph large = graph();
	allocate(large, free_memory() + 2 * MIB, &address);
	OK(cuStreamSynchronize(s));
	OK(cuGraphLaunch(executable(large), s));
	OK(cuStreamSynchronize(s));
}

/* ---- captures --------------------------------------------------------------------------------------- */

static CUstreamCaptureStatus status_of(CUstream of)
{
	CUstreamCaptureStatus status;
	OK(cuStreamIsCapturing(of, &status));
	return status;
}

static void begin(CUstreamCaptureMode mode)
{
	OK(cuStreamBeginCapture_v2(s, mode));
	CHECK(status_of(s) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
}

static CUgraph end(void)
{
	CUgraph g;
	OK(cuStreamEndCapture(s, &g));
	CHECK(status_of(s) == CU_STREAM_CAPTURE_STATUS_NONE);
	return g;
}

static void work_in_a_capture_becomes_nodes(void)
{
	CUdeviceptr memory, temporary;
	unsigned char host[16] = {0};
	begin_test();
	OK(cuMemAlloc_v2(&memory, 16));
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	OK(launch(s, 1000000));
	OK(cuMemsetD8Async(memory, 4, 16, s));
	OK(cuMemcpyDtoHAsync_v2(host, memory, 16, s));
	OK(cuLaunchHostFunc(s, note, (void *)3));
	OK(cuMemAllocAsync(&temporary, 3 * MIB, s));
	OK(cuMemsetD8Async(temporary, 1, 3 * MIB, s));
	OK(cuMemFreeAsync(temporary, s));
	CUstreamCaptureStatus status;
	cuuint64_t id;
	CUgraph g;
	const CUgraphNode *before;
	size_t count;
	OK(cuStreamGetCaptureInfo_v2(s, &status, &id, &g, &before, &count));
	CHECK(id != 0 && count == 1 && nodes(g) == 7);
	CUgraphNodeType type;
	OK(cuGraphNodeGetType(before[0], &type));
	CHECK(type == CU_GRAPH_NODE_TYPE_MEM_FREE);
	CHECK(end() == g);
	CHECK(notes == 0 && host[0] == 0 && graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 0);
	CUgraphExec exec = executable(g);
	CHECK(time_of(exec) >= 1.0F);
	CHECK(notes == 1 && noted[0] == 3 && host[0] == 4 && host[15] == 4);
	CHECK(graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 4 * MIB);
}

static void captures_fork_and_join_by_events(void)
{
	CUstream t;
	CUgraph g;
	begin_test();
	OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
	CUevent fork = event(), join = event();
	begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	OK(launch(s, 1000));
	OK(cuEventRecord(fork, s));
	OK(cuStreamWaitEvent(t, fork, 0));
	CHECK(status_of(t) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
	OK(launch(t, 1000));
	OK(launch(s, 1000));
	OK(cuEventRecord(join, t));
	OK(cuStreamWaitEvent(s, join, 0));
	OK(launch(s, 1000));
	g = end();
	CHECK(status_of(t) == CU_STREAM_CAPTURE_STATUS_NONE);
	size_t edges = 0;
	OK(cuGraphGetEdges(g, NULL, NULL, &edges));
	CHECK(nodes(g) == 4 && edges == 4);
	/* An event of a capture means nothing outside. */
	GIVES(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(fork));
	GIVES(CUDA_ERROR_CAPTURED_EVENT, cuStreamWaitEvent(t, fork, 0));
	OK(cuEventRecord(fork, t));
	OK(cuEventSynchronize(fork));
	/* Without the join it fails. */
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	OK(cuEventRecord(fork, s));
	OK(cuStreamWaitEvent(t, fork, 0));
	OK(launch(t, 1000));
	GIVES(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(t, &g));
	GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &g));
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	OK(cuEventRecord(fork, s));
	OK(cuStreamWaitEvent(t, fork, 0));
	OK(launch(t, 1000));
	GIVES(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(s, &g));
	CHECK(!g && status_of(s) == CU_STREAM_CAPTURE_STATUS_NONE && status_of(t) == CU_STREAM_CAPTURE_STATUS_NONE);
}

/* Makes a capture invalid by one call, and ends it. */
#define SPOILS(error, call)                                                        \
	do {                                                                       \
		CUgraph g_;                                                        \
		begin(CU_STREAM_CAPTURE_MODE_GLOBAL);                              \
		GIVES(error, call);                                                \
		CHECK(status_of(s) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);       \
		GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, launch(s, 1));        \
		GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &g_)); \
		CHECK(!g_);                                                        \
	} while (0)

static void captures_forbid_what_waits(void)
{
	CUdeviceptr memory;
	CUstream t, blocking;
	begin_test();
	OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	CUevent outside = event();
	OK(cuEventRecord(outside, t));
	SPOILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(s));
	SPOILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery(s));
	SPOILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(t));
	SPOILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuEventQuery(outside));
	SPOILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxSynchronize());
	SPOILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc_v2(&memory, 16));
	SPOILS(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(s, outside, 0));
	OK(cuStreamSynchronize(t));

	/* The legacy stream would wait for blocking streams. */
	CUgraph g;
	OK(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
	CUstreamCaptureStatus status;
	GIVES(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(NULL, &status));
	GIVES(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, launch(NULL, 1));
	GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(blocking, &g));
	GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	GIVES(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(launch(NULL, 1));
	OK(cuMemAlloc_v2(&memory, 16)); /* allowed in this mode */
	OK(cuGraphDestroy(end()));
}

static void *another_thread(void *argument)
{
	CUdeviceptr memory;
	CUgraph g;
	OK(cuCtxSetCurrent(context));
	GIVES(*(CUresult *)argument, cuMemAlloc_v2(&memory, 16));
	if (*(CUresult *)argument == CUDA_SUCCESS)
		GIVES(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, cuStreamEndCapture(s, &g));
	return NULL;
}

static void modes_say_whom_a_capture_concerns(void)
{
	pthread_t thread;
	CUresult wanted = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	CUdeviceptr memory;
	CUgraph g;
	begin_test();
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	CHECK(pthread_create(&thread, NULL, another_thread, &wanted) == 0 && pthread_join(thread, NULL) == 0);
	GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &g));
	wanted = CUDA_SUCCESS;
	begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	CHECK(pthread_create(&thread, NULL, another_thread, &wanted) == 0 && pthread_join(thread, NULL) == 0);
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	CHECK(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
	OK(cuMemAlloc_v2(&memory, 16));
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	CHECK(mode == CU_STREAM_CAPTURE_MODE_RELAXED);
	OK(cuGraphDestroy(end()));
}

static void captures_add_to_graphs(void)
{
	CUgraph g = NULL, ended;
	begin_test();
	g = graph();
	CUgraphNode first = kernel(g, NULL, 1000000);
	OK(cuStreamBeginCaptureToGraph(s, g, &first, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(launch(s, 1000000));
	CUgraphNode none = NULL;
	OK(cuStreamUpdateCaptureDependencies(s, &none, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	OK(launch(s, 1000000));
	CUgraphExec inner = NULL;
	OK(cuStreamEndCapture(s, &ended));
	CHECK(ended == g && nodes(g) == 3);
	size_t roots = 0;
	OK(cuGraphGetRootNodes(g, NULL, &roots));
	CHECK(roots == 2);
	inner = executable(g);
	CLOSE(time_of(inner), 3.0F);
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	OK(launch(s, 1000000));
	OK(cuGraphLaunch(inner, s));
	CLOSE(time_of(executable(end())), 4.0F);
}

static void streams_that_end_take_their_capture_along(void)
{
	CUstream t;
	CUgraph g;
	begin_test();
	OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
	OK(cuStreamBeginCapture_v2(t, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(launch(t, 1));
	OK(cuStreamDestroy_v2(t));
	OK(cuCtxSynchronize()); /* no capture forbids it */
	OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	CUevent fork = event();
	OK(cuEventRecord(fork, s));
	OK(cuStreamWaitEvent(t, fork, 0));
	OK(cuStreamDestroy_v2(t));
	GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &g));
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	OK(cuCtxDestroy_v2(context));
}

#define TEST(name) {#name, name}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(nodes_run_in_the_order_of_their_edges),
		TEST(a_circle_cannot_run),
		TEST(parameters_are_kept_and_given_back),
		TEST(child_graphs_are_copies),
		TEST(executables_are_updated_after_other_graphs),
		TEST(events_are_part_of_graphs),
		TEST(launches_of_one_executable_follow_each_other),
		TEST(conditions_are_what_they_start_with),
		TEST(user_objects_live_as_long_as_graphs),
		TEST(memory_comes_with_the_first_launch),
		TEST(memory_that_is_not_freed_stays_allocated),
		TEST(graphs_are_refused_what_is_not_there),
		TEST(work_in_a_capture_becomes_nodes),
		TEST(captures_fork_and_join_by_events),
		TEST(captures_forbid_what_waits),
		TEST(modes_say_whom_a_capture_concerns),
		TEST(captures_add_to_graphs),
		TEST(streams_that_end_take_their_capture_along),
		{NULL, NULL},
	};
	return run_test(tests, argc, argv);
}
