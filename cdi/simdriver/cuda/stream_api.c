/* SPDX-License-Identifier: Apache-2.0
 *
 * What a stream can be asked and told, but for work.
 */
#include "stream.h"

/* ---- waiting and asking whether it is done --------------------------------------------- */

/* The stream, where neither it nor a capture elsewhere forbids looking at its work. */
static CUresult enter_to_wait(CUstream given, bool per_thread, struct CUstream_st **stream)
{
	if (in_callback)
		return CUDA_ERROR_NOT_PERMITTED;
	SIM_TRY(stream_enter(given, per_thread, stream));
	SIM_TRY(capture_forbids(*stream));
	return engine_may_block((*stream)->context);
}

static CUresult synchronize(CUstream given, bool per_thread)
{
	struct CUstream_st *stream;
	SIM_TRY(enter_to_wait(given, per_thread, &stream));
	struct sim_device *device = stream->context->device;
	queue_wait(stream->queue, queue_tail(stream->queue));
	sim_memory_synchronized(device);
	return CUDA_SUCCESS;
}

static CUresult query(CUstream given, bool per_thread)
{
	struct CUstream_st *stream;
	SIM_TRY(enter_to_wait(given, per_thread, &stream));
	return queue_done(stream->queue, queue_tail(stream->queue)) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamSynchronize(CUstream hStream)
{
	return synchronize(hStream, LEGACY);
}

CUresult cuStreamSynchronize_ptsz(CUstream hStream)
{
	return synchronize(hStream, PER_THREAD);
}

CUresult cuStreamQuery(CUstream hStream)
{
	return query(hStream, LEGACY);
}

CUresult cuStreamQuery_ptsz(CUstream hStream)
{
	return query(hStream, PER_THREAD);
}

/* ---- facts ----------------------------------------------------------------------------- */

static CUresult find(CUstream given, bool per_thread, struct CUstream_st **stream)
{
	SIM_CONTEXT_ENTER(context);
	return engine_stream(given, per_thread, context, stream);
}

static CUresult get_priority(CUstream given, bool per_thread, int *priority)
{
	struct CUstream_st *stream;
	SIM_TRY(find(given, per_thread, &stream));
	SIM_INVALID_IF(!priority);
	*priority = stream->queue->priority;
	return CUDA_SUCCESS;
}

static CUresult get_flags(CUstream given, bool per_thread, unsigned *flags)
{
	struct CUstream_st *stream;
	SIM_TRY(find(given, per_thread, &stream));
	SIM_INVALID_IF(!flags);
	*flags = stream->flags;
	return CUDA_SUCCESS;
}

static CUresult get_id(CUstream given, bool per_thread, unsigned long long *id)
{
	struct CUstream_st *stream;
	SIM_TRY(find(given, per_thread, &stream));
	SIM_INVALID_IF(!id);
	*id = stream->handle.id;
	return CUDA_SUCCESS;
}

static CUresult get_context(CUstream given, bool per_thread, CUcontext *context)
{
	struct CUstream_st *stream;
	SIM_TRY(find(given, per_thread, &stream));
	SIM_INVALID_IF(!context);
	*context = stream->context;
	return CUDA_SUCCESS;
}

static CUresult get_device(CUstream given, bool per_thread, CUdevice *device)
{
	struct CUstream_st *stream;
	SIM_TRY(find(given, per_thread, &stream));
	SIM_INVALID_IF(!device);
	*device = stream->context->device->ordinal;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream hStream, int *priority)
{
	return get_priority(hStream, LEGACY, priority);
}

CUresult cuStreamGetPriority_ptsz(CUstream hStream, int *priority)
{
	return get_priority(hStream, PER_THREAD, priority);
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned int *flags)
{
	return get_flags(hStream, LEGACY, flags);
}

CUresult cuStreamGetFlags_ptsz(CUstream hStream, unsigned int *flags)
{
	return get_flags(hStream, PER_THREAD, flags);
}

CUresult cuStreamGetId(CUstream hStream, unsigned long long *streamId)
{
	return get_id(hStream, LEGACY, streamId);
}

CUresult cuStreamGetId_ptsz(CUstream hStream, unsigned long long *streamId)
{
	return get_id(hStream, PER_THREAD, streamId);
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext *pctx)
{
	return get_context(hStream, LEGACY, pctx);
}

CUresult cuStreamGetCtx_ptsz(CUstream hStream, CUcontext *pctx)
{
	return get_context(hStream, PER_THREAD, pctx);
}

/* No stream belongs to a green context. */
CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx)
{
	SIM_TRY(get_context(hStream, LEGACY, pCtx));
	SIM_INVALID_IF(!pGreenCtx);
	*pGreenCtx = NULL;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx_v2_ptsz(CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx)
{
	SIM_TRY(get_context(hStream, PER_THREAD, pCtx));
	SIM_INVALID_IF(!pGreenCtx);
	*pGreenCtx = NULL;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream hStream, CUdevice *device)
{
	return get_device(hStream, LEGACY, device);
}

CUresult cuStreamGetDevice_ptsz(CUstream hStream, CUdevice *device)
{
	return get_device(hStream, PER_THREAD, device);
}

/* ---- attributes ------------------------------------------------------------------------ */

/* Where an attribute that changes nothing here is kept; NULL: there is no such one. */
static CUlaunchAttributeValue *attribute(struct CUstream_st *stream, CUstreamAttrID id)
{
	switch (id) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		return &stream->attribute[0];
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		return &stream->attribute[1];
	default:
		return NULL;
	}
}

