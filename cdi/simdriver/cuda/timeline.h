/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine: one line of time for each card that the process uses, on which
 * the commands of all its streams are laid out.
 *
 * Streams are queues of commands. Nothing has to run for a kernel to run: what
 * happened up to now is worked out from the queues whenever somebody looks
 * (timeline_advance), always to the same result, in which a command starts when
 * its queue, the card and the process's turn on it (turns.h) allow, at that
 * very nanosecond. A worker thread looks when something that the host can notice is due
 * and nobody else may be looking; those who wait for work work out themselves when it
 * will be done at the earliest, and look then.
 *
 * The model: kernels of one process run one after the other, among streams by
 * priority and then in turn; so do copies, on an engine of their own, beside kernels and
 * without a turn on the card. Contexts of one process on one card share its turns.
 *
 * Locks: timeline_lock guards everything that is not said to be somebody else's.
 * It may be taken while holding the lock of a queue's producers, not the other way round.
 */
#ifndef TRANCHE_SIM_TIMELINE_H
#define TRANCHE_SIM_TIMELINE_H

#include <time.h>

#include "capture.h"
#include "turns.h"

#define QUEUE_DEPTH 1024u
/* Waiting for marks must not block, so there is room for that beyond the depth. */
#define QUEUE_RING (2 * QUEUE_DEPTH)
#define NEVER TURNS_NEVER

static inline uint64_t clock_now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static inline uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static inline uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* ---- what is in a queue ---------------------------------------------------- */

/* A point in time that something was recorded for. */
struct moment {
	uint32_t references; /* atomic */
	uint32_t done;       /* atomic; time is set when it is */
	uint64_t time;
	struct queue *queue; /* that it is recorded in */
	uint64_t work;       /* command.work there */
};

struct moment *moment_new(void); /* NULL: no memory */
struct moment *moment_get(struct moment *moment);
void moment_put(struct moment *moment); /* NULL allowed */
bool moment_done(const struct moment *moment);

/* Who carries out a job. */
enum hand {
	HAND_NONE, /* whoever looks, with the lock: only for what takes microseconds */
	HAND_COPY,
	HAND_HOST,
};

/* Something that has to be done when its turn in the queue comes. In a graph it is done
 * many times. */
struct job {
	enum hand hand;
	uint64_t nanoseconds; /* that the copy engine takes */
	void (*run)(struct job *job);
	void (*drop)(struct job *job); /* when it is not needed any more */
};

/* cuStreamBatchMemOp. */
struct values {
	unsigned count;
	CUstreamBatchMemOpParams operation[];
};

enum command_kind {
	COMMAND_EMPTY,
	COMMAND_KERNEL,
	COMMAND_RECORD, /* payload: moment */
	COMMAND_WAIT,   /* payload: moment */
	COMMAND_MARK,   /* payload: the mark itself, which is waited for */
	COMMAND_JOB,    /* payload: job */
	COMMAND_VALUES, /* payload: values */
	COMMAND_GRAPH,  /* payload: graph_run */
};

struct command {
	uint64_t order; /* among the commands of its context */
	uint64_t stamp; /* when it was submitted */
	uint64_t work;  /* nanoseconds of kernels in the queue ever, with this command's */
	uint16_t kind;
	bool slow;      /* has to be done by somebody at its time: not only worked out */
	uint64_t nanoseconds; /* of a kernel, or of all kernels of a graph */
	void *payload;  /* belongs to the command */
	uint64_t reserved[2];
};

/* The commands of an executable graph in the order in which they are done. In them a
 * RECORD or WAIT has no payload but in nanoseconds its place in graph_run.moment. */
struct program {
	uint32_t references; /* atomic */
	unsigned count;
	unsigned moments;
	bool slow;
	uint64_t work;
	struct command command[];
};

struct graph_run {
	struct program *program;
	unsigned next;
	struct moment *moment[];
};

void program_put(struct program *program);
/* Frees what a command that was not submitted, or is done, has. */
void command_drop(struct command *command);

/* ---- queues ---------------------------------------------------------------- */

enum job_state { JOB_NONE, JOB_PENDING, JOB_DONE };

/* Never freed, but used again. */
struct queue {
	pthread_mutex_t lock; /* of producers */
	uint64_t tail;        /* atomic: commands ever submitted */
	uint64_t work;        /* producers': work of the last command */
	struct command *ring;
	struct engine *engine;
	struct engine_context *context;
	uint64_t number; /* in the table of queues, from 1 */
	int priority;    /* lower is more urgent */
	bool blocking;   /* synchronises with the legacy default stream */
	bool orphan;     /* no stream has it: to be used again once empty */

	_Alignas(64) uint64_t head; /* atomic: commands ever done */
	uint64_t ready;     /* end of the last command that is done */
	uint64_t work_done;
	uint64_t start;     /* when the current command can start at the earliest, NEVER: something is in its way */
	uint64_t served;    /* when it last got a kernel onto the card */
	uint64_t scanned;   /* commands before this one are not slow */
	unsigned value;     /* next operation of a COMMAND_VALUES */
	enum job_state job_state;
	uint64_t job_start;
	uint64_t job_end;
	struct queue *job_next; /* in the list of who carries it out */
	struct queue *next;     /* of the engine */
};

