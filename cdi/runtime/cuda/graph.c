/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs that allocate memory. An executable graph needs at most what its allocation nodes
 * ask for, when it is instantiated, uploaded or launched; what the driver then has in
 * reserve for all graphs of the card is what is charged.
 */
#include "graph.h"

#include <stdlib.h>

#include "around.h"
#include "context.h"
#include "reservoir.h"
#include "trim.h"
#include "zz_generated_hooks.h"

#define BUCKETS 256

/* A trim that the program asks for waits for launches that rely on what it would free,
 * which are short; not for one that hangs. */
#define TRIM_PATIENCE_NS 1000000000ull
#define TRIM_NAP_NS 20000ull

/* What an executable graph needs on one card. */
struct need {
	struct need *next;
	struct card *card;
	uint64_t bytes;
	uint64_t trims; /* of the card's reservoir, when it was last launched */
	bool backed;    /* since then it has its memory */
};

struct exec {
	struct exec *next;
	CUgraphExec handle;
	struct need *needs;
};

static struct exec *buckets[BUCKETS];
static struct lock lock;
static uint32_t execs; /* that need memory */

static struct exec **find(CUgraphExec handle)
{
	struct exec **link = &buckets[((uintptr_t)handle >> 4) % BUCKETS];

	while (*link && (*link)->handle != handle)
		link = &(*link)->next;
	return link;
}

static void free_needs(struct need *needs)
{
	while (needs) {
		struct need *next = needs->next;

		free(needs);
		needs = next;
	}
}

static struct need *copy_needs(const struct need *needs)
{
	struct need *copies = NULL;

	for (; needs; needs = needs->next) {
		struct need *copy = malloc(sizeof(*copy));

		if (!copy)
			break;
		*copy = *needs;
		copy->next = copies;
		copies = copy;
	}
	return copies;
}

/* Takes the needs over. */
static void remember(CUgraphExec handle, struct need *needs)
{
	struct exec *exec = calloc(1, sizeof(*exec));
	struct exec **link;

	if (!exec) {
		free_needs(needs);
		return;
	}
	lock_take(&lock);
	link = find(handle);
	exec->handle = handle;
	exec->needs = needs;
	exec->next = *link;
	*link = exec;
	__atomic_add_fetch(&execs, 1, __ATOMIC_RELAXED);
	lock_give(&lock);
}

/* Now the exec has memory behind it, as long as nobody trims. */
static void note_backed(CUgraphExec handle, const struct card *card, uint64_t trims)
{
	struct exec *exec;

	lock_take(&lock);
	exec = *find(handle);
	for (struct need *need = exec ? exec->needs : NULL; need; need = need->next)
		if (need->card == card) {
			need->backed = true;
			need->trims = trims;
		}
	lock_give(&lock);
}

void graph_add_need(struct need **needs, struct card *card, uint64_t bytes)
{
	struct need *need = *needs;

	while (need && need->card != card)
		need = need->next;
	if (!need) {
		need = calloc(1, sizeof(*need));
		if (!need)
			return;
		need->card = card;
		need->next = *needs;
		*needs = need;
	}
	if (__builtin_add_overflow(need->bytes, bytes, &need->bytes))
		need->bytes = UINT64_MAX;
}

/* ---- around the calls ------------------------------------------------------------- */

/* One call: what was taken for it on each card. */
struct launch {
	struct launch *next;
	struct card *card;
	struct reservoir *reservoir;
	struct hold hold;
	uint64_t trims;
	bool relaunches; /* without room, in memory that is there */
};

static CUresult take(struct launch *launch, const struct need *need)
{
	struct card *card = launch->card;
	CUresult result;

	card_begin(card);
	launch->trims = __atomic_load_n(&launch->reservoir->trims, __ATOMIC_RELAXED);
	result = hold_take(&launch->hold, card, LEDGER_COMMITTED, need->bytes);
	if (result != CUDA_ERROR_OUT_OF_MEMORY)
		goto out;
	/* Who launches again what has its memory needs no more. */
	if (need->backed && reservoir_relaunch(launch->reservoir, need->trims)) {
		launch->relaunches = true;
		return CUDA_SUCCESS;
	}
	card_end(card);
	if (!trim_card(card))
		return result;
	card_begin(card);
	launch->trims = __atomic_load_n(&launch->reservoir->trims, __ATOMIC_RELAXED);
	result = hold_take(&launch->hold, card, LEDGER_COMMITTED, need->bytes);
out:
	if (result != CUDA_SUCCESS)
		card_end(card);
	return result;
}

/* Ends what take began; the card's graphs are charged with what they have. */
static void settle(struct launch *launches, CUgraphExec backed)
{
	while (launches) {
		struct launch *next = launches->next;

		reservoir_settle(launches->reservoir, &launches->hold);
		if (launches->relaunches)
			reservoir_relaunched(launches->reservoir);
		if (backed)
			note_backed(backed, launches->card, launches->trims);
		reservoir_put(launches->reservoir);
		free(launches);
		launches = next;
	}
}

static CUresult begin(struct around *around, const struct need *needs)
{
	struct launch *launches = NULL;
	CUresult result = CUDA_SUCCESS;

	for (; needs && result == CUDA_SUCCESS; needs = needs->next) {
		struct launch *launch = calloc(1, sizeof(*launch));

		result = CUDA_ERROR_OUT_OF_MEMORY;
		if (!launch)
			break;
		launch->card = needs->card;
		launch->hold.card = needs->card;
		launch->reservoir = reservoir_of_graphs(needs->card);
		if (launch->reservoir)
			result = take(launch, needs);
		if (result == CUDA_SUCCESS) {
			launch->next = launches;
			launches = launch;
			continue;
		}
		if (launch->reservoir)
			reservoir_put(launch->reservoir);
		free(launch);
	}
	around->handle = launches;
	if (result != CUDA_SUCCESS) {
		settle(launches, NULL);
		around->handle = NULL;
	}
	return result;
}

