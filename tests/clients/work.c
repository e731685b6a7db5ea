/* SPDX-License-Identifier: Apache-2.0
 *
 * work [KEY=VALUE]...
 *
 * A tenant that gives a card work. Says "ready" when its processes have their
 * contexts, and begins when a line "go" comes, or with "go EPOCH" at that time of
 * CLOCK_MONOTONIC in nanoseconds. Work comes in batches of launches:
 *
 *   seconds=N      until the end, after the epoch
 *   kernels=NS,... lengths, drawn by chance where there are several
 *   by=parameter   one function that is told its length; by=function: one for each length
 *   batch=N        launches; as many as take about 5 ms by themselves
 *   ahead=N        batches submitted and not yet waited for: 2; 1 waits for each
 *   think=NS       pause after each batch
 *   rate=N         batches are requests, N in a second, at times that are independent of each other
 *   delay=MS on=MS off=MS  sleeps at first, and by turns later
 *   graph=1        each batch is one graph
 *   copy=BYTES     from the host, before each batch
 *   rounds=N       kernels compute, so many rounds of arithmetic.h in each millisecond of
 *                  their lengths, and do not look at the clock
 *   log=1          says "batch done=T" when the end of a batch was seen
 *   streams=N      that take batches in turn, of each thread
 *   threads=N processes=N
 *   devices=N      each batch goes to all of them, and is waited for on all
 *   seed=N
 *
 * It says, at the end: "request due=T submit=T done=T", "wake at=T" for the time just before
 * the first launch after a sleep, with rounds "ran kernels=N of=N" for those that
 * have counted themselves, and for each process "end launches=N".
 */
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "arithmetic.h"
#include "kernels.h"

#define MOST 16
#define MOST_STREAMS 32
#define MAX_BATCH 512
#define BATCH_NS 5000000u
/* Of kernels by their function, so that they fill a card as real ones do: some runtimes count blocks. */
#define BLOCKS 256
#define THREADS 256
#define MAX_WAKES 4096

static struct plan {
	uint64_t seconds, batch, ahead, think, rate, delay, on, off, graph, copy, rounds, log, streams, threads, processes, devices, seed;
	uint64_t kernel[MOST];
	unsigned kernels;
	bool by_function;
	uint64_t epoch, end;
} plan = {.seconds = 1, .ahead = 2, .streams = 1, .threads = 1, .processes = 1, .devices = 1, .kernel = {1000000}, .kernels = 1};

/* What a process has on a device. */
static struct {
	CUcontext context;
	struct kernels generic;
	struct arithmetic arithmetic;
	CUfunction function[MOST]; /* of each length */
} device[MOST];

struct request {
	uint64_t due, submit, done;
};

struct worker {
	pthread_t thread;
	struct dice dice;
	CUstream stream[MOST][MOST_STREAMS]; /* of each device */
	CUgraphExec graph[MOST];
	CUevent mark[MOST][MOST]; /* after the last batches, by their number */
	void *host;
	CUdeviceptr target[MOST];
	uint64_t launches;
	struct request *request;
	size_t requests;
	uint64_t wake[MAX_WAKES];
	size_t wakes;
	uint64_t seen; /* batches whose end was */
	uint64_t *done;
};

/* ---- time ------------------------------------------------------------------ */

/* When the tenant that would work at this time may: at once, or at the end of a sleep. */
static uint64_t awake_at(uint64_t now)
{
	uint64_t first = plan.epoch + plan.delay * 1000000u, period = (plan.on + plan.off) * 1000000u, within;

	if (now < first)
		return first;
	if (!plan.off)
		return now;
	within = (now - first) % period;
	return within < plan.on * 1000000u ? now : now - within + period;
}

/* ---- work ------------------------------------------------------------------ */

static void use(unsigned n)
{
	if (plan.devices > 1)
		TRY(cuCtxSetCurrent(device[n].context));
}

