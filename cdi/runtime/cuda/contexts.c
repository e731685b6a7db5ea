/* SPDX-License-Identifier: Apache-2.0
 *
 * Contexts come and go. What one takes is known only afterwards, so an
 * estimate is taken before, and the card measured after.
 */
#include <stdlib.h>

#include "around.h"
#include "charge.h"
#include "context.h"
#include "trim.h"
#include "zz_generated_hooks.h"

/* Who may end the primary context waits for threads that retain it as it is, which is
 * short; not for one that hangs. */
#define RETAIN_PATIENCE_NS 1000000000ull
#define RETAIN_NAP_NS 20000ull

/* Opens the common part: nothing is done in a call of the driver's own. */
static bool enter(struct around *around)
{
	*around = (struct around){ .idle = !guard_enter() };
	return !around->idle;
}

static CUresult leave_with(struct around *around, CUresult result)
{
	around->idle = true;
	guard_leave();
	return result;
}

static uint64_t context_estimate(const struct card *card)
{
	uint64_t most = 0;

	for (size_t i = 0; i < card->shares; i++) {
		uint64_t estimate = __atomic_load_n(&session_grant(card->share[i])->context_estimate, __ATOMIC_RELAXED);

		if (estimate > most)
			most = estimate;
	}
	return frames_of(most);
}

