/* SPDX-License-Identifier: Apache-2.0
 *
 * All ways to take memory of a card, behind one pair of functions each. They
 * work in the current context, and take about as many bytes as they are asked for.
 */
#ifndef TRANCHE_KINDS_H
#define TRANCHE_KINDS_H

#include "client.h"

/* Something that was allocated. */
struct block {
	const struct kind *kind;
	CUcontext context;
	size_t bytes;
	CUdeviceptr address;
	union {
		CUmemGenericAllocationHandle handle;
		CUarray array;
		CUmipmappedArray mipmap;
		CUgraphExec graph;
		CUmemoryPool pool;
	};
};

struct kind {
	const char *name;
	/* CUDA_SUCCESS, or an error and nothing is taken. */
	CUresult (*take)(struct block *b);
	CUresult (*drop)(struct block *b);
};

/* A failing call in a function of a kind leads to its way out. */
#define STEP(call)                      \
	do {                                \
		result = (call);                \
		if (result != CUDA_SUCCESS)     \
			goto out;                   \
	} while (0)

static inline CUresult linear_take(struct block *b)
{
	return cuMemAlloc_v2(&b->address, b->bytes);
}

static inline CUresult linear_drop(struct block *b)
{
	return cuMemFree_v2(b->address);
}

/* Thin rows: what is taken is the pitch, not the width. */
static inline CUresult pitch_take(struct block *b)
{
	size_t pitch, rows = b->bytes / 512;

	return cuMemAllocPitch_v2(&b->address, &pitch, 16, rows ? rows : 1, 4);
}

static inline CUresult managed_take(struct block *b)
{
	return cuMemAllocManaged(&b->address, b->bytes, CU_MEM_ATTACH_GLOBAL);
}

static inline CUresult async_take(struct block *b)
{
	return cuMemAllocAsync(&b->address, b->bytes, NULL);
}

static inline CUresult async_drop(struct block *b)
{
	CUresult result = cuMemFreeAsync(b->address, NULL);

	return result == CUDA_SUCCESS ? cuStreamSynchronize(NULL) : result;
}

static inline CUmemLocation here(void)
{
	CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE};

	TRY(cuCtxGetDevice(&location.id));
	return location;
}

/* A pool for each block: both are counted, and go together. */
static inline CUresult pool_take(struct block *b)
{
	CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here()};
	CUresult result = cuMemPoolCreate(&b->pool, &properties);

	if (result != CUDA_SUCCESS)
		return result;
	STEP(cuMemAllocFromPoolAsync(&b->address, b->bytes, b->pool, NULL));
	STEP(cuStreamSynchronize(NULL));
	return CUDA_SUCCESS;
out:
	TRY(cuMemPoolDestroy(b->pool));
	return result;
}

static inline CUresult pool_drop(struct block *b)
{
	CUresult result = async_drop(b);

	return result == CUDA_SUCCESS ? cuMemPoolDestroy(b->pool) : result;
}

static inline CUmemAllocationProp vmm_properties(void)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = here(),
	};
}

