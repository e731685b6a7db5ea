/* SPDX-License-Identifier: Apache-2.0 */
#include "line.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

/* What the kernel wipes in a child of fork, which is how the child knows. */
struct life {
	uint32_t alive;
	uint32_t attempts; /* to open, that have ended */
	struct lock opening;
};

static struct life *life;
static uint32_t opened; /* survives fork */
static enum tranche_role opened_as;
struct session_share session_shares[SESSION_MAX_SHARES];
size_t session_share_count;

enum tranche_role session_role(void)
{
	return opened_as;
}

enum session_state session_state(void)
{
	const struct life *own = __atomic_load_n(&life, __ATOMIC_ACQUIRE);

	if (!own || !__atomic_load_n(&opened, __ATOMIC_ACQUIRE))
		return SESSION_UNOPENED;
	if (__atomic_load_n(&own->alive, __ATOMIC_RELAXED))
		return SESSION_OPEN;
	/* An observer holds nothing: its child may look anew. */
	return opened_as == TRANCHE_ROLE_OBSERVER ? SESSION_UNOPENED : SESSION_FORKED;
}

size_t session_find(const char *uuid, struct session_share **found, size_t room)
{
	size_t count = 0;

	for (size_t i = 0; i < session_share_count; i++) {
		if (strcasecmp(session_shares[i].uuid, uuid) != 0)
			continue;
		if (count < room)
			found[count] = &session_shares[i];
		count++;
	}
	return count;
}

/* The page is made once; in a child that inherits it wiped it is good again. */
static struct life *make_life(void)
{
	struct life *own = __atomic_load_n(&life, __ATOMIC_ACQUIRE);
	struct life *none = NULL;