static CUresult launch_one(unsigned n, unsigned i, CUstream stream)
{
	uint64_t rounds = plan.kernel[i] * plan.rounds / 1000000u;

	if (plan.rounds)
		return launch_arithmetic(&device[n].arithmetic, plan.kernel[i], rounds ? rounds : 1, stream);
	if (plan.by_function)
		return cuLaunchKernel(device[n].function[i], BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, NULL, NULL);
	return launch_spin(&device[n].generic, plan.kernel[i], stream);
}

static void launch_batch(struct worker *w, unsigned n, CUstream stream)
{
	for (uint64_t left = plan.batch; left; left--)
		TRY(launch_one(n, plan.kernels > 1 ? (unsigned)below(&w->dice, plan.kernels) : 0, stream));
}

/* That batch has ended. Batches are awaited in their order, the last ones twice at times. */
static void saw(struct worker *w, uint64_t number)
{
	if (!plan.log || number < w->seen)
		return;
	if (!(w->seen & (w->seen + 1))) /* full, at one less than a power of two */
		HOLDS(w->done = realloc(w->done, 2 * (w->seen + 1) * sizeof *w->done));
	w->done[w->seen++] = now_ns();
}

static void submit(struct worker *w, uint64_t number)
{
	for (unsigned n = 0; n < plan.devices; n++) {
		CUstream stream = w->stream[n][number % plan.streams];

		use(n);
		if (plan.copy)
			TRY(cuMemcpyHtoDAsync_v2(w->target[n], w->host, plan.copy, stream));
		if (plan.graph)
			TRY(cuGraphLaunch(w->graph[n], stream));
		else
			launch_batch(w, n, stream);
		TRY(cuEventRecord(w->mark[n][number % plan.ahead], stream));
		w->launches += plan.graph ? 1 : plan.batch;
	}
}

/* Until that batch is done. */
static void await(struct worker *w, uint64_t number)
{
	for (unsigned n = 0; n < plan.devices; n++) {
		use(n);
		TRY(cuEventSynchronize(w->mark[n][number % plan.ahead]));
	}
	saw(w, number);
}

/* Until all that was submitted is done: batches below number. */
static void await_all(struct worker *w, uint64_t number)
{
	for (uint64_t i = number > plan.ahead ? number - plan.ahead : 0; i < number; i++)
		await(w, i);
}

static void saturate(struct worker *w)
{
	uint64_t number = 0;

	for (uint64_t now; (now = now_ns()) < plan.end;) {
		uint64_t awake = awake_at(now);

		if (awake > now) {
			await_all(w, number);
			if (awake >= plan.end)
				return;
			sleep_until(awake);
			HOLDS(w->wakes < MAX_WAKES);
			w->wake[w->wakes++] = now_ns();
		}
		if (number >= plan.ahead)
			await(w, number - plan.ahead);
		submit(w, number++);
		if (plan.think)
			sleep_until(now_ns() + plan.think);
	}
	await_all(w, number);
}

/* Requests do not wait for the answers to earlier ones, but are served in their order. */
static void serve(struct worker *w)
{
	double due = (double)plan.epoch + (double)plan.delay * 1e6;
	size_t room = 2 * plan.rate * plan.seconds + 1000; /* far more than come */

	HOLDS(w->request = calloc(room, sizeof *w->request));
	for (uint64_t number = 0; w->requests < room; number++) {
		struct request *r = &w->request[w->requests];

		due += exponential(&w->dice) * 1e9 / (double)plan.rate;
		if (due >= (double)plan.end)
			return;
		w->requests++;
		r->due = (uint64_t)due;
		sleep_until(r->due);
		r->submit = now_ns();
		submit(w, number);
		await(w, number);
		r->done = now_ns();
	}
}

/* ---- threads --------------------------------------------------------------- */

