/* SPDX-License-Identifier: Apache-2.0 */
#include "line.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What came, sorted out. */
struct found {
	const struct tranche_grant *grant;
	struct tranche_ledger *ledger;
	struct tranche_demand *demand;
	int ledger_fd;
	uint64_t ledger_identity[2];
};

static void *map(int fd, size_t size, int protection)
{
	void *page;

	if (fd_size(fd) < (int64_t)size)
		return NULL;
	page = mmap(NULL, size, protection, MAP_SHARED, fd, 0);
	return page == MAP_FAILED ? NULL : page;
}

static bool take_ledger(int fd, struct found *found)
{
	if (found->ledger)
		return false;
	found->ledger = map(fd, sizeof(*found->ledger), PROT_READ | PROT_WRITE);
	if (!found->ledger && session_role() == TRANCHE_ROLE_OBSERVER)
		found->ledger = map(fd, sizeof(*found->ledger), PROT_READ);
	if (!found->ledger || !fd_identify(fd, found->ledger_identity))
		return false;
	found->ledger_fd = fd;
	/* A child of fork has no slot. One that came back out of a signal handler into a
	 * hook of its parent would settle the parent's amounts twice. */
	madvise(found->ledger, sizeof(*found->ledger), MADV_DONTFORK);
	return true;
}

/* The demand page, in which nothing is said yet. What is no page of ours is passed over. */
static bool take_demand(int fd, struct found *found)
{
	struct tranche_demand *page = map(fd, TRANCHE_PAGE_SIZE, PROT_READ | PROT_WRITE);

	if (!page)
		return true;
	if (page->magic != TRANCHE_DEMAND_MAGIC || found->demand) {
		munmap(page, TRANCHE_PAGE_SIZE);
		return true;
	}
	madvise(page, TRANCHE_PAGE_SIZE, MADV_DONTFORK);
	found->demand = page;
	return true;
}

/* Tells which page it is, and maps it. The ledger is known by its size: of what it
 * says the share's own processes may have made anything. False: a page makes no sense. */
static bool sort(int fd, struct found *found)
{
	const struct tranche_grant *page;

	if (fd_size(fd) >= (int64_t)sizeof(*found->ledger))
		return take_ledger(fd, found);
	page = map(fd, TRANCHE_PAGE_SIZE, PROT_READ);
	if (!page)
		return false;
	if (page->magic == TRANCHE_GRANT_MAGIC && !found->grant) {
		found->grant = page;
		return page->version == TRANCHE_CONTRACT_VERSION;
	}
	munmap((void *)page, TRANCHE_PAGE_SIZE);
	return take_demand(fd, found);
}

static void forget(struct found *found)
{
	if (found->grant)
		munmap((void *)found->grant, TRANCHE_PAGE_SIZE);
	if (found->ledger)
		munmap(found->ledger, sizeof(*found->ledger));
	if (found->demand)
		munmap(found->demand, TRANCHE_PAGE_SIZE);
}

/* Moves what the process holds to another slot. Nobody else is at the ledger now. */
static void carry(struct session_share *share, struct tranche_ledger *ledger, struct tranche_slot *slot)
{
	struct tranche_slot *old = share->slot;

	if (old && old != slot) {
		/* What the card may hold after our end, before what it holds. */
		__atomic_store_n(&slot->exported, __atomic_load_n(&old->exported, __ATOMIC_SEQ_CST), __ATOMIC_SEQ_CST);
		__atomic_store_n(&slot->inflight, __atomic_load_n(&old->inflight, __ATOMIC_SEQ_CST), __ATOMIC_SEQ_CST);
		__atomic_store_n(&slot->changes, __atomic_load_n(&old->changes, __ATOMIC_SEQ_CST), __ATOMIC_SEQ_CST);
		__atomic_store_n(&slot->committed, __atomic_load_n(&old->committed, __ATOMIC_SEQ_CST), __ATOMIC_SEQ_CST);
	}
	/* Also without a move: an answer that never came may have settled or not. */
	__atomic_store_n(&slot->reserve, __atomic_load_n(&share->estimates, __ATOMIC_RELAXED), __ATOMIC_SEQ_CST);
	__atomic_store_n(&share->ledger, ledger, __ATOMIC_RELEASE);
	__atomic_store_n(&share->slot, slot, __ATOMIC_RELEASE);
}

