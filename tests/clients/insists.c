/* SPDX-License-Identifier: Apache-2.0
 *
 * insists
 *
 * Some threads load modules without end, each of which is measured. Another one answers each line
 * with a launch, "result=N" (a CUresult).
 */
#include <pthread.h>

#include "kernels.h"

#define THREADS 8

static void *insist(void *context)
{
	CUmodule module;

	TRY(cuCtxSetCurrent(context));
	for (;;)
		if (cuModuleLoadData(&module, kernels_text) == CUDA_SUCCESS)
			TRY(cuModuleUnload(module));
	return NULL;
}

int main(void)
{
	CUcontext context = use_device(0);
	struct kernels kernels = load_kernels();
	pthread_t thread;
	char line[64];

	for (int i = 0; i < THREADS; i++)
		HOLDS(pthread_create(&thread, NULL, insist, context) == 0);
	say("ready");
	while (fgets(line, sizeof line, stdin)) {
		CUresult result = launch_spin(&kernels, 1000, NULL);

		if (result == CUDA_SUCCESS)
			result = cuCtxSynchronize();
		say("result=%d", (int)result);
	}
	return 0;
}
