/* SPDX-License-Identifier: Apache-2.0
 *
 * abrupt contexts|primary
 *
 * Programs that end what is at work. Says "ready" and begins when a line comes.
 *   contexts  makes contexts and destroys each with a kernel in flight, without end
 *   primary   the same with the primary context, which it releases
 */
#include "kernels.h"

#define LONG_NS 30000000u

static void contexts(void)
{
	for (;;) {
		struct kernels kernels;
		CUcontext context;

		TRY(cuCtxCreate_v2(&context, 0, 0));
		kernels = load_kernels();
		TRY(launch_spin(&kernels, LONG_NS, NULL));
		TRY(cuCtxDestroy_v2(context));
	}
}

static void primary(void)
{
	for (;;) {
		struct kernels kernels;

		use_device(0);
		kernels = load_kernels();
		TRY(launch_spin(&kernels, LONG_NS, NULL));
		TRY(cuDevicePrimaryCtxRelease_v2(0));
	}
}

static const struct {
	const char *name;
	void (*run)(void);
} modes[] = {{"contexts", contexts}, {"primary", primary}};

int main(int argc, char **argv)
{
	char line[64];

	TRY(cuInit(0));
	for (size_t i = 0; argc == 2 && i < COUNT(modes); i++) {
		if (strcmp(modes[i].name, argv[1]))
			continue;
		say("ready");
		HOLDS(fgets(line, sizeof line, stdin));
		modes[i].run();
		say("ok");
		return 0;
	}
	fail("usage: abrupt contexts|primary");
}
