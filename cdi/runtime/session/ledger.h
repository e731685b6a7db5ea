/* SPDX-License-Identifier: Apache-2.0
 *
 * The ledger of a share: what its processes hold together, kept so that it is never
 * above the limit, although every process may be killed between any two
 * instructions, and no lock is shared.
 *
 * Each process changes its own slot only. The charge of the share is the sum of
 * pending, committed, reserve and implicit over all slots.
 *
 *   take n:  inflight += 1
 *            pending += n
 *            read grant.slots_used, then sum every slot
 *            sum <= limit:  committed += n, then pending -= n   (the driver is called)
 *            otherwise:     pending -= n, inflight -= 1         (the driver is not)
 *   settle:  committed is corrected to what the driver really took,
 *            changes += 1, inflight -= 1
 *   give n:  inflight += 1, (the driver frees,) committed -= n, changes += 1, inflight -= 1
 *
 * Why the sum of committed, reserve and implicit never passes the limit: all
 * accesses are sequentially consistent. Of two takers one made its pending visible
 * before the other summed, so the later one counts the earlier one's bytes:
 * in pending, or in committed, because they enter committed before they leave
 * pending and every reader reads pending first. (A reader between the two
 * counts them twice, which errs on the safe side.) A slot that is handed out
 * during the sum was counted into slots_used before, and its owner's own sum sees the
 * pending of everybody who summed without it. The arbiter moves reserve to
 * implicit in the same way, implicit first, and readers read reserve first.
 *
 * Why a kill does no harm: the slot of a dead process says at least what the driver
 * holds for it until the arbiter, who knows that it is dead, clears the slot. Bytes
 * are in committed before the driver is asked for them and leave it after the
 * driver has freed them. Nobody waits for what a dead process would have to do:
 * its pending looks like somebody's who is slow.
 *
 * Who does not fit only because of others' pending tries again: all withdraw
 * but the one in the lowest slot, who keeps its pending until it fits or until the
 * rest is full without anybody's pending. So there is always one who gets on.
 * In a process one thread at a time does so.
 */
#ifndef TRANCHE_LEDGER_H
#define TRANCHE_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "session.h"

/* Where a taken amount goes. */
enum ledger_column {
	LEDGER_COMMITTED, /* memory asked for by name */
	LEDGER_RESERVE,   /* an estimate, until a measurement replaces it */
};

/* Takes bytes from the share's room. LEDGER_COMMITTED: on success the slot is
 * in flight until ledger_settle. */
bool ledger_take(struct session_share *share, enum ledger_column column, uint64_t bytes);

/* Ends what ledger_take or ledger_begin began: committed falls by back (what was
 * taken and not used, or was freed). */
void ledger_settle(struct session_share *share, uint64_t back);

/* Announces a call of the driver that may free memory. */
void ledger_begin(struct session_share *share);

/* Adds what the driver holds already and nobody reserved; may pass the limit.
 * Needs ledger_begin. */
void ledger_admit(struct session_share *share, uint64_t bytes);

/* Gives an estimate back without a measurement. */
void ledger_unreserve(struct session_share *share, uint64_t bytes);

/* What the share's processes hold together, pending not counted. */
uint64_t ledger_charge(const struct session_share *share);

/* What the slot of this process says: committed, reserve and implicit. */
uint64_t ledger_own(struct session_share *share);

#endif
