/* SPDX-License-Identifier: Apache-2.0
 *
 * Hammers the ledger of a share with processes and threads, and kills processes at
 * any instant. This program is the arbiter too: it hands slots out and clears those
 * of the dead. A driver is played by one word a slot, which says what the slot's process
 * really holds: raised after the ledger has agreed, lowered before it is told. Where nobody is killed the
 * sum of these words is kept too, so that no instant above the limit is missed.
 *
 *	hammer LIMIT MOST PROCESSES THREADS ROUNDS KILLS
 *
 * LIMIT and MOST, of one thread, are in units. Prints counts; ends with 1 where the truth was
 * above the limit, where something is left in the end, or where somebody was refused
 * although there was room for everybody's most.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "session/ledger.h"

struct session_share session_shares[SESSION_MAX_SHARES];
size_t session_share_count;

#define VERSION_UNIT (1ull << 40) /* of a truth word: the rest is the amount */
#define AMOUNT (VERSION_UNIT - 1)
#define MOST_PROCESSES 64

/* Shared by all processes. */
struct world {
	struct tranche_grant grant;
	struct tranche_ledger ledger;
	uint64_t truth[TRANCHE_MAX_SLOTS];
	uint64_t finished[TRANCHE_MAX_SLOTS]; /* rounds that a slot's process has done */
	uint64_t used; /* sum of the truth, kept only where nobody is killed */
	uint64_t taken, refused, above, looks;
	uint32_t stop;
};

static struct world *world;
static uint64_t limit, most, rounds;
static unsigned processes, threads;
static bool roomy; /* there is room for everybody's most */
static bool exact; /* nobody is killed: world->used can be kept */

static void open_share(unsigned slot)
{
	struct session_share *share = &session_shares[0];

	memset(share, 0, sizeof(*share));
	share->grant = &world->grant;
	share->ledger = &world->ledger;
	share->slot = &world->ledger.slot[slot];
	share->slot_number = slot;
	session_share_count = 1;
}