static enum line_result use(struct session_share *share, struct found *found, const struct tranche_welcome *welcome, bool again,
			    struct line_why *why)
{
	bool observer = session_role() == TRANCHE_ROLE_OBSERVER;
	bool same = again && found->ledger && memcmp(found->ledger_identity, share->ledger_identity, sizeof(share->ledger_identity)) == 0;
	struct tranche_ledger *ledger = found->ledger && !same ? found->ledger : share->ledger;
	const struct tranche_grant *before = share->grant;
	enum line_result result = LINE_OK;

	if (!ledger || (!found->grant && !share->grant) || (!observer && !found->demand && !share->demand)) {
		why_set(why, "the arbiter sent no pages");
		return LINE_BROKEN;
	}
	if (!observer && welcome->slot >= TRANCHE_MAX_SLOTS) {
		why_set(why, "the arbiter named a slot that there is not");
		return LINE_BROKEN;
	}
	if (again && (ledger != share->ledger || welcome->slot != share->slot_number))
		result = LINE_MOVED;
	/* From here on the pages are the share's. */
	if (observer) {
		__atomic_store_n(&share->ledger, ledger, __ATOMIC_RELEASE);
	} else {
		gate_enter_alone(&share->gate);
		carry(share, ledger, &ledger->slot[welcome->slot]);
	}
	if (ledger == found->ledger)
		found->ledger = NULL;
	if (found->demand) {
		__atomic_store_n(&share->demand, found->demand, __ATOMIC_RELEASE);
		found->demand = NULL;
	}
	/* The last: who sleeps on it has seen the others. */
	if (found->grant) {
		memcpy(share->uuid, found->grant->card_uuid, sizeof(share->uuid) - 1);
		__atomic_store_n(&share->grant, found->grant, __ATOMIC_RELEASE);
		found->grant = NULL;
	}
	if (!observer)
		gate_leave_alone(&share->gate);
	share->slot_number = welcome->slot;
	share->nonce = welcome->nonce;
	/* Who waits for the lease looks at the new pages. */
	if (before && before != share->grant)
		word_wake(&before->lease);
	return result;
}

/* The ledger's descriptor shows a later arbiter which ledger it is. */
static void keep_descriptor(struct session_share *share, struct found *found)
{
	if (fd_is(share->ledger_fd, share->ledger_identity))
		close(share->ledger_fd);
	share->ledger_fd = fd_aside(found->ledger_fd);
	memcpy(share->ledger_identity, found->ledger_identity, sizeof(share->ledger_identity));
}

enum line_result pages_take(struct session_share *share, struct line_pages *pages, const struct tranche_welcome *welcome, bool again,
			    struct line_why *why)
{
	struct found found = { .ledger_fd = -1 };
	enum line_result result = LINE_OK;

	for (int i = 0; i < 3; i++) {
		if (pages->fd[i] < 0)
			continue;
		if (result == LINE_OK && !sort(pages->fd[i], &found)) {
			why_set(why, "the arbiter sent a page that is not understood");
			result = LINE_BROKEN;
		}
		if (pages->fd[i] != found.ledger_fd) {
			close(pages->fd[i]);
			pages->fd[i] = -1;
		}
	}
	if (result == LINE_OK)
		result = use(share, &found, welcome, again, why);
	if (found.ledger_fd >= 0 && (result == LINE_OK || result == LINE_MOVED) && session_role() != TRANCHE_ROLE_OBSERVER)
		keep_descriptor(share, &found);
	else if (found.ledger_fd >= 0)
		close(found.ledger_fd);
	forget(&found);
	return result;
}