	if (own)
		return own;
	own = mmap(NULL, TRANCHE_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (own == MAP_FAILED)
		return NULL;
	if (madvise(own, TRANCHE_PAGE_SIZE, MADV_WIPEONFORK) != 0) {
		munmap(own, TRANCHE_PAGE_SIZE);
		return NULL;
	}
	if (__atomic_compare_exchange_n(&life, &none, own, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return own;
	munmap(own, TRANCHE_PAGE_SIZE);
	return none;
}

/* Lists the shares. False: a line was said. */
static bool list_shares(void)
{
	struct dirent *entry;
	char path[sizeof(entry->d_name) + 64];
	DIR *directory = opendir(TRANCHE_SHARES_DIR);

	session_share_count = 0;
	while (directory && (entry = readdir(directory))) {
		struct session_share *share = &session_shares[session_share_count];
		size_t length = strlen(entry->d_name);

		if (entry->d_name[0] == '.' || length >= sizeof(share->key))
			continue;
		snprintf(path, sizeof(path), TRANCHE_SHARES_DIR "/%s/" TRANCHE_SHARE_FILE, entry->d_name);
		if (access(path, F_OK) != 0)
			continue;
		if (session_share_count == SESSION_MAX_SHARES) {
			session_say("the container has more than %u shares; CUDA and NVML are refused: ask for fewer", SESSION_MAX_SHARES);
			closedir(directory);
			return false;
		}
		memset(share, 0, sizeof(*share));
		memcpy(share->key, entry->d_name, length + 1);
		share->fd = -1;
		share->ledger_fd = -1;
		share->lost = true;
		session_share_count++;
	}
	if (directory)
		closedir(directory);
	if (session_share_count == 0)
		session_say("this container has no share of a card (nothing in " TRANCHE_SHARES_DIR
			    " has a " TRANCHE_SHARE_FILE "); CUDA and NVML are refused: name the claim in the container's resources");
	return session_share_count != 0;
}

static void close_all(void)
{
	for (size_t i = 0; i < session_share_count; i++) {
		struct session_share *share = &session_shares[i];

		line_drop(share);
		if (fd_is(share->ledger_fd, share->ledger_identity))
			close(share->ledger_fd);
		if (share->grant)
			munmap((void *)share->grant, TRANCHE_PAGE_SIZE);
		if (share->ledger)
			munmap(share->ledger, sizeof(*share->ledger));
		if (share->demand)
			munmap(share->demand, TRANCHE_PAGE_SIZE);
	}
	session_share_count = 0;
}

static bool open_all(enum tranche_role role)
{
	uint64_t deadline = now_ns() + SESSION_DEADLINE_NS;
	struct line_why why = { .text = "" };

	for (size_t i = 0; i < session_share_count; i++) {
		if (line_open(&session_shares[i], role, deadline, &why) == LINE_OK)
			continue;
		session_say("share %s: %s; CUDA and NVML are refused: see that tranche-arbiter runs on this node (tranche-node doctor)",
			    session_shares[i].key, why.text);
		close_all();
		return false;
	}
	return true;
}

static enum session_state open_alone(enum tranche_role role, struct life *own)
{
	enum session_state state = session_state();

	if (state != SESSION_UNOPENED)
		return state;
	__atomic_store_n(&opened, 0, __ATOMIC_RELAXED);
	opened_as = role;
	if (!list_shares() || !open_all(role)) {
		__atomic_add_fetch(&own->attempts, 1, __ATOMIC_RELAXED);
		return SESSION_UNOPENED;
	}
	__atomic_store_n(&own->alive, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&opened, 1, __ATOMIC_RELEASE);
	return SESSION_OPEN;
}

enum session_state session_open(enum tranche_role role)
{
	enum session_state state = session_state();
	int saved = errno;
	struct life *own;

	if (state != SESSION_UNOPENED)
		return state;
	own = make_life();
	if (!own) {
		session_say("the kernel refuses a page that is wiped on fork (Linux 4.14 has it); CUDA and NVML are refused");
	} else {
		uint32_t attempts = __atomic_load_n(&own->attempts, __ATOMIC_RELAXED);
		int cancel = cancel_defer();

		lock_take(&own->opening);
		/* Who waited for another thread's attempt does not wait for its own. */
		if (own->attempts == attempts)
			state = open_alone(role, own);
		else
			state = session_state();
		lock_give(&own->opening);
		cancel_restore(cancel);
	}
	errno = saved;
	return state;
}

bool line_restore(struct session_share *share, uint64_t patience, bool unless_busy, struct line_why *why)
{
	enum tranche_role role = opened_as == TRANCHE_ROLE_OBSERVER ? TRANCHE_ROLE_OBSERVER : TRANCHE_ROLE_AGAIN;
	uint64_t deadline = now_ns() + patience;
	struct tranche_reply reply;
	bool stands;

	if (unless_busy && !lock_try(&share->line)) {
		/* Who has it may be about to connect again, too. */
		why_set(why, "tranche-arbiter cannot be reached");
		return !session_alone(share);
	}
	if (!unless_busy && !lock_take_until(&share->line, deadline))
		return false;
	stands = line_stands(share);
	if (!stands) {
		enum line_result result;

		line_drop(share);
		result = line_open(share, role, deadline, why);
		stands = result == LINE_OK || result == LINE_MOVED;
		/* What the old ledger said of contexts and modules is measured anew. */
		if (result == LINE_MOVED && role == TRANCHE_ROLE_AGAIN)
			line_measure(share, TRANCHE_OP_MEASURE, 0, now_ns() + SESSION_DEADLINE_NS, &reply);
	}
	lock_give(&share->line);
	return stands;
}

void session_ring(const struct session_share *share)
{
	uint32_t *bell = &session_ledger(share)->bell;

	__atomic_add_fetch(bell, 1, __ATOMIC_SEQ_CST);
	word_wake(bell);
}

bool session_restore(struct session_share *share, uint64_t patience)
{
	struct line_why why = { .text = "" };
	int saved = errno, cancel = cancel_defer();
	bool stands = line_restore(share, patience, false, &why);

	cancel_restore(cancel);
	errno = saved;
	return stands;
}
