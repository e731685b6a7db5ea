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
 *   free n:  inflight += 1, (the driver frees,) committed -= n, changes += 1, inflight -= 1
 *
 * Why the sum of committed, reserve and implicit never passes the limit: all
 * accesses are sequentially consistent. Of two takers one made its pending visible
 * before the other summed, so the later one counts the earlier one's bytes:
 * in pending, or in committed, because they enter committed before they leave
 * pending and every reader reads pending first. (A reader between the two
 * counts them twice, which errs on the safe side.) A slot that is handed out
 * during the sum was counted into slots_used before, and its owner's own sum sees the
 * pending of everybody who summed without it. The arbiter moves reserve to
 * implicit in the same way, implicit first, and readers read reserve first. What it moves
 * from one slot to another it announces in between (tranche_ledger.moves), and who
 * sums meanwhile begins anew.
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

/* Around each call of the driver that takes or frees memory which is
 * committed: in between, no measurement takes the one for the other. */
void ledger_begin(struct session_share *share);
void ledger_end(struct session_share *share);

/* Takes bytes from the share's room; false: there is not enough. LEDGER_COMMITTED needs
 * ledger_begin. May wait for others who are about to settle, at most two seconds and
 * mostly not at all. */
bool ledger_take(struct session_share *share, enum ledger_column column, uint64_t bytes);

/* Gives committed bytes back, after the driver has freed them or did not take
 * them. Needs ledger_begin. */
void ledger_give(struct session_share *share, uint64_t bytes);

/* Adds to committed what the driver took already and nobody reserved; may pass the
 * limit. Needs ledger_begin. */
void ledger_admit(struct session_share *share, uint64_t bytes);

/* Gives an estimate back without a measurement. */
void ledger_unreserve(struct session_share *share, uint64_t bytes);

/* Turns committed bytes into an estimate, to be settled by a measurement: the driver
 * may or may not hold them still. Needs ledger_begin. */
void ledger_doubt(struct session_share *share, uint64_t bytes);

/* What the card may go on to hold when the process has ended (tranche_slot.exported): said
 * before it may, and taken back when it does not any more. */
void ledger_export(struct session_share *share, uint64_t bytes);
void ledger_unexport(struct session_share *share, uint64_t bytes);

/* Whether the share may be charged with memory of others: of processes, which may have ended
 * just now, or of what is left of those that have. */
bool ledger_has_others(const struct session_share *share);
/* Changes whenever the arbiter has cleared somebody's slot. */
uint32_t ledger_moves(const struct session_share *share);

/* What the share's processes hold together, pending not counted. */
uint64_t ledger_charge(const struct session_share *share);

#endif
