/* SPDX-License-Identifier: Apache-2.0
 *
 * What a process with a share and tranche-arbiter say to each other, and the
 * pages that they have in common. cdi/CONTRACT.md gives the rules, pkg/wire is
 * the same in Go (a test compares the layouts).
 *
 * All integers are in the byte order of the machine. Words that two parties
 * touch are 8-byte aligned, and read and written by atomic operations.
 * Sizes are bytes.
 */
#ifndef TRANCHE_WIRE_H
#define TRANCHE_WIRE_H

#include <stdint.h>

/* Version of this contract; the same number as "version" in share.json. */
#define TRANCHE_CONTRACT_VERSION 1u

/* A container has one directory for each of its shares below this one. */
#define TRANCHE_SHARES_DIR "/run/tranche"
#define TRANCHE_SHARE_FILE "share.json"
#define TRANCHE_SOCKET_NAME "arbiter.sock"

/* ---- pages -------------------------------------------------------------- */

#define TRANCHE_PAGE_SIZE 4096u
#define TRANCHE_MAX_SLOTS 1024u
#define TRANCHE_NO_LIMIT UINT64_MAX

#define TRANCHE_GRANT_MAGIC 0x31544e4152474354ull  /* "TCGRANT1" */
#define TRANCHE_LEDGER_MAGIC 0x31474444454c4354ull /* "TCLEDDG1" */
#define TRANCHE_DEMAND_MAGIC 0x31444e4d44454354ull /* "TCEDMND1" */

/* Bits of tranche_grant.flags. */
enum {
	TRANCHE_GRANT_ENDED = 1u << 0,    /* the share is gone: allocate nothing more */
	TRANCHE_GRANT_WITHHELD = 1u << 1, /* the watchdog stopped this share: no allocation, no launch */
};

/* Low bits of tranche_grant.lease: what the share's processes may launch. */
enum tranche_lease {
	TRANCHE_LEASE_CLOSED = 0, /* nothing: wait until the word changes */
	/* Anything, as long as what is in flight is expected to take at most
	 * tranche_grant.window. */
	TRANCHE_LEASE_OPEN = 1,
	/* Anything, and nobody has to know: nobody else uses the card. */
	TRANCHE_LEASE_FREE = 2,
	TRANCHE_LEASE_STATE = 3, /* mask */

	/* With OPEN: somebody waits for the card. Who has nothing in flight and launches
	 * nothing for TRANCHE_LEASE_IDLE_NS says so (tranche_demand.wants). */
	TRANCHE_LEASE_CONTENDED = 1 << 2,
	/* With OPEN: the card is lent to others until this share wants it. A launch
	 * need not wait, but says that it is made (wants, and the bell). */
	TRANCHE_LEASE_TELL = 1 << 3,
	/* The bits from here on count changes of the word, from where no arbiter before has come; they
	 * wrap. */
	TRANCHE_LEASE_COUNT = 1 << 4,
};

#define TRANCHE_LEASE_IDLE_NS 300000u
/* As much as it takes until the next share's work reaches the card: three threads wake. */
#define TRANCHE_LEASE_LEAD_NS 100000u
/* tranche_grant.beat is never older while the share wants the card. */
#define TRANCHE_BEAT_NS 250000000u
/* Who waits for the card and finds the beat this old has no arbiter. */
#define TRANCHE_BEAT_LOST_NS 1000000000u

/* One a share. Only the arbiter can write it: clients get it by a sealed memfd
 * and map it read-only. The rest of the page is reserved and zero. */
struct tranche_grant {
	uint64_t magic;
	uint32_t version;
	uint32_t flags;
	uint64_t memory_limit;     /* of the share, or TRANCHE_NO_LIMIT */
	uint64_t context_estimate; /* what one context is expected to take on this card */
	/* Slots with a number at or above this one are all zero. Grows before a
	 * new slot is handed out, so whoever adds to the ledger reads it after
	 * that and misses nobody. */
	uint32_t slots_used;
	uint32_t reserved0;
	uint8_t reserved1[24];
	char card_uuid[64]; /* "GPU-...", terminated */