static inline size_t vmm_granularity(void)
{
	CUmemAllocationProp properties = vmm_properties();
	size_t granularity;

	TRY(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	return granularity;
}

/* Maps a handle somewhere, readable and writable. */
static inline CUresult vmm_map(CUmemGenericAllocationHandle handle, size_t bytes, CUdeviceptr *address)
{
	CUmemAccessDesc access = {.location = here(), .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUresult result = cuMemAddressReserve(address, bytes, 0, 0, 0);

	if (result != CUDA_SUCCESS)
		return result;
	STEP(cuMemMap(*address, bytes, 0, handle, 0));
	result = cuMemSetAccess(*address, bytes, &access, 1);
	if (result == CUDA_SUCCESS)
		return result;
	TRY(cuMemUnmap(*address, bytes));
out:
	TRY(cuMemAddressFree(*address, bytes));
	return result;
}

static inline CUresult vmm_take(struct block *b)
{
	CUmemAllocationProp properties = vmm_properties();
	size_t granularity = vmm_granularity();
	CUresult result;

	b->bytes = (b->bytes + granularity - 1) / granularity * granularity;
	result = cuMemCreate(&b->handle, b->bytes, &properties, 0);
	if (result != CUDA_SUCCESS)
		return result;
	result = vmm_map(b->handle, b->bytes, &b->address);
	if (result != CUDA_SUCCESS)
		TRY(cuMemRelease(b->handle));
	return result;
}

/* The handle goes first: the mapping keeps the memory until it goes too. */
static inline CUresult vmm_drop(struct block *b)
{
	CUresult result;

	STEP(cuMemRelease(b->handle));
	STEP(cuMemUnmap(b->address, b->bytes));
	STEP(cuMemAddressFree(b->address, b->bytes));
out:
	return result;
}

static inline CUresult array_take(struct block *b)
{
	size_t rows = b->bytes / 4096;
	CUDA_ARRAY_DESCRIPTOR d = {.Width = 1024, .Height = rows ? rows : 1, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};

	if (d.Height > 32768) { /* larger arrays are not square enough for every card */
		d.Width *= (d.Height + 32767) / 32768;
		d.Height = 32768;
	}
	return cuArrayCreate_v2(&b->array, &d);
}

static inline CUresult array_drop(struct block *b)
{
	return cuArrayDestroy(b->array);
}

static inline CUresult array3d_take(struct block *b)
{
	size_t slices = b->bytes / (64 << 10);
	CUDA_ARRAY3D_DESCRIPTOR d = {.Width = 128, .Height = 128, .Depth = slices ? slices : 1, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};

	if (d.Depth > 2048) {
		d.Width *= (d.Depth + 2047) / 2048;
		d.Depth = 2048;
	}
	return cuArray3DCreate_v2(&b->array, &d);
}

static inline CUresult mipmap_take(struct block *b)
{
	size_t rows = b->bytes / 5120; /* a quarter more for the second level */
	CUDA_ARRAY3D_DESCRIPTOR d = {.Width = 1024, .Height = rows ? rows : 1, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};

	if (d.Height > 32768)
		d.Height = 32768;
	return cuMipmappedArrayCreate(&b->mipmap, &d, d.Height > 1 ? 2 : 1);
}

static inline CUresult mipmap_drop(struct block *b)
{
	return cuMipmappedArrayDestroy(b->mipmap);
}

/* Runs a graph that allocates, and keeps what it allocated. Takes the graph. */
static inline CUresult graph_run(struct block *b, CUgraph graph)
{
	CUresult result = cuGraphInstantiateWithFlags(&b->graph, graph, 0);

	TRY(cuGraphDestroy(graph));
	if (result != CUDA_SUCCESS)
		return result;
	result = cuGraphLaunch(b->graph, NULL);
	if (result == CUDA_SUCCESS)
		result = cuStreamSynchronize(NULL);
	if (result != CUDA_SUCCESS)
		TRY(cuGraphExecDestroy(b->graph));
	return result;
}

static inline CUresult graph_take(struct block *b)
{
	CUmemAccessDesc access = {.location = here(), .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUDA_MEM_ALLOC_NODE_PARAMS parameters = {
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = access.location},
		.accessDescs = &access, .accessDescCount = 1, .bytesize = b->bytes,
	};
	CUgraphNode node;
	CUgraph graph;
	CUresult result = cuGraphCreate(&graph, 0);

	if (result != CUDA_SUCCESS)
		return result;
	result = cuGraphAddMemAllocNode(&node, graph, NULL, 0, &parameters);
	if (result != CUDA_SUCCESS) {
		TRY(cuGraphDestroy(graph));
		return result;
	}
	b->address = parameters.dptr;
	return graph_run(b, graph);
}

static inline CUresult graph_drop(struct block *b)
{
	CUresult result;

	STEP(cuMemFreeAsync(b->address, NULL));
	STEP(cuStreamSynchronize(NULL));
	STEP(cuGraphExecDestroy(b->graph));
	STEP(cuDeviceGraphMemTrim(here().id));
out:
	return result;
}

static inline CUresult capture_take(struct block *b)
{
	CUgraph graph = NULL;
	CUstream stream;
	CUresult result = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);

	if (result != CUDA_SUCCESS)
		return result;
	TRY(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	result = cuMemAllocAsync(&b->address, b->bytes, stream);
	if (result == CUDA_SUCCESS) {
		TRY(cuStreamEndCapture(stream, &graph));
		result = graph_run(b, graph);
	} else {
		cuStreamEndCapture(stream, &graph); /* whatever comes of it */
		if (graph)
			TRY(cuGraphDestroy(graph));
	}
	TRY(cuStreamDestroy_v2(stream));
	return result;
}

static const struct kind kinds[] = {
	{"alloc", linear_take, linear_drop},
	{"pitch", pitch_take, linear_drop},
	{"managed", managed_take, linear_drop},
	{"async", async_take, async_drop},
	{"pool", pool_take, pool_drop},
	{"vmm", vmm_take, vmm_drop},
	{"array", array_take, array_drop},
	{"array3d", array3d_take, array_drop},
	{"mipmap", mipmap_take, mipmap_drop},
	{"graph", graph_take, graph_drop},
	{"capture", capture_take, graph_drop},
};

static inline const struct kind *find_kind(const char *name)
{
	for (size_t i = 0; i < COUNT(kinds); i++)
		if (!strcmp(kinds[i].name, name))
			return &kinds[i];
	fail("%s is no way to allocate", name);
}

#endif
