/* SPDX-License-Identifier: Apache-2.0 */
#include "line.h"

#include <errno.h>

/* Between attempts where the card cannot be measured just now. */
#define NAP_NS 10000000ull
#define ATTEMPTS 20
/* An arbiter that did not answer a moment ago is not waited for as long again. */
#define IMPATIENCE_NS 100000000ull

enum line_result line_measure(struct session_share *share, enum tranche_op op, uint64_t settle, uint64_t deadline, struct tranche_reply *reply)
{
	struct tranche_request request = {
		.magic = TRANCHE_MESSAGE_MAGIC,
		.op = op,
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
static enum session_measured measure(struct session_share *share, enum tranche_op op, uint64_t settle, uint64_t deadline)
{
	struct tranche_reply reply = { .status = TRANCHE_OK };
	struct line_why why = { .text = "tranche-arbiter does not answer" };

	for (int tries = 0; now_ns() < deadline; tries++) {
		enum line_result result;

		if (!line_stands(share)) {
			line_drop(share);
			result = line_open(share, TRANCHE_ROLE_AGAIN, deadline, &why);
			if (result != LINE_OK && result != LINE_MOVED)
				break;
		}
		result = line_measure(share, op, settle, deadline, &reply);
		if (result == LINE_OK)
			return SESSION_MEASURED;
		if (result == LINE_AGAIN || reply.status != TRANCHE_EMEASURE) {
			/* No answer, an end, or nonsense. Nobody may answer this any more. */
			line_drop(share);
			continue;
		}
		if (tries >= ATTEMPTS)
			return SESSION_UNMEASURED;
		nap_ns(NAP_NS);
	}
	session_say("share %s: %s; see that tranche-arbiter runs on this node (tranche-node doctor)", share->key, why.text);
	return SESSION_UNANSWERED;
}

enum session_measured session_measure(struct session_share *share, uint64_t settle, bool everybody)
{
	uint64_t now = now_ns();
	uint64_t silent = __atomic_load_n(&share->silent, __ATOMIC_RELAXED);
	bool waited = silent != 0 && now - silent < SESSION_DEADLINE_NS;
	uint64_t deadline = now + (waited ? IMPATIENCE_NS : SESSION_DEADLINE_NS);
	enum session_measured result = SESSION_UNANSWERED;
	int saved = errno, cancel = cancel_defer();

	if (lock_take_until(&share->line, deadline)) {
		settle += __atomic_exchange_n(&share->owed, 0, __ATOMIC_RELAXED);
		result = measure(share, everybody ? TRANCHE_OP_MEASURE_ALL : TRANCHE_OP_MEASURE, settle, deadline);
		lock_give(&share->line);
	}
	if (result != SESSION_MEASURED)
		__atomic_add_fetch(&share->owed, settle, __ATOMIC_RELAXED);
	__atomic_store_n(&share->silent, result == SESSION_UNANSWERED ? now_ns() : 0, __ATOMIC_RELAXED);
	cancel_restore(cancel);
	errno = saved;
	return result;
}

void session_settle(struct session_share *share)
{
	if (__atomic_load_n(&share->owed, __ATOMIC_RELAXED) != 0)
		session_measure(share, 0, false);
}
