/* SPDX-License-Identifier: Apache-2.0 */
#include "context.h"
#include "linear.h"
#define WEAK __attribute__((weak))
WEAK void sim_context_free_arrays(struct CUctx_st *c) { (void)c; }
WEAK void sim_context_free_modules(struct CUctx_st *c) { (void)c; }
WEAK void sim_context_free_imports(struct CUctx_st *c) { (void)c; }
WEAK bool sim_pool_find(const struct sim_range *r, CUdeviceptr a, struct sim_found *f) { (void)r; (void)a; (void)f; return false; }
WEAK CUmemoryPool sim_pool_of(const struct sim_range *r) { (void)r; return NULL; }
WEAK void sim_pools_reset(struct sim_device *d) { (void)d; }
WEAK CUresult sim_pool_free(struct sim_range *r, CUdeviceptr a) { (void)r; (void)a; return CUDA_ERROR_INVALID_VALUE; }
WEAK bool sim_vmm_find(const struct sim_range *r, CUdeviceptr a, struct sim_found *f) { (void)r; (void)a; (void)f; return false; }
WEAK bool sim_vmm_accessible(const struct sim_range *r, CUdeviceptr a, uint64_t b, int *d) { (void)r; (void)a; (void)b; (void)d; return false; }
WEAK void sim_host_free(struct sim_range *r) { (void)r; }
WEAK CUresult sim_function(CUfunction g, struct CUctx_st *c, struct CUfunc_st **f) { (void)g; (void)c; (void)f; return CUDA_ERROR_INVALID_HANDLE; }
WEAK CUresult sim_memory_check(CUdeviceptr a, size_t b, int *d) { (void)a; (void)b; (void)d; return CUDA_ERROR_INVALID_VALUE; }
WEAK bool sim_memory_pinned(const void *a) { (void)a; return false; }
WEAK void sim_memory_synchronized(struct sim_device *d) { (void)d; }
WEAK CUresult sim_graph_memory_reserve(struct CUctx_st *c, size_t b, CUdeviceptr *a) { (void)c; (void)b; (void)a; return CUDA_ERROR_NOT_SUPPORTED; }
WEAK CUresult sim_graph_memory_back(CUdeviceptr a) { (void)a; return CUDA_ERROR_NOT_SUPPORTED; }
WEAK void sim_graph_memory_unback(CUdeviceptr a) { (void)a; }
WEAK void sim_graph_memory_unreserve(CUdeviceptr a) { (void)a; }
WEAK CUresult engine_context_open(struct CUctx_st *c) { (void)c; return CUDA_SUCCESS; }
WEAK void engine_context_close(struct CUctx_st *c) { (void)c; }
WEAK CUresult engine_context_wait(struct CUctx_st *c) { (void)c; return CUDA_SUCCESS; }
WEAK CUresult engine_device_wait(struct sim_device *d) { (void)d; return CUDA_SUCCESS; }
WEAK CUresult engine_may_block(struct CUctx_st *c) { (void)c; return CUDA_SUCCESS; }
WEAK CUresult engine_stream(CUstream g, bool p, struct CUctx_st *c, struct CUstream_st **s) { (void)g; (void)p; (void)c; *s = NULL; return CUDA_SUCCESS; }
WEAK struct CUctx_st *engine_stream_context(struct CUstream_st *s) { (void)s; return NULL; }
WEAK bool engine_stream_capturing(struct CUstream_st *s) { (void)s; return false; }
WEAK uint64_t engine_mark(struct CUstream_st *s) { (void)s; return 0; }
WEAK bool engine_mark_done(uint64_t m) { (void)m; return true; }
WEAK CUresult engine_stream_wait_mark(struct CUstream_st *s, uint64_t m) { (void)s; (void)m; return CUDA_SUCCESS; }
WEAK void engine_mark_wait(uint64_t m) { (void)m; }
WEAK CUresult engine_enqueue(struct CUstream_st *s, void (*f)(void *), void *a) { (void)s; f(a); return CUDA_SUCCESS; }
WEAK CUresult capture_memory_alloc(struct CUstream_st *s, const CUmemPoolProps *p, size_t b, CUdeviceptr *a) { (void)s; (void)p; (void)b; (void)a; return CUDA_ERROR_NOT_SUPPORTED; }
WEAK CUresult capture_memory_free(struct CUstream_st *s, CUdeviceptr a) { (void)s; (void)a; return CUDA_ERROR_NOT_SUPPORTED; }
