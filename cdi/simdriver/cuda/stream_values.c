/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams that write values to memory, and wait for values in memory.
 */
#include <stdlib.h>
#include <string.h>

#include "stream_work.h"

static CUresult check_value(CUdeviceptr address, size_t bytes)
{
	int device;
	SIM_INVALID_IF(address % bytes != 0);
	return sim_memory_check(address, bytes, &device);
}

static CUresult check_wait(CUdeviceptr address, size_t bytes, unsigned flags)
{
	unsigned test = flags & ~(unsigned)CU_STREAM_WAIT_VALUE_FLUSH;
	SIM_INVALID_IF(test > CU_STREAM_WAIT_VALUE_NOR);
	/* Writes of other devices are never late here, so there is nothing to flush; the devices say that they cannot. */
	if (flags & CU_STREAM_WAIT_VALUE_FLUSH)
		return CUDA_ERROR_NOT_SUPPORTED;
	return check_value(address, bytes);
}

static CUresult check_operation(const CUstreamBatchMemOpParams *operation)
{
	switch (operation->operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
		return check_wait(operation->waitValue.address, sizeof(uint32_t), operation->waitValue.flags);
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		return check_wait(operation->waitValue.address, sizeof(uint64_t), operation->waitValue.flags);
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
		SIM_INVALID_IF(operation->writeValue.flags & ~(unsigned)CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER);
		return check_value(operation->writeValue.address, sizeof(uint32_t));
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		SIM_INVALID_IF(operation->writeValue.flags & ~(unsigned)CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER);
		return check_value(operation->writeValue.address, sizeof(uint64_t));
	case CU_STREAM_MEM_OP_BARRIER:
		return operation->memoryBarrier.flags <= CU_STREAM_MEMORY_BARRIER_TYPE_GPU ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult values_make(const CUstreamBatchMemOpParams *operations, unsigned count, unsigned flags, struct values **made)
{
	SIM_INVALID_IF(flags != 0 || count > VALUES_MAX || (count > 0 && !operations));
	for (unsigned i = 0; i < count; i++)
		SIM_TRY(check_operation(&operations[i]));
	struct values *values = malloc(sizeof(*values) + count * sizeof(*operations));
	if (!values)
		return CUDA_ERROR_OUT_OF_MEMORY;
	values->count = count;
	if (count > 0)
		memcpy(values->operation, operations, count * sizeof(*operations));
	*made = values;
	return CUDA_SUCCESS;
}

static CUresult batch(CUstream given, bool per_thread, unsigned count, const CUstreamBatchMemOpParams *operations, unsigned flags)
{
	struct CUstream_st *stream;
	struct values *values;
	SIM_TRY(stream_enter(given, per_thread, &stream));
	SIM_TRY(values_make(operations, count, flags, &values));
	if (stream_captures(stream)) {
		CUgraphNodeParams node = {
			.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
			.memOp = {.ctx = stream->context, .count = count, .paramArray = values->operation, .flags = flags},
		};
		CUresult result = capture_node(stream, &node, NULL);
		free(values);
		return result;
	}
	return queue_submit(stream->queue, (struct command){.kind = COMMAND_VALUES, .slow = true, .payload = values});
}

static CUresult wait_value(CUstream stream, bool per_thread, CUstreamBatchMemOpType type, CUdeviceptr address, uint64_t value,
			   unsigned flags)
{
	CUstreamBatchMemOpParams operation = {.waitValue = {.operation = type, .address = address, .value64 = value, .flags = flags}};
	return batch(stream, per_thread, 1, &operation, 0);
}

static CUresult write_value(CUstream stream, bool per_thread, CUstreamBatchMemOpType type, CUdeviceptr address, uint64_t value,
			    unsigned flags)
{
	CUstreamBatchMemOpParams operation = {.writeValue = {.operation = type, .address = address, .value64 = value, .flags = flags}};
	return batch(stream, per_thread, 1, &operation, 0);
}

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
	return wait_value(stream, LEGACY, CU_STREAM_MEM_OP_WAIT_VALUE_32, addr, value, flags);
}

CUresult cuStreamWaitValue32_ptsz(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
	return wait_value(stream, PER_THREAD, CU_STREAM_MEM_OP_WAIT_VALUE_32, addr, value, flags);
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
	return wait_value(stream, LEGACY, CU_STREAM_MEM_OP_WAIT_VALUE_32, addr, value, flags);
}

CUresult cuStreamWaitValue32_v2_ptsz(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
	return wait_value(stream, PER_THREAD, CU_STREAM_MEM_OP_WAIT_VALUE_32, addr, value, flags);
}

CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
	return wait_value(stream, LEGACY, CU_STREAM_MEM_OP_WAIT_VALUE_64, addr, value, flags);
}

CUresult cuStreamWaitValue64_ptsz(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
	return wait_value(stream, PER_THREAD, CU_STREAM_MEM_OP_WAIT_VALUE_64, addr, value, flags);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
	return wait_value(stream, LEGACY, CU_STREAM_MEM_OP_WAIT_VALUE_64, addr, value, flags);
}

CUresult cuStreamWaitValue64_v2_ptsz(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
	return wait_value(stream, PER_THREAD, CU_STREAM_MEM_OP_WAIT_VALUE_64, addr, value, flags);
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
	return write_value(stream, LEGACY, CU_STREAM_MEM_OP_WRITE_VALUE_32, addr, value, flags);
}

CUresult cuStreamWriteValue32_ptsz(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
	return write_value(stream, PER_THREAD, CU_STREAM_MEM_OP_WRITE_VALUE_32, addr, value, flags);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
	return write_value(stream, LEGACY, CU_STREAM_MEM_OP_WRITE_VALUE_32, addr, value, flags);
}

CUresult cuStreamWriteValue32_v2_ptsz(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
	return write_value(stream, PER_THREAD, CU_STREAM_MEM_OP_WRITE_VALUE_32, addr, value, flags);
}

CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
	return write_value(stream, LEGACY, CU_STREAM_MEM_OP_WRITE_VALUE_64, addr, value, flags);
}

CUresult cuStreamWriteValue64_ptsz(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
	return write_value(stream, PER_THREAD, CU_STREAM_MEM_OP_WRITE_VALUE_64, addr, value, flags);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
	return write_value(stream, LEGACY, CU_STREAM_MEM_OP_WRITE_VALUE_64, addr, value, flags);
}

CUresult cuStreamWriteValue64_v2_ptsz(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
	return write_value(stream, PER_THREAD, CU_STREAM_MEM_OP_WRITE_VALUE_64, addr, value, flags);
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray, unsigned int flags)
{
	return batch(stream, LEGACY, count, paramArray, flags);
}

CUresult cuStreamBatchMemOp_ptsz(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray, unsigned int flags)
{
	return batch(stream, PER_THREAD, count, paramArray, flags);
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray, unsigned int flags)
{
	return batch(stream, LEGACY, count, paramArray, flags);
}

CUresult cuStreamBatchMemOp_v2_ptsz(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray, unsigned int flags)
{
	return batch(stream, PER_THREAD, count, paramArray, flags);
}
