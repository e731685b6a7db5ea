/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "around.h"
#include "charge.h"
#include "context.h"
#include "modules.h"
#include "trim.h"
#include "zz_generated_hooks.h"

/* What is remembered from before the call until after it. */
struct ending {
	struct owner owner;
	struct card *card;
};

/* The context is gone, and with it all that it held. Does card_end. */
static void ended(const struct ending *ending)
{
	struct charge *charges = charge_remove_owned(&ending->owner);
	struct hold freed = { .card = ending->card };
	struct hold doubt = { .card = ending->card };
	bool doubtful;

	while (charges) {
		struct charge *next = charges->next;

		charge_collect(charges, charges->exported ? &doubt : &freed);
		charges = next;
	}
	hold_keep(&freed, 0);
	hold_doubt(&doubt, false);
	doubtful = doubt.bytes != 0;
	trim_settle(ending->card);
	card_end(ending->card);
	modules_forget(&ending->owner);
	hold_measure(&doubt, ending->card, doubtful);
}

/* Remembers; false: nothing is to be done at the end. */
static bool begin(struct around *around, CUcontext context, struct card *card)
{
	struct ending *ending;

	*around = (struct around){ .idle = true };
	if (!context || cards_ready() != CUDA_SUCCESS)
		return false;
	ending = calloc(1, sizeof(*ending));
	if (!ending)
		return false;
	ending->card = card ? card : context_card(context);
	if (ending->card)
		lease_begin_ending(ending->card);
	lease_forget(context);
	ending->owner = context_retire(context, &ending->card);
	if (!ending->card) {
		lease_end_ending();
		free(ending);
		return false;
	}
	around->handle = ending;
	around->idle = false;
	/* What the context held is charged until it is gone, and is not to be
	 * taken for less meanwhile. */
	card_begin(ending->card);
	return true;
}

static void end(struct around *around, bool gone)
{
	struct ending *ending = around->handle;

	lease_end_ending();
	if (gone) {
		ended(ending);
	} else {
		card_end(ending->card);
		context_revive(ending->owner, ending->card);
	}
	free(ending);
}

CUresult around_begin_context_end(struct around *around, CUcontext context)
{
	begin(around, context, NULL);
	return CUDA_SUCCESS;
}

bool around_end_context_end(struct around *around, CUresult *result)
{
	if (around->idle)
		return false;
	if (*result == CUDA_SUCCESS)
		context_count(((struct ending *)around->handle)->card, -1);
	end(around, *result == CUDA_SUCCESS);
	return false;
}

/* Detaching destroys a context that nobody else is attached to; it has to be the
 * current one, and is no longer when it is gone. */
CUresult around_begin_context_detach(struct around *around, CUcontext context)
{
	if (begin(around, context, NULL))
		around->made = (void **)context;
	return CUDA_SUCCESS;
}

bool around_end_context_detach(struct around *around, CUresult *result)
{
	CUcontext current = NULL;
	bool gone;

	if (around->idle)
		return false;
	gone = *result == CUDA_SUCCESS && real_cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != (CUcontext)around->made;
	if (gone)
		context_count(((struct ending *)around->handle)->card, -1);
	end(around, gone);
	return false;
}

CUresult around_begin_green_end(struct around *around, CUgreenCtx context)
{
	CUcontext ordinary = NULL;

	if (cards_ready() == CUDA_SUCCESS)
		real_cuCtxFromGreenCtx(&ordinary, context);
	begin(around, ordinary, NULL);
	return CUDA_SUCCESS;
}

bool around_end_green_end(struct around *around, CUresult *result)
{
	return around_end_context_end(around, result);
}

/* The handle of the primary context, which the driver gives only to who retains it. */
static CUcontext primary_of(struct card *card)
{
	CUcontext context = NULL;

	if (real_cuDevicePrimaryCtxRetain(&context, card->device) != CUDA_SUCCESS)
		return NULL;
	real_cuDevicePrimaryCtxRelease_v2(card->device);
	return context;
}

