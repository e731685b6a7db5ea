/* SPDX-License-Identifier: Apache-2.0 */
#include "tool.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
	"usage: tranche-simcard COMMAND [OPTIONS] [UUID]\n"
	"\n"
	"  create UUID --memory SIZE   make a card; one that exists with the same facts is kept\n"
	"  list                        what cards there are\n"
	"  truth [UUID]                who holds what of a card, as the card itself knows it\n"
	"  runs UUID [--since N]       which process had the card when\n"
	"  watch UUID                  a line for every change\n"
	"  reap [UUID]                 free what dead processes and closed descriptors left, as the driver does when it needs room\n"
	"\n"
	"  --dir DIR            directory of the cards (default: $" SIMCARD_DIR_ENV ", else " SIMCARD_DIR ")\n"
	"  --json               list, truth, runs: print JSON\n"
	"  --interval-ms N      watch: time between two looks (default 10)\n"
	"  --count N            watch: end after so many looks\n"
	"\n"
	"create, sizes as bytes or with MiB or GiB:\n"
	"  --memory SIZE        of the card, whole frames of 2 MiB\n"
	"  --driver-memory SIZE what the driver itself holds (default 0)\n"
	"  --context SIZE       what one context takes (default 256MiB)\n"
	"  --name NAME  --pci BUSID  --index N  --minor N\n"
	"  --profile N          470, 535, 550 or 580 (default 550)\n"
	"  --driver VERSION  --cuda VERSION  --compute VERSION, as in 550.54.14, 12.4 and 8.6\n"
	"  --multiprocessors N  --threads N (for each multiprocessor)\n"
	"  --time-slice-us N    a turn of a process among others (default 2000)\n"
	"  --copy-mbps N        speed of copies, 10^6 bytes a second (default 24000)\n";

void fail(const char *format, ...)
{
	va_list args;

	fputs("tranche-simcard: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

static uint64_t number(const char *option, const char *text, uint64_t max)
{
	char *end;
	uint64_t n;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || n > max)
		fail("--%s %s: want a number from 0 to %" PRIu64, option, text, max);
	return n;
}

static uint64_t size(const char *option, const char *text)
{
	char *end;
	uint64_t n;
	unsigned shift;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (strcmp(end, "GiB") == 0 || strcmp(end, "Gi") == 0)
		shift = 30;
	else if (strcmp(end, "MiB") == 0 || strcmp(end, "Mi") == 0)
		shift = 20;
	else
		shift = *end ? 64 : 0;
	if (errno || end == text || *text == '-' || shift == 64 || n > UINT64_MAX >> shift)
		fail("--%s %s: want a size like 8589934592, 512MiB or 24GiB", option, text);
	return n << shift;
}

/* Reads "12.4" as two numbers. */
static void two_numbers(const char *option, const char *text, unsigned *major, unsigned *minor)
{
	char rest;

	if (sscanf(text, "%4u.%1u%c", major, minor, &rest) != 2)
		fail("--%s %s: want two numbers like 8.6", option, text);
}

static void copy_text(const char *option, const char *text, char *field, size_t room)
{
	if (strlen(text) >= room)
		fail("--%s %s: want at most %zu bytes", option, text, room - 1);
	memcpy(field, text, strlen(text) + 1);
}

static const struct option long_options[] = {
	{ "dir", required_argument, NULL, 'd' },
	{ "json", no_argument, NULL, 'j' },
	{ "since", required_argument, NULL, 's' },
	{ "interval-ms", required_argument, NULL, 'i' },
	{ "count", required_argument, NULL, 'c' },
	{ "memory", required_argument, NULL, 'm' },
	{ "driver-memory", required_argument, NULL, 'M' },
	{ "context", required_argument, NULL, 'x' },
	{ "name", required_argument, NULL, 'n' },
	{ "pci", required_argument, NULL, 'p' },
	{ "index", required_argument, NULL, 'I' },
	{ "minor", required_argument, NULL, 'N' },
	{ "profile", required_argument, NULL, 'P' },
	{ "driver", required_argument, NULL, 'D' },
	{ "cuda", required_argument, NULL, 'C' },
	{ "compute", required_argument, NULL, 'G' },
	{ "multiprocessors", required_argument, NULL, 'S' },
	{ "threads", required_argument, NULL, 'T' },
	{ "time-slice-us", required_argument, NULL, 't' },
	{ "copy-mbps", required_argument, NULL, 'b' },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

/* Takes an option that says a fact of a new card. */
static void take_fact(struct simcard *f, int which, const char *option, const char *arg)
{
	unsigned major, minor;

	switch (which) {
	case 'm': f->memory_total = size(option, arg); break;
	case 'M': f->memory_driver = size(option, arg); break;
	case 'x': f->context_bytes = size(option, arg); break;
	case 'n': copy_text(option, arg, f->name, sizeof(f->name)); break;
	case 'p': copy_text(option, arg, f->pci_bus_id, sizeof(f->pci_bus_id)); break;
	case 'D': copy_text(option, arg, f->driver_version, sizeof(f->driver_version)); break;
	case 'I': f->index = (uint32_t)number(option, arg, 255); break;
	case 'N': f->minor = (uint32_t)number(option, arg, 255); break;
	case 'P': f->profile = (uint32_t)number(option, arg, 999); break;
	case 'S': f->multiprocessors = (uint32_t)number(option, arg, 1024); break;
	case 'T': f->threads_per_multiprocessor = (uint32_t)number(option, arg, 4096); break;
	case 't': f->time_slice = 1000 * number(option, arg, 1000000); break;
	case 'b': f->copy_bytes_per_second = 1000000 * number(option, arg, 1000000000); break;
	case 'G': two_numbers(option, arg, &f->compute_major, &f->compute_minor); break;
	case 'C':
		two_numbers(option, arg, &major, &minor);
		f->cuda_version = 1000 * major + 10 * minor;
		break;
	}
}

static void take_options(struct options *o, int argc, char **argv)
{
	int which, index;

	while ((which = getopt_long(argc, argv, "", long_options, &index)) != -1) {
		switch (which) {
		case 'd': o->dir = optarg; break;
		case 'j': o->json = true; break;
		case 's': o->since = number("since", optarg, UINT64_MAX - 1); break;
		case 'i': o->interval = 1000000 * number("interval-ms", optarg, 3600000); break;
		case 'c': o->count = number("count", optarg, UINT32_MAX); break;
		case 'h': fputs(usage, stdout); exit(0);
		case '?': exit(2);
		default: take_fact(&o->facts, which, long_options[index].name, optarg);
		}
	}
	o->card = argv[optind];
	if (o->card && argv[optind + 1])
		fail("%s: one card at most is expected", argv[optind + 1]);
}

int main(int argc, char **argv)
{
	/* The facts are inside a whole card, which is too large for a stack. */
	static struct options o = { .interval = 10000000 };

	o.dir = card_dir();
	if (argc < 2) {
		fputs(usage, stderr);
		return 2;
	}
	take_options(&o, argc - 1, argv + 1);
	if (strcmp(argv[1], "create") == 0)
		return command_create(&o);
	if (strcmp(argv[1], "list") == 0)
		return command_list(&o);
	if (strcmp(argv[1], "truth") == 0)
		return command_truth(&o);
	if (strcmp(argv[1], "runs") == 0)
		return command_runs(&o);
	if (strcmp(argv[1], "watch") == 0)
		return command_watch(&o);
	if (strcmp(argv[1], "reap") == 0)
		return command_reap(&o);
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
		fputs(usage, stdout);
		return 0;
	}
	fail("%s: no such command; --help lists them", argv[1]);
}
