/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the compute gate. Locks are held for a few instructions, never across a call of
 * the driver. Two things are: the gates of pools and of events (lease_event.c), so that none is
 * touched when its context ends; and meter.retiring, for which nobody waits.
 */
#ifndef TRANCHE_LEASE_INSIDE_H
#define TRANCHE_LEASE_INSIDE_H

#include "card.h"
#include "lease.h"

/* Where the arbiter names no window. */
#define WINDOW_NS 1000000u
/* A window that is shared by several processes. */
#define CROWDED_NS 500000u
/* A batch is no longer, as estimated, nor has it more launches. */
#define BATCH_NS 100000u
#define BATCH_LAUNCHES 64u
/* What a thread has tallied for a card on all its streams together comes to no more than about so
 * many batches: a batch on one of more streams is shorter. A stream is one of them that had one of
 * the thread's last batches. */
#define BATCHES_TALLIED 4u
#define LAST_BATCHES 64u
/* What runs so long past its estimate may wait for what is yet to be launched. */
#define PATIENCE_NS 100000000u
/* So many launches of a thread are recorded one by one: of one that is new, and may be gone after
 * a few, and of one that uses more streams than it has tallies for. What is not recorded when
 * it goes, or when a tally is needed, is only guessed. */
#define WATCHED 32u
/* A stream's queue has an end, at which a record waits as a launch does. So where that many batches of a
 * stream have not ended, a launch there waits for one of them; or, where the stream is held up, many
 * launches are one batch. */
#define DEEP 32u
#define TOGETHER 32u
#define USES 8
#define STREAMS 16

/* ---- what work takes (lease_cost.c) ----------------------------------------------- */

/* Estimate for one function, by the number of its blocks. Never freed. */
struct cost {
	struct cost *next;
	const void *what;
	uint32_t shape;
	uint32_t ns;      /* of one unit */
	uint32_t samples; /* saturates */
	uint32_t careful; /* launches that are yet to be batches of their own */
	uint32_t doubts;
};

/* Part of a batch: launches of one function. */
struct use {
	struct cost *cost;
	uint32_t units;
	uint32_t ns; /* of one unit, as it was estimated */
};

/* NULL: no memory. */
struct cost *cost_of(const void *what, uint32_t shape);
/* Uses took ns together. alone: a single launch, measured from its start. */
void cost_learn(const struct use *uses, size_t count, uint64_t ns, bool alone);
/* Whether a launch has to be a batch of its own, for what it takes is not known well. */
bool cost_is_unknown(const struct cost *cost);
/* Something was launched that was never timed: the next launch is. */
void cost_was_guessed(struct cost *cost);
void cost_was_careful(struct cost *cost);

static inline uint64_t cost_ns(const struct cost *cost, uint32_t units)
{
	return (uint64_t)__atomic_load_n(&cost->ns, __ATOMIC_RELAXED) * units;
}

/* ---- threads and tallies (lease_thread.c, lease.c) ---------------------------------- */

struct place {
	const void *what;
	uint32_t shape;
	uint32_t weight; /* ns of one launch, and at least so much that BATCH_LAUNCHES are a batch */
	struct use use;
};

/* What a thread has launched on a stream since it last recorded an event there. Only
 * pending and together are read by others. */
struct tally {
	CUstream stream;
	struct owner owner;
	struct meter *meter;
	struct pool *pool; /* the owner's, or was; NULL: not looked up */
	uint32_t word;   /* the lease under which it was opened; 0: nothing is open */
	uint32_t fill;   /* sum of weights */
	uint32_t pending; /* of those that may not have ended */
	uint32_t budget; /* at which it is closed */
	uint32_t number; /* the thread's, of the last batch */
	uint32_t frees;  /* the meter's, when it was last opened */
	uint32_t together; /* of a stream that is held up: how many more launches are part of it; 0: of any other */
	bool alone;      /* a single launch, for its own sake */
	bool follows;    /* something was in flight when it was opened */
	CUevent start;   /* NULL: what was recorded before is its start */
	struct place *last;
	struct place place[USES];
};

struct thread {
	struct thread *next;
	uint32_t taken;    /* some thread's */
	const struct meter *inside; /* at whose gate it is, from before it looks at the lease until after the launch */
	uint32_t launches; /* counts; wraps */
	uint32_t batches;  /* that it has opened; wraps */
	uint32_t tallies;  /* that it has used: the first ones */
	uint32_t turn;     /* which goes next, when it has used all */
	uint32_t watched;  /* launches that are yet to be recorded one by one */
	const CUDA_LAUNCH_PARAMS *list; /* what it launches on several cards at once */
	unsigned int count;
	struct tally *last; /* inside: what it launches belongs to */
	struct tally tally[STREAMS];
};

