/* SPDX-License-Identifier: Apache-2.0 */
#include "card.h"

#include <stdlib.h>

#include "zz_generated_hooks.h"

CUresult hook_cuInit(unsigned int Flags)
{
	CUresult result;

	switch (session_open(TRANCHE_ROLE_PROCESS)) {
	case SESSION_OPEN:
		break;
	case SESSION_FORKED:
		return CUDA_ERROR_NOT_INITIALIZED;
	default:
		return CUDA_ERROR_SYSTEM_NOT_READY;
	}
	result = real_cuInit(Flags);
	return result == CUDA_SUCCESS ? cards_find() : result;
}

/* Real functions that have a wrapper, by their address. Made at the first question;
 * the driver has all of its functions from the start. */
#define BUCKETS 1024u /* a power of two, several times CUDA_HOOKS */

struct wrapped {
	void *real;
	void *wrapper;
};

static struct wrapped *table;

static size_t bucket_of(const void *real)
{
	return ((uintptr_t)real >> 4) * 0x9e3779b1u % BUCKETS;
}

/* Without a lock, which a child of fork would find taken for ever. */
static const struct wrapped *get_table(void)
{
	struct wrapped *known = __atomic_load_n(&table, __ATOMIC_ACQUIRE);
	struct wrapped *fresh;

	_Static_assert(CUDA_HOOKS * 2 < BUCKETS, "room for all hooks");
	if (known)
		return known;
	fresh = calloc(BUCKETS, sizeof(*fresh));
	for (size_t i = 0; fresh && i < CUDA_HOOKS; i++) {
		void *real = cuda_real((enum cuda_hook)i);
		size_t bucket = bucket_of(real);

		while (real && fresh[bucket].real)
			bucket = (bucket + 1) % BUCKETS;
		if (real)
			fresh[bucket] = (struct wrapped){ .real = real, .wrapper = cuda_hook_table[i].wrapper };
	}
	if (fresh && __atomic_compare_exchange_n(&table, &known, fresh, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return fresh;
	free(fresh);
	return known;
}

/* Of all that real drivers were seen to answer, nothing was a function that they do
 * not export, so an answer is known by its address. */
static CUresult replace(void **function)
{
	const struct wrapped *wrapped = get_table();

	if (!wrapped) {
		*function = NULL;
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (size_t i = bucket_of(*function); wrapped[i].real; i = (i + 1) % BUCKETS)
		if (wrapped[i].real == *function) {
			*function = wrapped[i].wrapper;
			break;
		}
	return CUDA_SUCCESS;
}

CUresult hook_cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
	CUresult result = real_cuGetProcAddress(symbol, pfn, cudaVersion, flags);

	return result == CUDA_SUCCESS && pfn && *pfn ? replace(pfn) : result;
}

CUresult hook_cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
				  CUdriverProcAddressQueryResult *symbolStatus)
{
	CUresult result = real_cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, symbolStatus);

	return result == CUDA_SUCCESS && pfn && *pfn ? replace(pfn) : result;
}