	/* Compute. Times are nanoseconds of CLOCK_MONOTONIC. */
	uint32_t lease; /* enum tranche_lease; a futex, woken at each change */
	uint32_t reserved2;
	uint64_t beat;   /* when the arbiter last saw to the card */
	uint64_t window; /* of work that one process may have in flight */
	/* Without an arbiter: the share may launch while now % alone_period is in
	 * [alone_start, alone_start + alone_length). No two shares of a card at once;
	 * alone_period 0: not at all. */
	uint64_t alone_period;
	uint64_t alone_start;
	uint64_t alone_length;
};

/* One a process and share. The charge of a share is the sum of pending,
 * committed, reserve and implicit over its slots. Except for implicit and what
 * a settlement takes from reserve (the arbiter's), only the slot's own process
 * changes it, and only while it lives; afterwards the arbiter clears it. */
struct tranche_slot {
	uint64_t pending;   /* asked for, not yet known to fit */
	uint64_t committed; /* memory that the process asked the driver for by name, whether the call has returned or not */
	uint64_t reserve;   /* estimate of what running calls cost besides (contexts, modules) */
	uint64_t implicit;  /* measured: what the driver holds for the process besides committed */
	uint32_t inflight;  /* calls that change committed and have not settled */
	uint32_t changes;   /* counts settled changes of committed; wraps */
	int32_t host_pid;   /* in the arbiter's PID namespace */
	int32_t ns_pid;     /* as the process sees itself */
	uint64_t attached;  /* identity of the attachment: tranche_welcome.nonce; 0: the slot is free */
	/* At most what of all that the card may hold when the process has ended, because there
	 * is a descriptor of it: what was exported and is not known to be free; without end
	 * where memory was imported. The same in all slots that the process has on the card.
	 * What the card does hold then stays charged: the arbiter keeps a slot without a
	 * process (host_pid 0) for it, one a share, in whose implicit and exported it is. */
	uint64_t exported;
};

/* One a share, writable by all of its processes. */
struct tranche_ledger {
	uint64_t magic;
	uint32_t version;
	uint32_t slots; /* TRANCHE_MAX_SLOTS */
	/* As slots_used of the grant, and raised before it: the greater of the two
	 * counts. For a process that goes on with the grant of an arbiter that is no
	 * more (it was stopped, say) and would miss who came since. */
	uint32_t slots_used;
	/* A futex that the arbiter waits on: whoever has changed his demand page adds one,
	 * and wakes it. */
	uint32_t bell;
	/* What moves from one slot to another is added there, then this is raised, then it is
	 * taken away here. Who sums the slots and finds another number afterwards may have
	 * missed it, and sums again. */
	uint32_t moves;
	uint32_t reserved0;
	uint8_t reserved[TRANCHE_PAGE_SIZE - 32];
	struct tranche_slot slot[TRANCHE_MAX_SLOTS];
};

/* One an attachment, writable by its process: what it wants of the card's compute,
 * and what it knows of the work that it has given it. Hints: the arbiter decides
 * by them, and takes none for true that costs somebody else. The rest of the page is
 * reserved and zero. */
struct tranche_demand {
	uint64_t magic;
	uint32_t version;
	uint32_t reserved0;
	/* 1: launches wait, or something is in flight, or was launched less than
	 * TRANCHE_LEASE_IDLE_NS ago. Set by the process, and taken back by it under a
	 * contended or closed lease only: the bell is rung at each change. */
	uint32_t wants;
	/* The lease word, closed, under which nothing of the process is in flight any more,
	 * or what is ends at ends, TRANCHE_LEASE_LEAD_NS away at most: the next share's work
	 * then comes to the card while it is still busy. An open word takes that back, where it was
	 * wrong. The bell is rung. Nothing is in flight of a process that has said nothing
	 * since wants was taken back. */
	uint32_t drained;
	uint32_t waiting; /* threads that wait for the lease */
	uint32_t reserved1;
	uint64_t ends; /* when what is in flight is expected to end; 0: nothing is */
	/* Sums since the process attached, ns. */
	uint64_t used;   /* work by the card, as timed by the process */
	uint64_t waited; /* launches held back: time with at least one thread waiting */
};

