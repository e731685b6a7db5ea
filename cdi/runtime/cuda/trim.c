/* SPDX-License-Identifier: Apache-2.0 */
#include "trim.h"

#include "reservoir.h"
#include "zz_generated_hooks.h"

/* Synchronisation is frequent, and a measurement is slow. */
#define LOOK_AGAIN_NS 10000000ull

/* One of the two sees the other: each tells first and looks then. */
bool reservoir_relaunch(struct reservoir *reservoir, uint64_t trims)
{
	__atomic_add_fetch(&reservoir->relaunches, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&reservoir->trims, __ATOMIC_SEQ_CST) == trims && __atomic_load_n(&reservoir->trimming, __ATOMIC_SEQ_CST) == 0)
		return true;
	reservoir_relaunched(reservoir);
	return false;
}

void reservoir_relaunched(struct reservoir *reservoir)
{
	__atomic_sub_fetch(&reservoir->relaunches, 1, __ATOMIC_SEQ_CST);
}

bool reservoir_begin_trim(struct reservoir *reservoir, uint64_t deadline)
{
	__atomic_add_fetch(&reservoir->trimming, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&reservoir->relaunches, __ATOMIC_SEQ_CST) == 0 || now_ns() >= deadline)
		return true;
	__atomic_sub_fetch(&reservoir->trimming, 1, __ATOMIC_SEQ_CST);
	return false;
}

void reservoir_end_trim(struct reservoir *reservoir)
{
	__atomic_add_fetch(&reservoir->trims, 1, __ATOMIC_SEQ_CST);
	__atomic_sub_fetch(&reservoir->trimming, 1, __ATOMIC_SEQ_CST);
}

/* Lets the driver give back what it can of a reservoir, down to keep. */
static void trim(struct reservoir *reservoir, uint64_t keep)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	if (!reservoir_begin_trim(reservoir, UINT64_MAX))
		return;
	/* Trimming must not end a capture that the program is in. */
	real_cuThreadExchangeStreamCaptureMode(&mode);
	card_begin(reservoir->card);
	if (reservoir->pool)
		real_cuMemPoolTrimTo(reservoir->pool, keep);
	else
		real_cuDeviceGraphMemTrim(reservoir->card->device);
	reservoir_end_trim(reservoir);
	reservoir_settle(reservoir, NULL);
	real_cuThreadExchangeStreamCaptureMode(&mode);
}

bool trim_card(struct card *card)
{
	struct reservoir *reservoir;
	bool found = card_look_again(card, 0) || card_look_at_ended(card);

	if (!reservoirs_charged())
		return found;
	for (size_t i = 0; (reservoir = reservoir_nth(card, i)); i++) {
		uint64_t before = reservoir_charge(reservoir);

		if (before != 0) {
			trim(reservoir, 0);
			found |= reservoir_charge(reservoir) < before;
		}
		reservoir_put(reservoir);
	}
	return found;
}

void trim_settle(struct card *card)
{
	struct reservoir *reservoir;

	for (size_t i = 0; (reservoir = reservoir_nth(card, i)); i++) {
		if (reservoir_charge(reservoir) != 0) {
			card_begin(card);
			reservoir_settle(reservoir, NULL);
		}
		reservoir_put(reservoir);
	}
}

/* What synchronisation does to pools. */
static void trim_to_thresholds(struct card *card)
{
	struct reservoir *reservoir;

	for (size_t i = 0; (reservoir = reservoir_nth(card, i)); i++) {
		uint64_t threshold = __atomic_load_n(&reservoir->threshold, __ATOMIC_RELAXED);

		if (reservoir->pool && reservoir_charge(reservoir) > threshold)
			trim(reservoir, threshold);
		reservoir_put(reservoir);
	}
}

void trim_synchronized(void)
{
	bool doubts = cards_in_doubt();

	if (!doubts && !reservoirs_charged())
		return;
	for (size_t i = 0; i < card_count(); i++) {
		trim_to_thresholds(card_at(i));
		if (doubts)
			card_look_again(card_at(i), LOOK_AGAIN_NS);
	}
}
