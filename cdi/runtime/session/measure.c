/* SPDX-License-Identifier: Apache-2.0 */
#include "line.h"

#include <errno.h>

/* Between attempts where the card cannot be measured just now. */
#define NAP_NS 10000000ull
#define ATTEMPTS 20

enum line_result line_measure(struct session_share *share, uint64_t settle, uint64_t deadline, struct tranche_reply *reply)
{
	struct tranche_request request = {
		.magic = TRANCHE_MESSAGE_MAGIC,
		.op = TRANCHE_OP_MEASURE,
		.id = ++share->next_id,
		.settle = settle,
	};

	if (line_send(share->fd, &request, sizeof(request), -1) != LINE_OK)
		return LINE_AGAIN;
	do {
		enum line_result result = line_receive(share->fd, reply, sizeof(*reply), NULL, deadline);

		if (result != LINE_OK)
			return result;
		if (reply->magic != TRANCHE_MESSAGE_MAGIC)
			return LINE_REFUSED;
	} while (reply->id != request.id);
	if (reply->status != TRANCHE_OK)
		return LINE_REFUSED;
	if (settle != 0)
		__atomic_sub_fetch(&share->estimates, settle, __ATOMIC_RELAXED);
	return LINE_OK;
}

/* Has the line; the connection is restored when it ends on the way. */
static enum line_result measure(struct session_share *share, uint64_t settle, uint64_t deadline, struct tranche_reply *reply)
{
	struct line_why why;

	for (int tries = 0;; tries++) {
		enum line_result result;

		if (!line_stands(share)) {
			line_drop(share);
			result = line_open(share, TRANCHE_ROLE_AGAIN, deadline, &why);
			if (result != LINE_OK && result != LINE_MOVED)
				return result;
		}
		result = line_measure(share, settle, deadline, reply);
		if (result == LINE_OK)
			return LINE_OK;
		if (result == LINE_AGAIN) {
			/* No answer, or an end. Either way nobody may answer this any more. */
			line_drop(share);
		} else if (reply->status != TRANCHE_EMEASURE || tries >= ATTEMPTS) {
			return result;
		} else {
			nap_ns(NAP_NS);
		}
		if (now_ns() >= deadline)
			return LINE_AGAIN;
	}
}

bool session_measure(struct session_share *share, uint64_t settle, uint64_t *used)
{
	uint64_t deadline = now_ns() + SESSION_DEADLINE_NS;
	struct tranche_reply reply = { .used = 0 };
	int saved = errno;
	enum line_result result = LINE_AGAIN;

	if (lock_take_until(&share->line, deadline)) {
		result = measure(share, settle, deadline, &reply);
		lock_give(&share->line);
	}
	if (result == LINE_OK && used)
		*used = reply.used;
	errno = saved;
	return result == LINE_OK;
}