static void prepare(struct worker *w, unsigned n)
{
	TRY(cuCtxSetCurrent(device[n].context));
	for (unsigned i = 0; i < plan.streams; i++)
		TRY(cuStreamCreate(&w->stream[n][i], CU_STREAM_NON_BLOCKING));
	for (unsigned i = 0; i < plan.ahead; i++)
		TRY(cuEventCreate(&w->mark[n][i], CU_EVENT_DISABLE_TIMING));
	if (plan.copy)
		TRY(cuMemAlloc_v2(&w->target[n], plan.copy));
	if (plan.copy && !w->host)
		TRY(cuMemHostAlloc(&w->host, plan.copy, CU_MEMHOSTALLOC_PORTABLE));
	if (plan.graph) {
		CUgraph graph;

		TRY(cuStreamBeginCapture_v2(w->stream[n][0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
		launch_batch(w, n, w->stream[n][0]);
		TRY(cuStreamEndCapture(w->stream[n][0], &graph));
		TRY(cuGraphInstantiateWithFlags(&w->graph[n], graph, 0));
		TRY(cuGraphDestroy(graph));
	}
}

static void *run(void *argument)
{
	struct worker *w = argument;

	TRY(cuCtxSetCurrent(device[0].context));
	sleep_until(plan.epoch);
	if (plan.rate)
		serve(w);
	else
		saturate(w);
	return NULL;
}

static void report(const struct worker *w)
{
	for (uint64_t i = 0; i < w->seen; i++)
		printf("batch done=%" PRIu64 "\n", w->done[i]);
	for (size_t i = 0; i < w->wakes; i++)
		printf("wake at=%" PRIu64 "\n", w->wake[i]);
	for (size_t i = 0; i < w->requests; i++)
		printf("request due=%" PRIu64 " submit=%" PRIu64 " done=%" PRIu64 "\n", w->request[i].due, w->request[i].submit, w->request[i].done);
}

static void report_ran(uint64_t launches)
{
	uint64_t kernels = 0;

	for (unsigned n = 0; n < plan.devices; n++) {
		TRY(cuCtxSetCurrent(device[n].context));
		kernels += arithmetic_done(&device[n].arithmetic);
	}
	say("ran kernels=%" PRIu64 " of=%" PRIu64, kernels, plan.graph ? launches * plan.batch : launches);
}

/* Kernels that last as long as their text says. */
static void load_functions(unsigned n)
{
	char text[MOST * 512] = ".version 6.0\n.target sm_50\n.address_size 64\n", name[32];
	size_t used = strlen(text);
	CUmodule module;

	for (unsigned i = 0; i < plan.kernels; i++)
		used += (size_t)snprintf(text + used, sizeof text - used,
			"// tranche_sim_kernel lasts%u %" PRIu64 "\n.visible .entry lasts%u()\n{\n"
			"	.reg .u64 %%end, %%now;\n	.reg .pred %%more;\n	mov.u64 %%now, %%globaltimer;\n	add.u64 %%end, %%now, %" PRIu64 ";\n"
			"again:\n	mov.u64 %%now, %%globaltimer;\n	setp.lt.u64 %%more, %%now, %%end;\n	@%%more bra again;\n	ret;\n}\n",
			i, plan.kernel[i], i, plan.kernel[i]);
	TRY(cuModuleLoadData(&module, text));
	for (unsigned i = 0; i < plan.kernels; i++) {
		snprintf(name, sizeof name, "lasts%u", i);
		TRY(cuModuleGetFunction(&device[n].function[i], module, name));
	}
}

/* ---- processes ------------------------------------------------------------- */

static _Noreturn void child(unsigned number, int ready, int go)
{
	struct worker *workers = calloc(plan.threads, sizeof *workers);
	uint64_t launches = 0;

	HOLDS(workers && !prctl(PR_SET_PDEATHSIG, SIGKILL) && !prctl(PR_SET_TIMERSLACK, 1));
	TRY(cuInit(0));
	for (unsigned n = 0; n < plan.devices; n++) {
		TRY(cuDevicePrimaryCtxRetain(&device[n].context, (int)n));
		TRY(cuCtxSetCurrent(device[n].context));
		device[n].generic = load_kernels();
		load_functions(n);
		if (plan.rounds)
			device[n].arithmetic = load_arithmetic();
		for (unsigned i = 0; i < plan.threads; i++)
			prepare(&workers[i], n);
	}
	HOLDS(write(ready, "", 1) == 1 && !close(ready));
	HOLDS(read(go, &plan.epoch, sizeof plan.epoch) == sizeof plan.epoch);
	plan.end = plan.epoch + plan.seconds * 1000000000u;
	for (unsigned i = 0; i < plan.threads; i++) {
		workers[i].dice.state = (plan.seed << 20) + number * plan.threads + i;
		HOLDS(!pthread_create(&workers[i].thread, NULL, run, &workers[i]));
	}
	for (unsigned i = 0; i < plan.threads; i++) {
		HOLDS(!pthread_join(workers[i].thread, NULL));
		report(&workers[i]);
		launches += workers[i].launches;
	}
	if (plan.rounds)
		report_ran(launches);
	say("end launches=%" PRIu64, launches);
	exit(0);
}

static int conduct(void)
{
	int ready[2], go[2], status;
	unsigned long long epoch;
	char line[64], byte;

	HOLDS(!pipe(ready) && !pipe(go));
	for (unsigned i = 0; i < plan.processes; i++)
		if (!fork())
			child(i, ready[1], go[0]);
	close(ready[1]); /* as who is ready does: so the end of who is not is seen */
	for (unsigned i = 0; i < plan.processes; i++)
		if (read(ready[0], &byte, 1) != 1)
			fail("a process ended before it was ready");
	say("ready");
	if (!fgets(line, sizeof line, stdin) || strncmp(line, "go", 2) != 0)
		return 3;
	plan.epoch = sscanf(line, "go %llu", &epoch) == 1 ? epoch : now_ns();
	for (unsigned i = 0; i < plan.processes; i++)
		HOLDS(write(go[1], &plan.epoch, sizeof plan.epoch) == sizeof plan.epoch);
	for (unsigned i = 0; i < plan.processes; i++) {
		HOLDS(wait(&status) > 0);
		if (status)
			fail("a process ended with status %d", status);
	}
	return 0;
}

/* ---- what is asked for ------------------------------------------------------- */

static void parse_kernels(char *list)
{
	char *rest;

	plan.kernels = 0;
	for (char *one = strtok_r(list, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) {
		HOLDS(plan.kernels < MOST);
		plan.kernel[plan.kernels++] = number(one);
	}
}

static void parse(char *argument)
{
	const struct {
		const char *name;
		uint64_t *into;
	} numbers[] = {
		{"seconds", &plan.seconds}, {"batch", &plan.batch}, {"ahead", &plan.ahead}, {"think", &plan.think}, {"rate", &plan.rate},
		{"delay", &plan.delay}, {"on", &plan.on}, {"off", &plan.off}, {"graph", &plan.graph}, {"copy", &plan.copy},
		{"rounds", &plan.rounds}, {"log", &plan.log},
		{"streams", &plan.streams}, {"threads", &plan.threads}, {"processes", &plan.processes}, {"devices", &plan.devices},
		{"seed", &plan.seed},
	};
	char *value = strchr(argument, '=');

	if (!value)
		fail("%s is no KEY=VALUE", argument);
	*value++ = '\0';
	for (size_t i = 0; i < COUNT(numbers); i++) {
		if (!strcmp(argument, numbers[i].name)) {
			*numbers[i].into = number(value);
			return;
		}
	}
	if (!strcmp(argument, "kernels"))
		parse_kernels(value);
	else if (!strcmp(argument, "by") && (!strcmp(value, "function") || !strcmp(value, "parameter")))
		plan.by_function = !strcmp(value, "function");
	else
		fail("%s=%s means nothing", argument, value);
}

int main(int argc, char **argv)
{
	uint64_t sum = 0;

	for (int i = 1; i < argc; i++)
		parse(argv[i]);
	for (unsigned i = 0; i < plan.kernels; i++)
		sum += plan.kernel[i];
	if (!plan.batch)
		plan.batch = (uint64_t)BATCH_NS * plan.kernels / (sum ? sum : 1);
	plan.batch = plan.batch < 1 ? 1 : plan.batch > MAX_BATCH ? MAX_BATCH : plan.batch;
	if (plan.rate)
		plan.ahead = 1;
	HOLDS(plan.ahead && plan.ahead <= MOST && plan.streams && plan.streams <= MOST_STREAMS && plan.devices && plan.devices <= MOST && plan.threads);
	return conduct();
}