static uint64_t next(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

/* Between any two accesses of the ledger (LEDGER_STEP): now and then the others get
 * the processor there. */
void hammer_step(void)
{
	static __thread uint64_t seed;

	if (seed == 0)
		seed = (uintptr_t)&seed ^ (uint64_t)getpid();
	switch (next(&seed) % 256) {
	case 0:
		usleep(30);
		break;
	case 1:
	case 2:
		sched_yield();
		break;
	}
}

/* ---- a process ---------------------------------------------------------------- */

struct worker {
	unsigned slot;
	uint64_t seed;
};

static void hold(struct session_share *share, struct worker *worker, uint64_t bytes)
{
	__atomic_add_fetch(&world->truth[worker->slot], VERSION_UNIT + bytes, __ATOMIC_SEQ_CST);
	if (exact && __atomic_add_fetch(&world->used, bytes, __ATOMIC_SEQ_CST) > limit)
		__atomic_add_fetch(&world->above, 1, __ATOMIC_RELAXED);
	ledger_end(share);
	__atomic_add_fetch(&world->taken, 1, __ATOMIC_RELAXED);
	/* Long enough for others to try. */
	if (next(&worker->seed) % 8 == 0)
		sched_yield();
	ledger_begin(share);
	if (exact)
		__atomic_sub_fetch(&world->used, bytes, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&world->truth[worker->slot], VERSION_UNIT - bytes, __ATOMIC_SEQ_CST);
	ledger_give(share, bytes);
	ledger_end(share);
}

/* An estimate that nobody measures, as of a call that fails. */
static void estimate(struct session_share *share, uint64_t bytes)
{
	if (ledger_take(share, LEDGER_RESERVE, bytes))
		ledger_unreserve(share, bytes);
	else
		__atomic_add_fetch(&world->refused, 1, __ATOMIC_RELAXED);
}

static void *work(void *argument)
{
	struct worker *worker = argument;
	struct session_share *share = &session_shares[0];

	for (uint64_t i = 0; i < rounds && !__atomic_load_n(&world->stop, __ATOMIC_RELAXED); i++) {
		uint64_t bytes = 1 + next(&worker->seed) % most;

		if (next(&worker->seed) % 16 == 0) {
			estimate(share, bytes);
			continue;
		}
		ledger_begin(share);
		if (ledger_take(share, LEDGER_COMMITTED, bytes)) {
			hold(share, worker, bytes);
		} else {
			ledger_end(share);
			__atomic_add_fetch(&world->refused, 1, __ATOMIC_RELAXED);
		}
	}
	return NULL;
}

static void run_process(unsigned slot, uint64_t seed)
{
	struct worker *workers = calloc(threads, sizeof(*workers));
	pthread_t *ids = calloc(threads, sizeof(*ids));

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	open_share(slot);
	for (unsigned i = 0; i < threads; i++) {
		workers[i] = (struct worker){ .slot = slot, .seed = seed * 1000003 + i + 1 };
		if (pthread_create(&ids[i], NULL, work, &workers[i]) != 0)
			_exit(3);
	}
	for (unsigned i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	_exit(0);
}

/* ---- the arbiter ---------------------------------------------------------------- */

static pid_t start(unsigned slot, uint64_t seed)
{
	pid_t pid;

	/* Before the slot is handed out. */
	if (world->ledger.slots_used < slot + 1) {
		__atomic_store_n(&world->ledger.slots_used, slot + 1, __ATOMIC_SEQ_CST);
		__atomic_store_n(&world->grant.slots_used, slot + 1, __ATOMIC_SEQ_CST);
	}
	pid = fork();
	if (pid == 0)
		run_process(slot, seed);
	return pid;
}

/* First the driver frees what a dead process held, then its slot is cleared. */
static void clear(unsigned slot)
{
	struct tranche_slot *words = &world->ledger.slot[slot];

	__atomic_and_fetch(&world->truth[slot], ~AMOUNT, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&world->truth[slot], VERSION_UNIT, __ATOMIC_SEQ_CST);
	__atomic_store_n(&words->pending, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&words->committed, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&words->reserve, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&words->inflight, 0, __ATOMIC_SEQ_CST);
}

/* Looks at the truth of all slots at one instant: twice, and counts if nothing has
 * changed in between. */
static void look(void)
{
	uint64_t first[MOST_PROCESSES], sum = 0;

	for (unsigned i = 0; i < processes; i++)
		first[i] = __atomic_load_n(&world->truth[i], __ATOMIC_SEQ_CST);
	for (unsigned i = 0; i < processes; i++)
		if (__atomic_load_n(&world->truth[i], __ATOMIC_SEQ_CST) != first[i])
			return;
	for (unsigned i = 0; i < processes; i++)
		sum += first[i] & AMOUNT;
	world->looks++;
	if (sum > limit)
		world->above++;
}

static void judge(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (!__atomic_load_n(&world->stop, __ATOMIC_RELAXED))
		look();
	_exit(0);
}

static bool run(unsigned kills)
{
	pid_t pids[MOST_PROCESSES];
	uint64_t seed = 1;

	for (unsigned i = 0; i < processes; i++) {
		pids[i] = start(i, seed++);
		if (pids[i] < 0)
			return false;
	}
	for (unsigned k = 0; k < kills; k++) {
		unsigned victim = (unsigned)(next(&seed) % processes);
		int status;

		usleep((useconds_t)(next(&seed) % 3000));
		kill(pids[victim], SIGKILL);
		waitpid(pids[victim], &status, 0);
		clear(victim);
		pids[victim] = start(victim, seed);
		if (pids[victim] < 0)
			return false;
	}
	for (unsigned i = 0; i < processes; i++) {
		int status;

		if (waitpid(pids[i], &status, 0) < 0)
			return false;
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
			printf("a process ended with status %d\n", status);
			return false;
		}
	}
	return true;
}

static bool verdict(void)
{
	bool good = world->above == 0 && world->taken > 0;

	printf("taken %llu refused %llu looks %llu above %llu\n", (unsigned long long)world->taken, (unsigned long long)world->refused,
	       (unsigned long long)world->looks, (unsigned long long)world->above);
	if (roomy && world->refused != 0) {
		printf("refused although there was room\n");
		good = false;
	}
	for (unsigned i = 0; i < processes; i++) {
		const struct tranche_slot *slot = &world->ledger.slot[i];

		if (slot->pending || slot->committed || slot->reserve || slot->inflight || (world->truth[i] & AMOUNT)) {
			printf("slot %u: pending %llu committed %llu reserve %llu inflight %u truth %llu are left\n", i,
			       (unsigned long long)slot->pending, (unsigned long long)slot->committed, (unsigned long long)slot->reserve,
			       slot->inflight, (unsigned long long)(world->truth[i] & AMOUNT));
			good = false;
		}
	}
	return good;
}

int main(int argc, char **argv)
{
	pid_t judging;
	bool good;

	if (argc != 7) {
		fprintf(stderr, "usage: hammer LIMIT MOST PROCESSES THREADS ROUNDS KILLS\n");
		return 2;
	}
	limit = strtoull(argv[1], NULL, 10);
	most = strtoull(argv[2], NULL, 10);
	processes = (unsigned)strtoul(argv[3], NULL, 10);
	threads = (unsigned)strtoul(argv[4], NULL, 10);
	rounds = strtoull(argv[5], NULL, 10);
	exact = strcmp(argv[6], "0") == 0;
	roomy = limit >= most * processes * threads;
	if (most == 0 || processes == 0 || processes > MOST_PROCESSES || threads == 0)
		return 2;
	world = mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (world == MAP_FAILED)
		return 3;
	world->grant.memory_limit = limit;
	judging = fork();
	if (judging < 0)
		return 3;
	if (judging == 0)
		judge();
	good = run((unsigned)strtoul(argv[6], NULL, 10));
	__atomic_store_n(&world->stop, 1, __ATOMIC_RELAXED);
	waitpid(judging, NULL, 0);
	return good && verdict() ? 0 : 1;
}
