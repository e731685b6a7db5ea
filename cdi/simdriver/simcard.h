/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulated card: one directory, the same in every container that has the
 * card, with
 *   card   this structure, mapped by every process that uses the card
 *   mem    the card's memory, a sparse file of memory_total bytes
 *   pids   an empty file that only the simulated libcuda opens, once a process
 *          and for ever: a process that has slot i holds a POSIX write lock on
 *          byte i. The kernel gives the lock back when the process ends, however it
 *          ends, or executes another program, and F_OFD_GETLK tells anybody,
 *          the owner too, the owner's PID in the asker's own PID namespace: 0
 *          when it has none there, -1 when somebody clears up after a process that
 *          died, which is done under an open file description lock. A child of
 *          fork does not have it.
 * A directory of cards has a directory for each card, named by its UUID. In
 * containers it is SIMCARD_DIR.
 *
 * All integers are in the machine's byte order; sizes are bytes and times are
 * nanoseconds of CLOCK_MONOTONIC. What several processes write is changed by
 * atomic operations. pkg/simcard is the same in Go (a test compares the layouts).
 */
#ifndef TRANCHE_SIMCARD_H
#define TRANCHE_SIMCARD_H

#include <stdint.h>

#define SIMCARD_DIR "/run/tranche/cards"
/* For tests and tools: another directory of cards. */
#define SIMCARD_DIR_ENV "TRANCHE_SIM_CARDS"

#define SIMCARD_MAGIC 0x3144524143534354ull /* "TCSCARD1" */
#define SIMCARD_VERSION 1u
#define SIMCARD_MAX_SLOTS 1024u
/* The unit in which memory is held: every allocation, pool, context and module
 * takes whole frames, small allocations of one context share frames. */
#define SIMCARD_FRAME (2ull << 20)
#define SIMCARD_MAX_FRAMES 131072u /* 256 GiB */
#define SIMCARD_LOG 65536u

/* What a process holds memory for. */
enum simcard_kind {
	SIMCARD_CONTEXT,
	SIMCARD_MODULE,
	SIMCARD_LINEAR,
	SIMCARD_MANAGED,
	SIMCARD_POOL,
	SIMCARD_VMM,
	SIMCARD_ARRAY,
	SIMCARD_GRAPH,
	SIMCARD_OTHER,
	SIMCARD_KINDS
};

/* One process that has used the card. Found by trying the locks from 0 up; who
 * gets the lock of a slot that a dead process left, clears it first: frames,
 * then the slot. */
struct simcard_slot {
	uint32_t taken;
	int32_t ns_pid; /* as the process sees itself; the truth is the lock */
	uint64_t held[SIMCARD_KINDS];
	uint64_t held_max;  /* most that was held at once */
	uint64_t busy;      /* time on the card */
	uint64_t launches;
	uint64_t started;   /* when the slot was taken */
	uint64_t last_busy; /* end of the last run */
	char name[16];      /* of the program */
	uint64_t turn_seen; /* when the process, which wants the card, last looked at the turns */
	uint64_t reserved[11];
};

/* simcard_run.what, low byte: a stretch of kernels, for which the process had the card for itself, or
 * of copies, which run beside kernels, also those of others. The other three bytes are
 * the low 24 bits of the run's index divided by SIMCARD_LOG, and what is written
 * last: a run whose number does not fit is not written yet, or no longer there.
 * Runs of one slot and kind are in the order of time; others need not
 * be, because each process writes its own when it next looks at the time. */
enum simcard_what {
	SIMCARD_KERNELS = 1,
	SIMCARD_COPIES = 2,
};

/* One stretch of time. */
struct simcard_run {
	uint64_t start;
	uint64_t end;
	uint32_t slot;
	uint32_t what;
};

struct simcard {
	/* Set when the card is made, never changed. */
	uint64_t magic; /* written last */
	uint32_t version;
	uint32_t size; /* of this structure */
	char uuid[64]; /* "GPU-..." */
	char name[96];
	char pci_bus_id[32]; /* "00000000:01:00.0" */
	char driver_version[32]; /* "550.54.14" */
	uint32_t cuda_version;   /* 12040 */
	/* 470, 535, 550 or 580: which functions the driver has and what
	 * cuGetProcAddress answers. */
	uint32_t profile;
	uint32_t index;
	uint32_t minor;
	uint32_t compute_major;
	uint32_t compute_minor;
	uint32_t multiprocessors;
	uint32_t threads_per_multiprocessor;
	uint64_t memory_total;   /* a multiple of SIMCARD_FRAME */
	uint64_t memory_driver;  /* held by the driver itself, always */
	uint64_t context_bytes;  /* one context, a multiple of SIMCARD_FRAME */
	uint64_t time_slice;     /* of native turns between processes */
	uint64_t copy_bytes_per_second;
	uint8_t reserved0[256];

	/* The truth. */
	_Alignas(64) uint64_t used; /* frames held, in bytes, without memory_driver */
	uint64_t used_max;
	uint64_t refused; /* allocations that did not fit */
	/* Goes up before and after every change of what any slot holds: two
	 * readings with the same number before and after them saw one state. */
	uint64_t changes;
	uint8_t reserved1[96];

	/* Turns and runs. */
	_Alignas(64) uint64_t engine[64];
	_Alignas(64) uint64_t log_next; /* runs ever written; run i is log[i % SIMCARD_LOG] */
	struct simcard_run log[SIMCARD_LOG];

	_Alignas(64) struct simcard_slot slot[SIMCARD_MAX_SLOTS];
	/* Which slot holds a frame: its number plus one, 0 for nobody. A frame
	 * that several processes have mapped (VMM and IPC imports) is held by one of them. */
	_Alignas(64) uint16_t frame[SIMCARD_MAX_FRAMES];
	/* For the memory part of the driver: objects that several processes
	 * share. */
	_Alignas(64) uint8_t shared[4 << 20];
};

#endif
