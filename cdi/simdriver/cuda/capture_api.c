/* SPDX-License-Identifier: Apache-2.0
 *
 * Beginning and ending captures, and asking about them: the functions.
 */
#include "capture_state.h"

CUresult cuStreamBeginCapture(CUstream hStream)
{
	return capture_begin(hStream, LEGACY, (struct beginning){.mode = CU_STREAM_CAPTURE_MODE_GLOBAL});
}

CUresult cuStreamBeginCapture_ptsz(CUstream hStream)
{
	return capture_begin(hStream, PER_THREAD, (struct beginning){.mode = CU_STREAM_CAPTURE_MODE_GLOBAL});
}

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
	return capture_begin(hStream, LEGACY, (struct beginning){.mode = mode});
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode)
{
	return capture_begin(hStream, PER_THREAD, (struct beginning){.mode = mode});
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
		const CUgraphEdgeData *dependencyData, size_t numDependencies, CUstreamCaptureMode mode)
{
	/* What depends on them is no program's kernel yet: their data change nothing. */
	(void)dependencyData;
	SIM_INVALID_IF(!hGraph);
	return capture_begin(hStream, LEGACY,
			     (struct beginning){.graph = hGraph, .before = dependencies, .count = numDependencies, .mode = mode});
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
		const CUgraphEdgeData *dependencyData, size_t numDependencies, CUstreamCaptureMode mode)
{
	/* What depends on them is no program's kernel yet: their data change nothing. */
	(void)dependencyData;
	SIM_INVALID_IF(!hGraph);
	return capture_begin(hStream, PER_THREAD,
			     (struct beginning){.graph = hGraph, .before = dependencies, .count = numDependencies, .mode = mode});
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
	return capture_end(hStream, LEGACY, phGraph);
}

CUresult cuStreamEndCapture_ptsz(CUstream hStream, CUgraph *phGraph)
{
	return capture_end(hStream, PER_THREAD, phGraph);
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
	return capture_info(hStream, LEGACY, (struct info){.status = captureStatus});
}

CUresult cuStreamIsCapturing_ptsz(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
	return capture_info(hStream, PER_THREAD, (struct info){.status = captureStatus});
}

CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out)
{
	return capture_info(hStream, LEGACY, (struct info){.status = captureStatus_out, .id = id_out});
}

CUresult cuStreamGetCaptureInfo_ptsz(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out)
{
	return capture_info(hStream, PER_THREAD, (struct info){.status = captureStatus_out, .id = id_out});
}

CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
		CUgraph *graph_out, const CUgraphNode **dependencies_out, size_t *numDependencies_out)
{
	return capture_info(hStream, LEGACY,
			    (struct info){.status = captureStatus_out, .id = id_out, .graph = graph_out, .before = dependencies_out,
					  .count = numDependencies_out});
}

CUresult cuStreamGetCaptureInfo_v2_ptsz(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
		CUgraph *graph_out, const CUgraphNode **dependencies_out, size_t *numDependencies_out)
{
	return capture_info(hStream, PER_THREAD,
			    (struct info){.status = captureStatus_out, .id = id_out, .graph = graph_out, .before = dependencies_out,
					  .count = numDependencies_out});
}

CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
		CUgraph *graph_out, const CUgraphNode **dependencies_out, const CUgraphEdgeData **edgeData_out,
		size_t *numDependencies_out)
{
	return capture_info(hStream, LEGACY,
			    (struct info){.status = captureStatus_out, .id = id_out, .graph = graph_out, .before = dependencies_out,
					  .data = edgeData_out, .count = numDependencies_out});
}

CUresult cuStreamGetCaptureInfo_v3_ptsz(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
		CUgraph *graph_out, const CUgraphNode **dependencies_out, const CUgraphEdgeData **edgeData_out,
		size_t *numDependencies_out)
{
	return capture_info(hStream, PER_THREAD,
			    (struct info){.status = captureStatus_out, .id = id_out, .graph = graph_out, .before = dependencies_out,
					  .data = edgeData_out, .count = numDependencies_out});
}

CUresult cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode *dependencies, size_t numDependencies, unsigned int flags)
{
	return capture_update(hStream, LEGACY, dependencies, numDependencies, flags);
}

CUresult cuStreamUpdateCaptureDependencies_ptsz(CUstream hStream, CUgraphNode *dependencies, size_t numDependencies, unsigned int flags)
{
	return capture_update(hStream, PER_THREAD, dependencies, numDependencies, flags);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
		size_t numDependencies, unsigned int flags)
{
	(void)dependencyData;
	return capture_update(hStream, LEGACY, dependencies, numDependencies, flags);
}

CUresult cuStreamUpdateCaptureDependencies_v2_ptsz(CUstream hStream, CUgraphNode *dependencies,
		const CUgraphEdgeData *dependencyData, size_t numDependencies, unsigned int flags)
{
	(void)dependencyData;
	return capture_update(hStream, PER_THREAD, dependencies, numDependencies, flags);
}
