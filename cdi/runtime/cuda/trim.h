/* SPDX-License-Identifier: Apache-2.0
 *
 * Making room, and keeping up with memory that comes free without a call that says
 * how much: what pools and graphs hold in reserve.
 */
#ifndef TRANCHE_TRIM_H
#define TRANCHE_TRIM_H

#include "card.h"

/* Gives back what the process's pools and graphs hold on the card and do not use.
 * False: there was nothing to give. */
bool trim_card(struct card *card);

/* The driver may have freed all that the card's pools and graphs had: charges follow. */
void trim_settle(struct card *card);
/* The program has synchronised something: pools shrink to their thresholds, and what is
 * in doubt is looked at again. One load where there is neither. */
void trim_synchronized(void);

#endif