/* The driver has no memory although there was room: once more, after a trim. */
static bool again(struct around *around, CUresult result)
{
	struct launch *launch = around->handle;

	if (result != CUDA_ERROR_OUT_OF_MEMORY || around->tries++ != 0)
		return false;
	return launch && trim_card(launch->card);
}

CUresult around_begin_graph(struct around *around, CUgraphExec *made, CUgraph graph)
{
	struct need *needs = NULL;
	CUresult result;

	*around = (struct around){ .idle = true };
	if (!made || !graph || cards_ready() != CUDA_SUCCESS)
		return CUDA_SUCCESS;
	result = graph_needs(graph, &needs);
	if (result == CUDA_SUCCESS && !needs)
		return CUDA_SUCCESS;
	if (result == CUDA_SUCCESS)
		result = begin(around, needs);
	if (result != CUDA_SUCCESS) {
		free_needs(needs);
		return result;
	}
	around->idle = false;
	around->made = (void **)made;
	around->module = needs;
	return CUDA_SUCCESS;
}

bool around_end_graph(struct around *around, CUresult *result)
{
	if (around->idle)
		return false;
	if (again(around, *result))
		return true;
	if (*result == CUDA_SUCCESS)
		remember(*around->made, (struct need *)around->module);
	else
		free_needs((struct need *)around->module);
	settle(around->handle, NULL);
	return false;
}

CUresult around_begin_graph_exec(struct around *around, CUgraphExec exec)
{
	struct need *needs = NULL;
	struct exec *known;
	CUresult result;

	*around = (struct around){ .idle = true };
	if (__atomic_load_n(&execs, __ATOMIC_RELAXED) == 0 || cards_ready() != CUDA_SUCCESS)
		return CUDA_SUCCESS;
	lock_take(&lock);
	known = *find(exec);
	if (known)
		needs = copy_needs(known->needs);
	lock_give(&lock);
	if (!needs)
		return CUDA_SUCCESS;
	result = begin(around, needs);
	free_needs(needs);
	around->idle = result != CUDA_SUCCESS;
	around->made = (void **)exec;
	return result;
}

bool around_end_graph_exec(struct around *around, CUresult *result)
{
	if (around->idle)
		return false;
	if (again(around, *result))
		return true;
	settle(around->handle, *result == CUDA_SUCCESS ? (CUgraphExec)around->made : NULL);
	return false;
}

/* A graph is one command: its lease first, then its memory. */
CUresult around_begin_graph_launch(struct around *around, CUgraphExec exec, CUstream stream, enum around_stream none)
{
	struct around lease = { .idle = true };
	CUresult result = launch_refusal();
	struct work work = { .what = exec, .units = 1, .stream = lease_stream(stream, none) };

	if (result == CUDA_SUCCESS && !lease_is_free() && !lease_is_one_more(&lease, &work))
		result = lease_begin(&lease, &work);
	*around = lease;
	if (result == CUDA_SUCCESS)
		result = around_begin_graph_exec(around, exec);
	around->inside = lease.inside;
	around->tally = lease.tally;
	if (result != CUDA_SUCCESS && around->inside)
		lease_end(around);
	return result;
}

bool around_end_graph_launch(struct around *around, CUresult *result)
{
	bool again = around_end_graph_exec(around, result);

	if (!again && around->inside)
		lease_end(around);
	return again;
}

CUresult around_begin_graph_end(struct around *around, CUgraphExec exec)
{
	struct exec **link, *known = NULL;

	*around = (struct around){ .idle = true };
	if (__atomic_load_n(&execs, __ATOMIC_RELAXED) == 0 || cards_ready() != CUDA_SUCCESS)
		return CUDA_SUCCESS;
	lock_take(&lock);
	link = find(exec);
	if (*link) {
		known = *link;
		*link = known->next;
	}
	lock_give(&lock);
	around->handle = known;
	around->idle = !known;
	return CUDA_SUCCESS;
}

bool around_end_graph_end(struct around *around, CUresult *result)
{
	struct exec *known = around->handle;

	if (around->idle)
		return false;
	if (*result != CUDA_SUCCESS) {
		lock_take(&lock);
		known->next = *find(known->handle);
		*find(known->handle) = known;
		lock_give(&lock);
		return false;
	}
	for (struct need *need = known->needs; need; need = need->next)
		trim_settle(need->card);
	free_needs(known->needs);
	free(known);
	__atomic_sub_fetch(&execs, 1, __ATOMIC_RELAXED);
	return false;
}

CUresult around_begin_trim(struct around *around, CUdevice device)
{
	struct card *card = cards_ready() == CUDA_SUCCESS ? card_of(device) : NULL;
	struct reservoir *reservoir = card && card->shares != 0 ? reservoir_of_graphs(card) : NULL;

	*around = (struct around){ .idle = !reservoir, .handle = reservoir, .card = card };
	if (reservoir) {
		uint64_t deadline = now_ns() + TRIM_PATIENCE_NS;

		while (!reservoir_begin_trim(reservoir, deadline))
			nap_ns(TRIM_NAP_NS);
		card_begin(card);
	}
	return CUDA_SUCCESS;
}

bool around_end_trim(struct around *around, CUresult *result)
{
	(void)result;
	if (around->idle)
		return false;
	reservoir_end_trim(around->handle);
	reservoir_settle(around->handle, NULL);
	reservoir_put(around->handle);
	return false;
}
