/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the session: the connection of one share with its arbiter. All
 * functions here need the share's line, except those that open a session that nobody
 * else sees yet.
 */
#ifndef TRANCHE_LINE_H
#define TRANCHE_LINE_H

#include "session.h"

/* How a conversation went. */
enum line_result {
	LINE_OK,
	LINE_MOVED,   /* other pages than before */
	LINE_AGAIN,   /* no arbiter (yet), or it went away: try again */
	LINE_REFUSED, /* the arbiter refuses, or speaks nonsense */
	LINE_BROKEN,  /* the system refuses, or pages make no sense */
};

/* Why it did not go well, for people. */
struct line_why {
	char text[TRANCHE_REASON_SIZE + 80];
};

/* Up to three descriptors of pages that came with a welcome; -1: none. */
struct line_pages {
	int fd[3];
};

/* Connects and exchanges the first messages, one try after the other until the deadline
 * (at least one); on LINE_OK and LINE_MOVED the share has its pages and
 * connection. */
enum line_result line_open(struct session_share *share, enum tranche_role role, uint64_t deadline, struct line_why *why);

/* Sends size bytes and, unless it is -1, a descriptor. */
enum line_result line_send(int fd, const void *message, size_t size, int passed);

/* Receives one message of exactly size bytes. pages may be NULL. */
enum line_result line_receive(int fd, void *message, size_t size, struct line_pages *pages, uint64_t deadline);

/* Counts the connections that were made; wraps. */
extern uint32_t line_count __attribute__((visibility("hidden")));

/* True: the connection stands, as far as one can see without saying anything. */
bool line_stands(const struct session_share *share);

/* Closes what is the share's own of the connection. */
void line_drop(struct session_share *share);

/* Maps what came. Takes the descriptors over, closes what is not needed. again: the share
 * has pages already. */
enum line_result pages_take(struct session_share *share, struct line_pages *pages, const struct tranche_welcome *welcome, bool again,
			    struct line_why *why);

/* Descriptors. A program may close ours and open its own under the same number, so
 * each is looked at before it is used or closed. */
int fd_aside(int fd);
bool fd_identify(int fd, uint64_t identity[2]);
bool fd_is(int fd, const uint64_t identity[2]);
int64_t fd_size(int fd);

void why_set(struct line_why *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What session_restore does. With unless_busy a connection that somebody talks on now is
 * taken for a good one, unless it has been seen to have ended. */
bool line_restore(struct session_share *share, uint64_t patience, bool unless_busy, struct line_why *why);

/* The measurement itself. */
enum line_result line_measure(struct session_share *share, enum tranche_op op, uint64_t settle, uint64_t deadline, struct tranche_reply *reply);

/* The role with which the session was opened. */
enum tranche_role session_role(void);

#endif