static bool is_active(const struct card *card)
{
	unsigned int flags;
	int active = 0;

	return real_cuDevicePrimaryCtxGetState(card->device, &flags, &active) == CUDA_SUCCESS && active;
}

static CUresult begin_primary(struct around *around, CUdevice device, bool reset)
{
	struct card *card = cards_ready() == CUDA_SUCCESS ? card_of(device) : NULL;
	bool others, last;
	CUcontext context;

	*around = (struct around){ .idle = true };
	if (!card)
		return CUDA_SUCCESS;
	/* Who retains at the same time does not trust what it sees of the context. */
	others = __atomic_fetch_add(&card->primary_ending, 1, __ATOMIC_SEQ_CST) != 0;
	last = reset || others || __atomic_load_n(&card->primary_refs, __ATOMIC_ACQUIRE) <= 1;
	if (last)
		primary_await_retaining(card, 0);
	/* Only the last release ends the context. Of several at once any may be it. */
	if (last && is_active(card)) {
		context = __atomic_load_n(&card->primary, __ATOMIC_ACQUIRE);
		begin(around, context ? context : primary_of(card), card);
	}
	around->card = card;
	around->idle = false;
	return CUDA_SUCCESS;
}

/* The context ended after all, by a release that others were to outlive. */
static void ended_late(struct card *card)
{
	struct ending ending = { .card = card };
	CUcontext context = __atomic_load_n(&card->primary, __ATOMIC_ACQUIRE);

	if (!context)
		return;
	lease_forget(context);
	ending.owner = context_retire(context, &ending.card);
	card_begin(ending.card);
	ended(&ending);
}

static void end_primary(struct around *around, bool gone)
{
	struct card *card = around->card;
	/* Of several that see it gone one counts. */
	bool counts = gone && __atomic_exchange_n(&card->primary_counted, 0, __ATOMIC_ACQ_REL) != 0;

	if (counts)
		context_count(card, -1);
	if (around->handle)
		end(around, gone);
	else if (counts)
		ended_late(card);
	__atomic_add_fetch(&card->primary_ends, 1, __ATOMIC_ACQ_REL);
	__atomic_sub_fetch(&card->primary_ending, 1, __ATOMIC_ACQ_REL);
}

CUresult around_begin_primary_release(struct around *around, CUdevice device)
{
	return begin_primary(around, device, false);
}

bool around_end_primary_release(struct around *around, CUresult *result)
{
	uint32_t *refs, known;

	if (around->idle)
		return false;
	refs = &around->card->primary_refs;
	known = __atomic_load_n(refs, __ATOMIC_ACQUIRE);
	while (*result == CUDA_SUCCESS && known != 0 &&
	       !__atomic_compare_exchange_n(refs, &known, known - 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		;
	end_primary(around, *result == CUDA_SUCCESS && !is_active(around->card));
	return false;
}

CUresult around_begin_primary_reset(struct around *around, CUdevice device)
{
	return begin_primary(around, device, true);
}

bool around_end_primary_reset(struct around *around, CUresult *result)
{
	struct card *card = around->card;
	bool inactive;

	if (around->idle)
		return false;
	inactive = *result == CUDA_SUCCESS && !is_active(card);
	if (inactive) {
		__atomic_store_n(&card->primary_refs, 0, __ATOMIC_RELEASE);
		if (__atomic_exchange_n(&card->primary_counted, 0, __ATOMIC_ACQ_REL) != 0)
			context_count(card, -1);
	}
	/* What was allocated is gone in any case. */
	if (around->handle)
		end(around, *result == CUDA_SUCCESS);
	__atomic_add_fetch(&card->primary_ends, 1, __ATOMIC_ACQ_REL);
	__atomic_sub_fetch(&card->primary_ending, 1, __ATOMIC_ACQ_REL);
	return false;
}