/* The driver refuses it, and knows best why; but of some we might know nothing. */
static CUresult no_such_device(void)
{
	int count;

	return real_cuDeviceGetCount(&count) == CUDA_SUCCESS && (size_t)count == card_count() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult begin(struct around *around, CUdevice device)
{
	CUresult result = cards_ready();

	if (result != CUDA_SUCCESS)
		return leave_with(around, result);
	around->card = card_of(device);
	if (!around->card)
		return leave_with(around, no_such_device());
	result = card_connect(around->card);
	if (result == CUDA_SUCCESS && session_closed())
		result = CUDA_ERROR_SYSTEM_NOT_READY;
	if (result == CUDA_SUCCESS)
		result = estimate_take(&around->taken, around->card, context_estimate(around->card));
	return result == CUDA_SUCCESS ? CUDA_SUCCESS : leave_with(around, result);
}

/* The driver has made it. Otherwise than with CUDA_SUCCESS it has to be undone, and
 * after_undo called. */
static CUresult judge(struct around *around)
{
	context_count(around->card, 1);
	if (!session_start_liaison()) {
		session_say("the system refuses a thread; CUDA is refused");
		estimate_give(&around->taken);
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	return estimate_settle(&around->taken, around->card);
}

static void after_undo(struct around *around)
{
	context_count(around->card, -1);
	hold_measure(NULL, around->card, false);
}

/* The driver has not made it. True: some room was found, try again. */
static bool failed(struct around *around, CUresult result)
{
	uint64_t estimate = around->taken.hold.bytes;

	estimate_give(&around->taken);
	return result == CUDA_ERROR_OUT_OF_MEMORY && around->tries++ == 0 && trim_card(around->card) &&
	       estimate_take(&around->taken, around->card, estimate) == CUDA_SUCCESS;
}

CUresult around_begin_context(struct around *around, CUcontext *made, CUdevice device)
{
	/* The driver refuses this, and knows best why. */
	if (!made) {
		*around = (struct around){ .idle = true };
		return CUDA_SUCCESS;
	}
	if (!enter(around))
		return CUDA_SUCCESS;
	around->made = (void **)made;
	return begin(around, device);
}

bool around_end_context(struct around *around, CUresult *result)
{
	CUcontext context;

	if (around->idle)
		return false;
	if (*result != CUDA_SUCCESS) {
		if (failed(around, *result))
			return true;
		guard_leave();
		return false;
	}
	context = *(CUcontext *)around->made;
	context_register(context, around->card);
	*result = judge(around);
	if (*result != CUDA_SUCCESS) {
		struct card *card;

		context_retire(context, &card);
		real_cuCtxDestroy_v2(context);
		*around->made = NULL;
		after_undo(around);
	}
	guard_leave();
	return false;
}

static bool is_active(const struct card *card)
{
	unsigned int flags;
	int active = 0;

	return real_cuDevicePrimaryCtxGetState(card->device, &flags, &active) == CUDA_SUCCESS && active;
}

/* Another thread may be making the same context, with the last room that there is: then
 * the result is the same for both. */
static CUresult begin_primary(struct around *around, CUdevice device)
{
	uint64_t deadline = now_ns() + SESSION_DEADLINE_NS;
	struct card *card = card_of(device);
	CUresult result;
	uint64_t ends;

	if (!card)
		return begin(around, device);
	for (;;) {
		/* While another thread releases it, it may be made anew. */
		__atomic_add_fetch(&card->primary_retaining, 1, __ATOMIC_SEQ_CST);
		ends = __atomic_load_n(&card->primary_ends, __ATOMIC_ACQUIRE);
		if (__atomic_load_n(&card->primary_ending, __ATOMIC_SEQ_CST) == 0 && is_active(card)) {
			around->card = card;
			around->number = 1; /* nothing is made */
			around->estimate = ends;
			around->taken.before = card_implicit(card);
			return CUDA_SUCCESS;
		}
		__atomic_sub_fetch(&card->primary_retaining, 1, __ATOMIC_SEQ_CST);
		result = begin(around, device);
		if (result != CUDA_ERROR_OUT_OF_MEMORY || __atomic_load_n(&card->primary_starting, __ATOMIC_ACQUIRE) == 0 ||
		    now_ns() >= deadline)
			break;
		guard_enter(); /* begin has left */
		around->idle = false;
		nap_ns(1000000);
	}
	if (result == CUDA_SUCCESS)
		__atomic_add_fetch(&card->primary_starting, 1, __ATOMIC_ACQ_REL);
	return result;
}

CUresult around_begin_primary(struct around *around, CUcontext *made, CUdevice device)
{
	CUresult result;

	if (!made) {
		*around = (struct around){ .idle = true };
		return CUDA_SUCCESS;
	}
	if (!enter(around))
		return CUDA_SUCCESS;
	around->made = (void **)made;
	result = cards_ready();
	return result == CUDA_SUCCESS ? begin_primary(around, device) : leave_with(around, result);
}

/* No other thread released it in the meantime, so that it was not made for this one; nor
 * for another that has yet to find out. */
static bool stayed_active(const struct around *around)
{
	return __atomic_load_n(&around->card->primary_retaining, __ATOMIC_SEQ_CST) == 1 &&
	       __atomic_load_n(&around->card->primary_ending, __ATOMIC_ACQUIRE) == 0 &&
	       __atomic_load_n(&around->card->primary_ends, __ATOMIC_ACQUIRE) == around->estimate;
}

void primary_await_retaining(struct card *card, uint32_t own)
{
	uint64_t deadline = now_ns() + RETAIN_PATIENCE_NS;

	while (__atomic_load_n(&card->primary_retaining, __ATOMIC_SEQ_CST) > own && now_ns() < deadline)
		nap_ns(RETAIN_NAP_NS);
}

static void undo_primary(struct around *around)
{
	struct card *card = around->card;

	__atomic_add_fetch(&card->primary_ending, 1, __ATOMIC_SEQ_CST);
	primary_await_retaining(card, around->number != 0 ? 1 : 0);
	__atomic_sub_fetch(&card->primary_refs, 1, __ATOMIC_ACQ_REL);
	real_cuDevicePrimaryCtxRelease_v2(card->device);
	*around->made = NULL;
	if (!is_active(card) && __atomic_exchange_n(&card->primary_counted, 0, __ATOMIC_ACQ_REL) != 0)
		context_count(card, -1);
	hold_measure(NULL, card, false);
	__atomic_add_fetch(&card->primary_ends, 1, __ATOMIC_ACQ_REL);
	__atomic_sub_fetch(&card->primary_ending, 1, __ATOMIC_ACQ_REL);
}

static void primary_made(struct around *around, CUresult *result)
{
	struct card *card = around->card;

	context_register(*(CUcontext *)around->made, card);
	__atomic_store_n(&card->primary, *(CUcontext *)around->made, __ATOMIC_RELEASE);
	__atomic_add_fetch(&card->primary_refs, 1, __ATOMIC_ACQ_REL);
	if (around->number != 0 && stayed_active(around))
		return;
	/* Several may have made the same one. */
	*result = judge(around);
	if (__atomic_exchange_n(&card->primary_counted, 1, __ATOMIC_ACQ_REL) != 0)
		context_count(card, -1);
	if (*result != CUDA_SUCCESS)
		undo_primary(around);
}

bool around_end_primary(struct around *around, CUresult *result)
{
	if (around->idle)
		return false;
	if (*result == CUDA_SUCCESS) {
		primary_made(around, result);
	} else if (around->number == 0 && failed(around, *result)) {
		return true;
	}
	__atomic_sub_fetch(around->number == 0 ? &around->card->primary_starting : &around->card->primary_retaining, 1, __ATOMIC_SEQ_CST);
	guard_leave();
	return false;
}

CUresult around_begin_green(struct around *around, CUgreenCtx *made, CUdevice device)
{
	/* The driver refuses this, and knows best why. */
	if (!made) {
		*around = (struct around){ .idle = true };
		return CUDA_SUCCESS;
	}
	if (!enter(around))
		return CUDA_SUCCESS;
	around->made = (void **)made;
	return begin(around, device);
}

bool around_end_green(struct around *around, CUresult *result)
{
	if (around->idle)
		return false;
	if (*result != CUDA_SUCCESS) {
		if (failed(around, *result))
			return true;
		guard_leave();
		return false;
	}
	*result = judge(around);
	if (*result != CUDA_SUCCESS) {
		real_cuGreenCtxDestroy(*(CUgreenCtx *)around->made);
		*around->made = NULL;
		after_undo(around);
	}
	guard_leave();
	return false;
}

/* What a limit of a context costs beyond the default, at most. The driver may take the
 * new memory before it gives the old back, so what the limit was before makes no
 * difference. */
static uint64_t limit_cost(struct card *card, CUlimit limit, size_t value, size_t before)
{
	int processors = 0, threads = 0;
	uint64_t none = 0, more;

	if (limit >= CARD_LIMITS)
		return 0;
	/* Who sets it for the first time finds the default. */
	__atomic_compare_exchange_n(&card->limit_default[limit], &none, before, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	before = __atomic_load_n(&card->limit_default[limit], __ATOMIC_RELAXED);
	more = value > before ? value - before : 0;
	if (limit == CU_LIMIT_STACK_SIZE) {
		real_cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, card->device);
		real_cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, card->device);
		if (__builtin_mul_overflow(more, (uint64_t)processors * (uint64_t)threads, &more))
			return UINT64_MAX;
	}
	return frames_of(more);
}

CUresult around_begin_limit(struct around *around, CUlimit limit, size_t value)
{
	struct owner owner;
	size_t before = 0;
	CUresult result;

	if (!enter(around))
		return CUDA_SUCCESS;
	result = context_current(&around->card, &owner);
	if (result == CUDA_SUCCESS)
		result = real_cuCtxGetLimit(&before, limit);
	if (result != CUDA_SUCCESS)
		return leave_with(around, result);
	around->number = before;
	around->estimate = (uint64_t)limit;
	around->handle = NULL;
	result = estimate_take(&around->taken, around->card, limit_cost(around->card, limit, value, before));
	return result == CUDA_SUCCESS ? CUDA_SUCCESS : leave_with(around, result);
}

bool around_end_limit(struct around *around, CUresult *result)
{
	if (around->idle)
		return false;
	if (*result != CUDA_SUCCESS) {
		if (failed(around, *result))
			return true;
	} else {
		*result = estimate_settle(&around->taken, around->card);
		if (*result != CUDA_SUCCESS) {
			real_cuCtxSetLimit((CUlimit)around->estimate, around->number);
			hold_measure(NULL, around->card, false);
		}
	}
	guard_leave();
	return false;
}
