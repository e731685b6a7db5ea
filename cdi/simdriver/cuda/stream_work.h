/* SPDX-License-Identifier: Apache-2.0
 *
 * Work other than kernels and copies, for streams and for graphs.
 */
#ifndef TRANCHE_SIM_STREAM_WORK_H
#define TRANCHE_SIM_STREAM_WORK_H

#include "stream.h"

/* Operations in one batch. */
#define VALUES_MAX 256u

CUresult host_make(CUhostFn function, void *argument, struct job **job);
CUresult values_make(const CUstreamBatchMemOpParams *operations, unsigned count, unsigned flags, struct values **values);

#endif