/* One a context. */
struct engine_context {
	struct engine *engine;
	struct CUctx_st *context;
	struct CUstream_st *legacy;
	struct CUstream_st *streams; /* all, linked by next */
	struct CUevent_st *events;
	struct engine_context *next; /* of the engine */
	uint64_t order;              /* atomic */
	bool closing;                /* nothing is waited for any more */
};

struct stretch {
	uint64_t start, end;
};

/* One a card. */
struct engine {
	struct engine *next;
	struct sim_device *device;
	struct card *card;
	struct engine_context *contexts;
	struct queue *queues;
	uint32_t quiet;    /* atomic: no queue had anything when somebody last looked */
	uint32_t worker;   /* atomic: it runs */
	uint64_t wake_at;  /* when the worker looks at the latest, unless woken */
	bool wants;        /* the card */

	struct queue *current; /* whose kernel is on the card, or waits for the turn to go on */
	uint64_t remaining;    /* of it */
	uint64_t at;           /* time up to which it is accounted for; end of the last kernel */
	uint64_t turn;         /* number of the turn that is being used up */
	struct turn held;      /* the turn, if it is ours */
	bool holds;
	uint64_t served;
	struct stretch kernels, copies; /* that are not in the card's log yet */
	uint64_t copies_end; /* when the copy engine is free */
};

struct CUstream_st {
	struct sim_handle handle;
	struct CUctx_st *context;
	struct queue *queue;
	struct CUstream_st *next;   /* of the context */
	struct capture *capture;    /* atomic, changed under graph_lock */
	struct CUstream_st *joined; /* of the capture */
	struct tips tips;           /* in the capture */
	unsigned flags;
	bool special; /* a default stream */
	CUlaunchAttributeValue attribute[2]; /* access policy window, synchronisation policy */
};

extern pthread_mutex_t timeline_lock;

static inline void timeline_enter(void)
{
	pthread_mutex_lock(&timeline_lock);
}

static inline void timeline_leave(void)
{
	pthread_mutex_unlock(&timeline_lock);
}

static inline uint64_t queue_tail(const struct queue *queue)
{
	return __atomic_load_n(&queue->tail, __ATOMIC_ACQUIRE);
}

static inline uint64_t queue_head(const struct queue *queue)
{
	return __atomic_load_n(&queue->head, __ATOMIC_ACQUIRE);
}

static inline struct command *queue_command(const struct queue *queue, uint64_t position)
{
	return &queue->ring[position % QUEUE_RING];
}

/* Under the lock. NULL: no memory. */
struct queue *queue_open(struct engine_context *context, bool blocking, int priority);
/* Under the lock. Its commands are done all the same. */
void queue_close(struct queue *queue);
/* NULL: no queue ever had the number. Any thread. */
struct queue *queue_by_number(uint64_t number);

/* Adds a command, of which kind, slow, nanoseconds and payload are set. Waits while the queue
 * is full. Without the lock. The command is the queue's even if it fails. */
CUresult queue_submit(struct queue *queue, struct command command);

/* ---- looking --------------------------------------------------------------- */

/* The engine of a device, made when it is first asked for. Under the lock; NULL: no memory. */
struct engine *engine_of(struct sim_device *device);

/* Works out what happened up to now, on all cards. Returns whether anything did. Under the lock. */
bool timeline_advance(uint64_t now);
/* When the engine's worker has to look: hard, or some 100 microseconds after soft. Under the lock. */
void timeline_plan(struct engine *engine, uint64_t now, uint64_t *hard, uint64_t *soft);
/* Advances, sees that the workers will look in time, wakes who waits for changes. Under the lock. */
void timeline_look(void);
/* Looks after something was submitted. Without the lock. */
void engine_kick(void);
/* Sees that the engine has its worker. Without the lock. */
CUresult engine_ready(struct engine *engine);

/* Sees that there is who carries out such jobs. Without the lock. */
CUresult hands_ready(enum hand hand);
/* Has the job that is current in the queue carried out. Under the lock. */
void hands_start(struct queue *queue, enum hand hand);
/* The command that is to be done next, inside a graph if need be; NULL: the queue is empty. */
struct command *queue_current(const struct queue *queue);
/* The moment that the current command, a RECORD or WAIT, is about. NULL: none to wait for. */
struct moment *queue_moment(const struct queue *queue, const struct command *command);
CUresult start_thread(void *(*run)(void *), void *argument);

/* ---- waiting: without the lock ----------------------------------------------- */

/* Waits until the commands before position are done. */
void queue_wait(struct queue *queue, uint64_t position);
/* Waits until there is room for another command. */
void queue_wait_room(struct queue *queue);
void moment_wait(struct moment *moment);
/* Whether it is done now; looks. */
bool queue_done(struct queue *queue, uint64_t position);
/* Wakes who waits for changes. Under the lock. */
void waiters_wake(void);

/* True in a thread that carries out a host function. */
extern _Thread_local bool in_callback;

#endif