/* The calling thread's; NULL: none yet. */
extern __thread struct thread *thread_self __attribute__((visibility("hidden")));
/* The same; NULL: no memory. */
struct thread *thread_mine(void);

/* The thread is at the gate, or leaves it. What it reads from here on is not older; the
 * fence is the census's. */
static inline void be_inside(struct thread *thread, const struct meter *meter)
{
	__atomic_store_n(&thread->inside, meter, __ATOMIC_RELEASE);
	__asm__ volatile("" ::: "memory");
}

/* A launch that was made already, under that lease, is a batch of its own. Its context is current. */
void tally_late(struct thread *thread, struct meter *meter, const struct owner *owner, const struct work *work, uint32_t word);

struct census {
	uint64_t since;    /* a stream that was seen to be held up since then is at nothing: who is at a launch there is not inside */
	uint64_t ns;       /* what threads have launched on the card and not recorded */
	uint32_t launches; /* of all threads, ever; wraps */
	bool inside;       /* one of them is at a launch now */
};

#define NOBODY_IS_HELD_UP UINT64_MAX

/* What was launched after this is launched under a lease that was read after this. */
struct census census_take(struct meter *meter, uint64_t since);

/* ---- what is in flight on a card (lease_record.c, _ended.c, _flight.c, _event.c) ------ */

/* Events of one context. Used again for another when that is gone, never freed. */
struct pool {
	struct pool *next;
	struct gate users;  /* who records */
	struct owner owner; /* no context: nobody's */
	CUevent base;       /* the last end that was seen; NULL: none */
	uint32_t count;
	CUevent spare[64];
};

struct batch {
	struct batch *next;
	struct pool *pool;
	CUstream stream; /* tells streams apart, no more */
	CUevent start;   /* or NULL */
	CUevent end;
	uint64_t ns;
	uint64_t recorded;
	uint64_t seen; /* to run, the last time */
	uint64_t begun; /* when its start was first seen to have ended, after the stream was held up; 0: it was not */
	double at;     /* when it ended: ns since the last end that was seen before */
	bool follows;  /* something was in flight when it was opened */
	bool alone;
	bool excluded; /* its stream is not waited for */
	uint32_t count;
	struct use use[USES];
};

/* A stream that waits for something else than the card. */
struct blocked {
	CUstream stream;
	uint64_t seen; /* the last time */
};

struct lease {
	struct session_share *share;
	struct meter *meter;
	struct lock lock; /* all that is said in the demand page */
	uint32_t pass; /* the word under which a launch has nothing to say; 0: none */
	uint32_t wants;
	uint32_t waiting;
	uint32_t drained;
	uint64_t waits_since;
	uint64_t waited;
	const struct tranche_demand *said; /* the page in which it was said */
	/* The arbiter is taken for gone although the connection stands, since it has not moved from
	 * that beat of that grant. NULL: it is not. */
	const struct tranche_grant *still;
	uint64_t beat;
	uint64_t lasted; /* that was seen for so long, at the time of the last look */
	uint64_t looked;
	/* The arbiter whose beats are counted, and since when. */
	const struct tranche_grant *heeded;
	uint64_t heeded_since;
	uint32_t watched;
};

struct meter {
	struct card *card;
	size_t leases;
	struct lease lease[CARD_SHARES];

	struct lock lock; /* all below */
	struct batch *first, **last, *unused;
	uint32_t batches;     /* how many, from first on; read without the lock */
	uint64_t outstanding; /* ns of batches, but the excluded */
	uint64_t latest;      /* when a batch was last seen to have ended */
	uint64_t until;       /* when what was launched and never recorded is expected to have ended */
	uint64_t used;
	uint64_t lenient;   /* when a launch last went although there was no room */
	uint64_t courted;   /* when that was recorded for whose sake it did; 0: is known what became of it */
	uint64_t courtesy;  /* how long a short launch waits for what runs on another stream; 0: not used yet */
	uint32_t admitting; /* threads that wait for room */
	uint32_t frees; /* counts the times of a free lease, in which nothing is tallied */
	uint32_t endings; /* of contexts, ever; wraps */
	struct blocked blocked[4];
	uint64_t blocked_seen; /* the last of them; 0: never was one */
	struct lock retiring; /* who looks which batches have ended; only ever tried */
};

/* Who is inside of this is inside of all. */
extern const struct meter meter_any __attribute__((visibility("hidden")));

/* The card's meter; NULL: none of its shares is ours. */
struct meter *meter_of(struct card *card);
/* Under the meter's lock; read without. */
static inline void meter_add(struct meter *meter, int64_t ns)
{
	__atomic_store_n(&meter->outstanding, meter->outstanding + (uint64_t)ns, __ATOMIC_RELAXED);
}