static CUresult get_attribute(CUstream given, bool per_thread, CUstreamAttrID id, CUstreamAttrValue *value)
{
	struct CUstream_st *stream;
	SIM_TRY(find(given, per_thread, &stream));
	SIM_INVALID_IF(!value);
	if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
		value->priority = stream->queue->priority;
		return CUDA_SUCCESS;
	}
	const CUlaunchAttributeValue *kept = attribute(stream, id);
	SIM_INVALID_IF(!kept);
	*value = *kept;
	return CUDA_SUCCESS;
}

static CUresult set_attribute(CUstream given, bool per_thread, CUstreamAttrID id, const CUstreamAttrValue *value)
{
	struct CUstream_st *stream;
	SIM_TRY(find(given, per_thread, &stream));
	SIM_INVALID_IF(!value);
	if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
		SIM_INVALID_IF(value->priority > PRIORITY_LEAST || value->priority < PRIORITY_GREATEST);
		timeline_enter();
		stream->queue->priority = value->priority;
		timeline_leave();
		return CUDA_SUCCESS;
	}
	CUlaunchAttributeValue *kept = attribute(stream, id);
	SIM_INVALID_IF(!kept);
	*kept = *value;
	return CUDA_SUCCESS;
}

static CUresult copy_attributes(CUstream destination, CUstream source, bool per_thread)
{
	struct CUstream_st *to, *from;
	SIM_TRY(find(destination, per_thread, &to));
	SIM_TRY(find(source, per_thread, &from));
	for (size_t i = 0; i < SIM_ARRAY_SIZE(to->attribute); i++)
		to->attribute[i] = from->attribute[i];
	return CUDA_SUCCESS;
}

CUresult cuStreamGetAttribute(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue *value)
{
	return get_attribute(hStream, LEGACY, attr, value);
}

CUresult cuStreamGetAttribute_ptsz(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue *value_out)
{
	return get_attribute(hStream, PER_THREAD, attr, value_out);
}

CUresult cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue *param)
{
	return set_attribute(hStream, LEGACY, attr, param);
}

CUresult cuStreamSetAttribute_ptsz(CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue *value)
{
	return set_attribute(hStream, PER_THREAD, attr, value);
}

CUresult cuStreamCopyAttributes(CUstream dstStream, CUstream srcStream)
{
	return copy_attributes(dstStream, srcStream, LEGACY);
}

CUresult cuStreamCopyAttributes_ptsz(CUstream dst, CUstream src)
{
	return copy_attributes(dst, src, PER_THREAD);
}