/* ---- protocol: SOCK_SEQPACKET, one struct a message ----------------------- */

#define TRANCHE_MESSAGE_MAGIC 0x544d5243u /* "CRMT" */
#define TRANCHE_REASON_SIZE 160u

enum tranche_role {
	/* Says that the arbiter serves the share. No pages. */
	TRANCHE_ROLE_PROBE = 0,
	/* Gets a slot and, by SCM_RIGHTS, the pages grant, ledger, demand. */
	TRANCHE_ROLE_PROCESS = 1,
	/* Gets grant and ledger, to look at. */
	TRANCHE_ROLE_OBSERVER = 2,
	/* As PROCESS, of a process that has pages already: it sends the fd of its
	 * ledger along, names its slot and nonce, and goes on with both where the
	 * arbiter agrees (status OK, same slot). With TRANCHE_MOVED it gets another
	 * ledger or slot, and carries over what its old slot says. With OK come the
	 * pages that are new to it (a grant after the arbiter's restart), with MOVED all
	 * of them; it knows the ledger by its size and the grant by its magic. A process whose fd of the ledger was
	 * closed under it (a program may close all fds) sends none. Once this is
	 * answered, requests of earlier connections of the slot settle nothing any more. */
	TRANCHE_ROLE_AGAIN = 3,
};

/* Status of a reply. */
enum tranche_status {
	TRANCHE_OK = 0,
	TRANCHE_MOVED = 1,
	TRANCHE_EVERSION = -1, /* the arbiter does not speak the client's version */
	TRANCHE_EENDED = -2,   /* the share has ended, or its share.json is not understood */
	TRANCHE_EFULL = -3,    /* no slot is free */
	TRANCHE_EINVALID = -4, /* the message makes no sense */
	TRANCHE_EMEASURE = -5, /* the card cannot be measured now */
	TRANCHE_EDENIED = -6,  /* the watchdog withholds the share */
};

/* The client's first message. */
struct tranche_hello {
	uint32_t magic;
	uint32_t version;
	uint32_t role;
	int32_t ns_pid;
	uint32_t slot;  /* ROLE_AGAIN only */
	uint32_t reserved;
	uint64_t nonce; /* ROLE_AGAIN only */
};

struct tranche_welcome {
	uint32_t magic;
	uint32_t version; /* that the arbiter speaks */
	int32_t status;
	uint32_t slot;
	uint64_t nonce;
	int32_t host_pid;
	uint32_t reserved;
	char reason[TRANCHE_REASON_SIZE]; /* for people, terminated; empty when OK */
};

enum tranche_op {
	/* Measures what the card holds for the process, sets implicit to what of
	 * it committed does not explain, then takes `settle` from reserve. */
	TRANCHE_OP_MEASURE = 1,
	/* As MEASURE, but first frees the slots of processes that have ended, then measures
	 * all others that hold memory on the card, and raises (never lowers) their implicit.
	 * For an allocation that does not fit, and for memory that was exported: when its maker
	 * gives it up, the driver lets the one who imported it hold it. The arbiter does the
	 * same before it clears the slot of a process that died. */
	TRANCHE_OP_MEASURE_ALL = 2,
};

struct tranche_request {
	uint32_t magic;
	uint32_t op;
	uint64_t id; /* comes back in the reply */
	uint64_t settle;
};

struct tranche_reply {
	uint32_t magic;
	int32_t status;
	uint64_t id;
	uint64_t used;     /* what the card holds for the process */
	uint64_t implicit; /* what the slot says now */
};

#endif
