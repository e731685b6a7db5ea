/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches on several cards at once: under the leases of all of them. They are recorded after they
 * were made, for a batch belongs to one card; until then the thread is at the gates of all.
 */
#include <errno.h>

#include "around.h"
#include "lease_inside.h"
#include "zz_generated_hooks.h"

const struct meter meter_any;

/* Where one launch goes; its context is current until leave. NULL: it is not gated. */
static struct meter *enter(const CUDA_LAUNCH_PARAMS *launch, struct owner *owner)
{
	CUcontext context = NULL;
	struct meter *meter = NULL;
	struct card *card;

	if (capture_is_on(launch->hStream) || real_cuStreamGetCtx(launch->hStream, &context) != CUDA_SUCCESS ||
	    real_cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
		return NULL;
	if (context_current(&card, owner) == CUDA_SUCCESS)
		meter = meter_of(card);
	if (!meter)
		real_cuCtxPopCurrent_v2(&context);
	return meter;
}

static void leave(void)
{
	CUcontext context;

	real_cuCtxPopCurrent_v2(&context);
}

static CUresult wait_for(struct meter *meter)
{
	enum lease_view view;
	CUresult result;
	uint32_t word;

	do {
		result = meter_await(meter, &view, &word);
		if (result != CUDA_SUCCESS || view == VIEW_FREE)
			return result;
	} while (!flight_admit(meter, NULL, meter_window(meter)));
	return CUDA_SUCCESS;
}

static bool is_open(struct meter *meter)
{
	enum lease_view view;
	uint64_t left;
	uint32_t word;

	view = meter_view(meter, &word, &left);
	return view == VIEW_FREE || (view == VIEW_OPEN && meter_is_wanted(meter));
}

static bool all_are_open(const CUDA_LAUNCH_PARAMS *list, unsigned int count)
{
	bool open = true;

	for (unsigned int i = 0; i < count && open; i++) {
		struct owner owner;
		struct meter *meter = enter(&list[i], &owner);

		if (!meter)
			continue;
		open = is_open(meter);
		leave();
	}
	return open;
}

static CUresult begin(struct around *around, const CUDA_LAUNCH_PARAMS *list, unsigned int count)
{
	struct thread *thread = thread_mine();

	for (;;) {
		for (unsigned int i = 0; i < count; i++) {
			struct owner owner;
			struct meter *meter = enter(&list[i], &owner);
			CUresult result;

			if (!meter)
				continue;
			result = wait_for(meter);
			leave();
			if (result != CUDA_SUCCESS)
				return result;
		}
		if (!thread)
			return CUDA_SUCCESS;
		be_inside(thread, &meter_any);
		if (all_are_open(list, count))
			break;
		be_inside(thread, NULL);
	}
	thread->list = list;
	thread->count = count;
	around->inside = &thread->inside;
	around->tally = NULL;
	return CUDA_SUCCESS;
}

CUresult lease_begin_many(struct around *around, const CUDA_LAUNCH_PARAMS *list, unsigned int count)
{
	int saved = errno, cancel;
	CUresult result;

	if (session_state() != SESSION_OPEN)
		return CUDA_SUCCESS;
	cancel = cancel_defer();
	result = begin(around, list, count);
	cancel_restore(cancel);
	errno = saved;
	return result;
}

static void record(struct thread *thread, const CUDA_LAUNCH_PARAMS *launch)
{
	struct owner owner;
	struct meter *meter = enter(launch, &owner);
	uint64_t left;
	uint32_t word;

	if (!meter)
		return;
	if (meter_view(meter, &word, &left) != VIEW_FREE)
		tally_late(thread, meter, &owner,
			   &(struct work){
				   .what = launch->function,
				   .shape = lease_shape((uint64_t)launch->gridDimX * launch->gridDimY * launch->gridDimZ),
				   .units = 1,
				   .stream = launch->hStream,
			   },
			   word);
	leave();
}

void lease_end_many(struct around *around, bool launched)
{
	struct thread *thread = thread_mine();
	int saved = errno, cancel = cancel_defer();

	for (unsigned int i = 0; launched && i < thread->count; i++)
		record(thread, &thread->list[i]);
	__atomic_store_n(around->inside, NULL, __ATOMIC_RELEASE);
	cancel_restore(cancel);
	errno = saved;
}
