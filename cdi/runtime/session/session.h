/* SPDX-License-Identifier: Apache-2.0
 *
 * A process's connection with the arbiters of its shares. The substitute of
 * CUDA opens it as a process that holds memory, the one of NVML as an observer;
 * each library has a session of its own.
 *
 * Nothing here runs before session_open, nothing is read from the environment,
 * no call blocks longer than SESSION_DEADLINE_NS, and none changes errno. All
 * functions may be called by several threads at once.
 */
#ifndef TRANCHE_SESSION_H
#define TRANCHE_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../wire.h"
#include "sync.h"

#define SESSION_DEADLINE_NS 5000000000ull
#define SESSION_GLANCE_NS 100000000ull
/* Shares that one container can have. */
#define SESSION_MAX_SHARES 128u

enum session_state {
	SESSION_UNOPENED, /* session_open was not called, or failed */
	SESSION_OPEN,
	SESSION_FORKED, /* the parent had it open; this process cannot use it */
};

/* One share that the process has, for as long as the process lives. */
struct session_share {
	/* Name of its directory; as long as a socket's address has room for. */
	char key[82];
	char uuid[64]; /* the card: "GPU-..." */

	/* Pages. They are replaced when an arbiter hands out others; the old ones stay
	 * mapped, so a pointer once read stays good to read through. */
	const struct tranche_grant *grant;
	struct tranche_ledger *ledger;
	struct tranche_slot *slot; /* own slot; NULL for an observer */
	struct tranche_demand *demand; /* own; NULL for an observer */
	uint32_t alone; /* no arbiter: the connection has ended */

	/* Who changes the slot has the gate as one of many, who replaces it alone. */
	struct gate gate;
	/* Who retries a reservation that met others' pending ones. */
	struct lock turn;

	/* The connection: all below belongs to whoever has this lock. */
	struct lock line;
	int fd;
	int ledger_fd;
	uint64_t fd_identity[2];
	uint64_t ledger_identity[2];
	uint32_t slot_number;
	uint64_t nonce;
	uint64_t next_id;
	bool lost; /* the connection has ended */

	/* What the slot's reserve should say, and what of it is to be settled by the next
	 * measurement because an earlier one could not be made. */
	uint64_t estimates;
	uint64_t owed;
	/* When the arbiter last did not answer a measurement, ns; 0: it did. */
	uint64_t silent;
};

/* Connects to the arbiter of every share, as TRANCHE_ROLE_PROCESS or
 * TRANCHE_ROLE_OBSERVER. SESSION_OPEN: all pages are there; it stays so, and a
 * further call costs one load. Otherwise nothing is open, one line on stderr has said
 * why, and the call may be repeated, except after SESSION_FORKED. */
enum session_state session_open(enum tranche_role role);

/* One load; never connects. */
enum session_state session_state(void);

/* The shares of an open session. They never become fewer. */
extern struct session_share session_shares[SESSION_MAX_SHARES] __attribute__((visibility("hidden")));
extern size_t session_share_count __attribute__((visibility("hidden")));

static inline size_t session_count(void)
{
	return __atomic_load_n(&session_share_count, __ATOMIC_ACQUIRE);
}

static inline struct session_share *session_share(size_t i)
{
	return &session_shares[i];
}

/* The shares of the card with this UUID ("GPU-...", letters of either case),
 * at most room of them into found; returns how many there are. */
size_t session_find(const char *uuid, struct session_share **found, size_t room);

/* Connects again where the connection of the share has ended, and takes over what
 * pages it gets, for at most patience ns. Says whether the connection stands.
 * An observer calls it with SESSION_GLANCE_NS before it reads pages; two system calls
 * where the connection stands. */
bool session_restore(struct session_share *share, uint64_t patience);

enum session_measured {
	SESSION_MEASURED,
	SESSION_UNMEASURED, /* not now: the card is too busy, or does not say */
	SESSION_UNANSWERED, /* no arbiter */
};

/* Asks the arbiter to measure what the card holds for this process, and to take
 * settle from the slot's reserve. With everybody: measures all processes on the
 * card first. Where that cannot be done, what was to be settled stays in
 * reserve, and the next measurement settles it too. */
enum session_measured session_measure(struct session_share *share, uint64_t settle, bool everybody);

/* Settles what earlier measurements could not, if anything. */
void session_settle(struct session_share *share);

/* Starts the thread that notices the end of connections and attaches again,
 * once. False where the system refuses a thread. */
bool session_start_liaison(void);
bool session_has_liaison(void);

/* Starts a detached thread that takes no signals. False where the system refuses one. */
bool thread_start(void *(*run)(void *), void *argument);

/* Bits that are set while an arbiter is missing. */
enum {
	SESSION_CLOSED = 1 << 0, /* and has been for SESSION_DEADLINE_NS */
	SESSION_ALONE = 1 << 1,  /* some share's connection has ended */
};
extern uint32_t session_trouble_word __attribute__((visibility("hidden")));

static inline uint32_t session_trouble(void)
{
	return __atomic_load_n(&session_trouble_word, __ATOMIC_RELAXED);
}

static inline bool session_closed(void)
{
	return (session_trouble() & SESSION_CLOSED) != 0;
}

static inline bool session_alone(const struct session_share *share)
{
	return __atomic_load_n(&share->alone, __ATOMIC_RELAXED) != 0;
}

/* Writes "tranche: ..." and a newline to stderr, once a process: who comes
 * later is not heard. */
void session_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

static inline struct tranche_slot *session_slot(const struct session_share *share)
{
	return __atomic_load_n(&share->slot, __ATOMIC_ACQUIRE);
}

static inline const struct tranche_grant *session_grant(const struct session_share *share)
{
	return __atomic_load_n(&share->grant, __ATOMIC_ACQUIRE);
}

static inline struct tranche_ledger *session_ledger(const struct session_share *share)
{
	return __atomic_load_n(&share->ledger, __ATOMIC_ACQUIRE);
}

static inline struct tranche_demand *session_demand(const struct session_share *share)
{
	return __atomic_load_n(&share->demand, __ATOMIC_ACQUIRE);
}

/* Who waits for the word has to look whether the grant is still the same: when it is replaced,
 * waiters on the old one are woken, and who was just about to wait on it is not. */
static inline uint32_t session_lease(const struct session_share *share)
{
	return __atomic_load_n(&session_grant(share)->lease, __ATOMIC_ACQUIRE);
}

/* Tells the arbiter that the demand page has changed. */
void session_ring(const struct session_share *share);

static inline uint32_t session_flags(const struct session_share *share)
{
	return __atomic_load_n(&session_grant(share)->flags, __ATOMIC_RELAXED);
}

/* TRANCHE_NO_LIMIT where the share is a whole card. */
static inline uint64_t session_limit(const struct session_share *share)
{
	return __atomic_load_n(&session_grant(share)->memory_limit, __ATOMIC_RELAXED);
}

/* How many slots of the ledger can be in use. */
static inline uint32_t session_slots(const struct session_share *share)
{
	uint32_t used = __atomic_load_n(&session_grant(share)->slots_used, __ATOMIC_SEQ_CST);
	uint32_t more = __atomic_load_n(&session_ledger(share)->slots_used, __ATOMIC_SEQ_CST);

	if (used < more)
		used = more;
	return used < TRANCHE_MAX_SLOTS ? used : TRANCHE_MAX_SLOTS;
}

#endif
