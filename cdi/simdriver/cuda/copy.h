/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies and fills as jobs, for streams and for graphs.
 */
#ifndef TRANCHE_SIM_COPY_H
#define TRANCHE_SIM_COPY_H

#include "stream.h"

struct copy {
	struct job job;
	uint8_t *to;
	const uint8_t *from;
	size_t to_pitch, to_slice;     /* bytes from row to row, and from slice to slice */
	size_t from_pitch, from_slice;
	size_t width, height, depth;   /* bytes, rows, slices */
	int to_device, from_device;    /* -1: host memory */
	bool to_pageable, from_pageable;
	uint8_t *staged;               /* what was at from when the copy was asked for */
};

struct fill {
	struct job job;
	uint8_t *to;
	size_t pitch, width, height; /* bytes, bytes, rows */
	unsigned value;
	unsigned element; /* 1, 2 or 4 bytes */
	int device;
};

/* Whether the memory of an allocation node of a graph covers it, which is not there before a launch. */
bool graph_memory_covers(CUdeviceptr address, size_t bytes, int *device);

/* Checks what is to be copied, by a device. *copy is NULL where there is nothing to do. */
CUresult copy_make(const CUDA_MEMCPY3D *params, const struct sim_device *device, struct copy **copy);
CUresult fill_make(const CUDA_MEMSET_NODE_PARAMS_v2 *params, const struct sim_device *device, struct fill **fill);

enum {
	COPY_ASYNC = 2, /* besides LEGACY and PER_THREAD */
};
CUresult copy_run(const CUDA_MEMCPY3D *params, CUstream stream, unsigned how);
CUresult fill_run(CUdeviceptr to, size_t pitch, unsigned value, unsigned element, size_t width, size_t height, CUstream stream,
		  unsigned how);

#endif
