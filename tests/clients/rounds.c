/* SPDX-License-Identifier: Apache-2.0
 *
 * rounds
 *
 * How fast the card is at arithmetic.h's kernel while nobody else uses it:
 * "rounds per_ms=N fma=N", with the multiply-adds that are in one round of all threads.
 */
#include "arithmetic.h"

/* The simulated card does a round in this time. */
#define SIMULATED_NS 10u
#define WARM_NS 300000000u /* until the card's clocks are up */
#define LONG_MS 20.0f
#define TRIES 3

static struct arithmetic a;
static CUevent before, after;

static float milliseconds(uint64_t rounds)
{
	float took;

	TRY(cuEventRecord(before, NULL));
	TRY(launch_arithmetic(&a, rounds * SIMULATED_NS, rounds, NULL));
	TRY(cuEventRecord(after, NULL));
	TRY(cuEventSynchronize(after));
	TRY(cuEventElapsedTime(&took, before, after));
	return took;
}

int main(void)
{
	uint64_t rounds = 1000, start = now_ns();
	float best = 0;

	use_device(0);
	a = load_arithmetic();
	TRY(cuEventCreate(&before, CU_EVENT_DEFAULT));
	TRY(cuEventCreate(&after, CU_EVENT_DEFAULT));
	while (milliseconds(rounds) < LONG_MS)
		rounds *= 2;
	while (now_ns() - start < WARM_NS)
		milliseconds(rounds);
	for (unsigned i = 0; i < TRIES; i++) {
		float took = milliseconds(rounds);

		best = i && best < took ? best : took;
	}
	say("rounds per_ms=%.0f fma=%u", (double)rounds / (double)best, a.blocks * ARITHMETIC_THREADS * ARITHMETIC_FMAS);
	return 0;
}
