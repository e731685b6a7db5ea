/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulated libcuda: what all of its files share. The memory half
 * (process, devices, contexts, modules, memory) declares here what the engine
 * half (streams, events, copies, launches, graphs) uses, engine.h is the other
 * direction.
 *
 * State of the process is made by cuInit and never taken down. A child of
 * fork finds it unusable: each entry point asks sim_enter first.
 */
#ifndef TRANCHE_SIM_H
#define TRANCHE_SIM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "card/card.h"
#include "cuda.h"

#define SIM_LIKELY(x) __builtin_expect(!!(x), 1)
#define SIM_LIMITS 10
#define SIM_FUNCTION_ATTRIBUTES 16
#define SIM_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* ---- entering ------------------------------------------------------------ */

/* One page that a child of fork sees as zeros: *sim_alive is 1 in the process
 * that cuInit succeeded in. */
extern const uint32_t *sim_alive;

/* CUDA_ERROR_NOT_INITIALIZED before cuInit and in a child of fork. */
static inline CUresult sim_enter(void)
{
	const uint32_t *alive = __atomic_load_n(&sim_alive, __ATOMIC_ACQUIRE);

	return SIM_LIKELY(__atomic_load_n(alive, __ATOMIC_ACQUIRE) == 1) ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

/* Leaves the calling function with an error unless expression is CUDA_SUCCESS. */
#define SIM_TRY(expression)                       \
	do {                                          \
		CUresult sim_result_ = (expression);      \
		if (!SIM_LIKELY(sim_result_ == CUDA_SUCCESS)) \
			return sim_result_;                   \
	} while (0)

#define SIM_ENTER() SIM_TRY(sim_enter())

/* Leaves with CUDA_ERROR_INVALID_VALUE where condition holds. */
#define SIM_INVALID_IF(condition)            \
	do {                                     \
		if (condition)                       \
			return CUDA_ERROR_INVALID_VALUE; \
	} while (0)

/* ---- handles --------------------------------------------------------------
 * Everything that a program gets a handle to begins with a struct sim_handle,
 * and its handle is its address. The memory of handles is used again for
 * handles only, so that any value at all can be asked whether it is one. */

enum sim_type {
	SIM_FREE = 0,
	SIM_CONTEXT = 0x51c00001,
	SIM_MODULE,
	SIM_FUNCTION,
	SIM_LIBRARY,
	SIM_KERNEL,
	SIM_STREAM,
	SIM_EVENT,
	SIM_GRAPH,
	SIM_GRAPH_NODE,
	SIM_GRAPH_EXEC,
	SIM_USER_OBJECT,
	SIM_POOL,
	SIM_ARRAY,
	SIM_MIPMAP,
	SIM_EXTERNAL_MEMORY,
	SIM_EXTERNAL_SEMAPHORE,
	SIM_ALLOCATION, /* of cuMemCreate */
	SIM_MULTICAST,
};

struct sim_handle {
	uint32_t type;  /* enum sim_type, SIM_FREE once deleted */
	uint32_t cells; /* the allocator's */
	uint64_t id;    /* unique in the process */
};

/* Zeroed but for the header; NULL when there is no memory. At most 4096 bytes. */
void *sim_new(enum sim_type type, size_t size);
void sim_delete(void *object);
bool sim_is(const void *handle, enum sim_type type);

/* In a list; both are NULL outside of one. */
struct sim_link {
	struct sim_link *next, *previous;
};

/* ---- devices -------------------------------------------------------------- */

struct sim_device {
	int ordinal;
	struct card card;      /* card.page, card.slot */
	pthread_mutex_t frames; /* around card_claim and card_release */
	struct CUctx_st *primary;
	unsigned primary_count;
	unsigned primary_flags;
	unsigned contexts; /* that are alive */
	struct CUmemPoolHandle_st *default_pool; /* made when first asked for */
	struct CUmemPoolHandle_st *pool;         /* current */
	void *engine; /* the engine half's */
	uint64_t graph_limits[4]; /* attributes of graph memory: used, used high, reserved, reserved high */
};

int sim_device_count(void);
/* NULL when there is no such device. */
struct sim_device *sim_device(CUdevice ordinal);

/* ---- contexts ------------------------------------------------------------- */

struct CUctx_st {
	struct sim_handle handle;
	struct sim_device *device;
	bool primary;
	bool dead; /* being destroyed */
	unsigned flags;
	unsigned version; /* API version that cuCtxGetApiVersion answers */
	unsigned attached; /* cuCtxAttach */
	size_t limit[SIM_LIMITS];
	CUfunc_cache cache;
	CUsharedconfig banks;
	bool peer[CARD_MAX]; /* devices whose contexts may be accessed */
	struct sim_memory *memory; /* what the context holds; memory half only */
	void *engine;              /* the engine half's */
};

/* The context that is current to the calling thread. INVALID_CONTEXT: none,
 * CONTEXT_IS_DESTROYED: it was destroyed. */
CUresult sim_current(struct CUctx_st **context);

/* sim_enter and sim_current in one; declares the variable. */
#define SIM_CONTEXT_ENTER(name) \
	struct CUctx_st *name;      \
	SIM_ENTER();                \
	SIM_TRY(sim_current(&name))

/* ---- functions ------------------------------------------------------------ */

struct sim_parameter {
	size_t offset;
	size_t size;
};

/* What a kernel is, parsed from its module's text; lives as long as the module
 * or library. */
struct sim_kernel {
	char *name;
	bool fixed;           /* takes nanoseconds, whatever its parameters say */
	uint64_t nanoseconds; /* else the first parameter, 64 bits, says it */
	unsigned parameters;
	struct sim_parameter *parameter;
	size_t parameter_bytes;
};

struct CUfunc_st {
	struct sim_handle handle;
	struct CUctx_st *context;
	struct CUmod_st *module;
	const struct sim_kernel *kernel;
	int attribute[SIM_FUNCTION_ATTRIBUTES];
	CUfunc_cache cache;
	/* cuFuncSetBlockShape, cuParamSet*: the oldest way to launch. */
	int block[3];
	unsigned shared;
	unsigned parameter_size;
	uint8_t *old_parameters; /* 4096 bytes, or NULL */
};

/* What a launch was given: a function of the context, or a kernel of a library
 * (CUkernel cast to CUfunction), which is loaded into the context now if need
 * be. INVALID_HANDLE: neither. */
CUresult sim_function(CUfunction given, struct CUctx_st *context, struct CUfunc_st **function);

/* ---- memory for copies and launches --------------------------------------- */

struct CUarray_st {
	struct sim_handle handle;
	struct CUctx_st *context;
	CUDA_ARRAY3D_DESCRIPTOR descriptor;
	uint8_t *data; /* row after row, slice after slice; mapped like linear memory. NULL: nothing is mapped yet */
	size_t element; /* bytes of one element: channels times format */
	size_t pitch;   /* bytes from row to row */
	size_t slice;   /* bytes from slice (or layer) to slice */
	size_t size;
	struct CUmipmappedArray_st *level_of; /* or NULL */
	struct sim_block *block;
	struct sim_link link; /* among the context's */
};

/* CUDA_SUCCESS where [address, address + bytes) is memory that the device may
 * read and write now: one allocation, registered or managed host memory
 * included, or adjoining mappings of cuMemMap. *device is where it lives, -1 for
 * host memory. INVALID_VALUE otherwise. */
CUresult sim_memory_check(CUdeviceptr address, size_t bytes, int *device);

/* Whether a host pointer needs no staging: memory of cuMemHostAlloc,
 * cuMemHostRegister or managed memory. */
bool sim_memory_pinned(const void *address);

/* The engine half calls this when a stream, event or context was synchronised:
 * pools give back what is above their thresholds. */
void sim_memory_synchronized(struct sim_device *device);

/* Memory of graphs (allocation nodes). Addresses are fixed when a node is made,
 * memory is behind them from sim_graph_memory_back on. */
CUresult sim_graph_memory_reserve(struct CUctx_st *context, size_t bytes, CUdeviceptr *address);
CUresult sim_graph_memory_back(CUdeviceptr address);
void sim_graph_memory_unback(CUdeviceptr address);
void sim_graph_memory_unreserve(CUdeviceptr address);

#endif
