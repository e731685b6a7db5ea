/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks the substitute and the real driver behind it for everything, side by
 * side:
 *
 *	probe SUBSTITUTE REAL < NAMES
 *
 * NAMES are lines "hooked NAME" (a symbol that the runtime exports), "passed
 * NAME" (one that it does not), and "base NAME" (one to ask cuGetProcAddress for).
 * Writes a line about each answer that is not as it should be, and last how many
 * answers it has seen. Links nothing.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

typedef int get_v1(const char *, void **, int, uint64_t);
typedef int get_v2(const char *, void **, int, uint64_t, int *);

struct name {
	char kind;
	char text[120];
	void *real; /* of "hooked" and "passed" */
};

static struct name names[4096];
static size_t count;
static unsigned long seen, wrong;

static const char *where(void *address)
{
	static char text[2][512];
	static int turn;
	Dl_info info;
	char *out = text[turn++ & 1];

	if (address == NULL)
		return "nothing";
	if (!dladdr(address, &info))
		return "nowhere";
	snprintf(out, sizeof text[0], "%s of %s", info.dli_sname ? info.dli_sname : "?", info.dli_fname);
	return out;
}

/* What the runtime is to give in place of the driver's answer. */
static void *want(void *substitute, void *real)
{
	for (size_t i = 0; i < count && real != NULL; i++)
		if (names[i].kind == 'h' && names[i].real == real)
			return dlsym(substitute, names[i].text);
	return real;
}

static void check(const char *what, void *got, void *wanted)
{
	seen++;
	if (got == wanted)
		return;
	wrong++;
	printf("%s: %s, not ", what, where(got));
	printf("%s\n", where(wanted));
}

static void ask(void *substitute, void *real, const char *base, int version, uint64_t flags)
{
	get_v1 *ours1 = (get_v1 *)dlsym(substitute, "cuGetProcAddress"), *theirs1 = (get_v1 *)dlsym(real, "cuGetProcAddress");
	get_v2 *ours2 = (get_v2 *)dlsym(substitute, "cuGetProcAddress_v2"), *theirs2 = (get_v2 *)dlsym(real, "cuGetProcAddress_v2");
	void *got = NULL, *answer = NULL;
	int said[2], status[2] = {-1, -1};
	char what[256];

	snprintf(what, sizeof what, "%s for CUDA %d with flags %d", base, version, (int)flags);
	said[0] = ours1(base, &got, version, flags);
	said[1] = theirs1(base, &answer, version, flags);
	check(what, got, want(substitute, answer));
	if (theirs2 != NULL) {
		got = answer = NULL;
		said[0] |= ours2(base, &got, version, flags, &status[0]) << 16;
		said[1] |= theirs2(base, &answer, version, flags, &status[1]) << 16;
		check(what, got, want(substitute, answer));
	}
	if (said[0] != said[1] || status[0] != status[1]) {
		wrong++;
		printf("%s: result %x status %d, not %x and %d\n", what, said[0], status[0], said[1], status[1]);
	}
}

int main(int argc, char **argv)
{
	static const int versions[] = {
		0, 1000, 2000, 2010, 3000, 3020, 4000, 5000, 5050, 6050, 7000, 8000, 9000, 10000, 10020, 11000, 11010, 11020, 11030,
		11040, 11060, 11080, 12000, 12010, 12020, 12030, 12040, 12050, 12080, 13000, 13010, 13030, 99999,
	};
	void *real, *substitute;
	char kind[16];

	if (argc != 3)
		return 2;
	substitute = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
	real = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
	if (substitute == NULL || real == NULL) {
		printf("%s\n", dlerror());
		return 1;
	}
	while (count < sizeof names / sizeof names[0] && scanf("%15s %119s", kind, names[count].text) == 2) {
		names[count].kind = kind[0];
		names[count].real = kind[0] == 'b' ? NULL : dlsym(real, names[count].text);
		count++;
	}
	for (size_t i = 0; i < count; i++) {
		if (names[i].kind != 'b') {
			void *got = dlsym(substitute, names[i].text);
			Dl_info info = {0};

			if (names[i].kind == 'p')
				check(names[i].text, got, names[i].real);
			else if (got == NULL || got == names[i].real || !dladdr(got, &info))
				check(names[i].text, got, NULL);
			else
				seen++;
			continue;
		}
		for (size_t v = 0; v < sizeof versions / sizeof versions[0]; v++)
			for (uint64_t flags = 0; flags <= 2; flags++)
				ask(substitute, real, names[i].text, versions[v], flags);
	}
	printf("%lu answers, %lu wrong\n", seen, wrong);
	return wrong != 0;
}