uint64_t meter_window(const struct meter *meter);
/* How long to wait before another look where it is not known well when what is in flight ends, ns. Many
 * processes that look often keep a machine busy with its timers. */
uint64_t meter_watchful(const struct meter *meter);

/* Until what is in flight is little enough for ns more, of a long launch until what is left takes
 * half a window. What runs on another stream may wait for a short one: it is let by now and then.
 * stream NULL: it is for no stream alone. False: the lease is no longer open. */
bool flight_admit(struct meter *meter, CUstream stream, uint64_t ns);
/* Whether so many batches of the stream have not ended. */
bool flight_is_deep(struct meter *meter, CUstream stream);
/* Whether the stream was held up just now: what is launched there is not bounded by room. */
bool stream_is_held_up(struct meter *meter, CUstream stream);
/* Before the first launch of a batch: records its start, where that is needed. */
void flight_open(struct tally *tally);
/* After its last. */
void flight_close(struct tally *tally);
/* What was tallied is to be known by its estimate only. */
void flight_guess(struct tally *tally);
/* What was seen on the way through the batches. */
struct pass {
	CUstream pending[16];
	size_t count;
	bool running; /* something is in flight that does not wait for something else */
};

/* Takes all batches out that have ended. stranger: the thread has no context of its own. False:
 * another thread is at it. */
bool flight_retire(struct meter *meter, struct pass *pass, bool stranger);
/* Under the meter's lock, for a launch that went although there was no room: what it was let go for
 * ended then; UINT64_MAX: not yet. */
void courtesy_judge(struct meter *meter, uint64_t end);
/* Under the meter's lock: when the batch began, if nothing is before it now, */
static inline uint64_t batch_began(const struct meter *meter, const struct batch *batch)
{
	return batch->recorded > meter->latest ? batch->recorded : meter->latest;
}

/* and by how much it has passed its estimate. */
uint64_t batch_overdue(const struct meter *meter, const struct batch *batch, uint64_t now);
/* Whether the stream was seen to wait for something else than the card since then. */
bool stream_was_blocked(struct meter *meter, CUstream stream, uint64_t since);
/* Drops what was recorded in contexts that are gone. Nobody else touches events meanwhile. */
void flight_forget(struct meter *meter);
/* When what was recorded is expected to have ended. */
struct forecast {
	uint64_t ends;
	bool poor; /* what runs now is not known well: it may end long before */
};

/* Whether nothing is in flight of what was recorded. */
bool flight_is_over(struct meter *meter, struct forecast *forecast);

/* NULL: no memory. */
struct pool *pool_of(const struct owner *owner);
/* Around recording, which may wait for the stream. False: the pool's context is gone. */
bool pool_enter(struct pool *pool, const struct owner *owner);
void pool_leave(struct pool *pool);
/* Around calls that look at events of any pool. */
void events_enter(void);
void events_leave(void);
CUevent pool_take(struct pool *pool);
void pool_give(struct pool *pool, CUevent event);
/* So that what we do spoils nobody's capture. */
CUstreamCaptureMode capture_relax(void);
void capture_restore(CUstreamCaptureMode mode);
/* Whether the stream is being captured, or may not be asked. */
bool capture_is_on(CUstream stream);

/* ---- the word (lease_word.c, lease_warden.c) ------------------------------------------------ */

enum lease_view {
	VIEW_CLOSED,
	VIEW_OPEN,
	VIEW_FREE,
};

/* What the lease says now; without an arbiter, what the timetable says. left: until that may
 * change by itself. */
enum lease_view lease_view(struct lease *lease, uint32_t *word, uint64_t *left);
/* Of all leases of a card the best. */
enum lease_view meter_view(struct meter *meter, uint32_t *word, uint64_t *left);
/* Waits until it is open, then says that the card is wanted, and sees that wardens watch; or until it
 * is free. Other than CUDA_SUCCESS: it will be neither. */
CUresult meter_await(struct meter *meter, enum lease_view *view, uint32_t *word);
/* Whether that is still said. */
bool meter_is_wanted(const struct meter *meter);
/* The warden's, under no lock: when nothing will be in flight any more, 0 if nothing is, and what was used. */
void meter_tell(struct meter *meter, uint64_t ends);
/* The warden's: takes wants back, or says that the closed word is obeyed. */
bool lease_take_back(struct lease *lease, const struct census *census);
void lease_drained(struct lease *lease, uint32_t word);
void lease_say_again(struct lease *lease);
/* Whether the arbiter has not shown itself since that time. */
void lease_check_beat(struct lease *lease, uint64_t since);

/* Starts a warden for each lease of the card that has none. */
void wardens_start(struct meter *meter);

#endif
