/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules and libraries, whose memory is known only when the card was measured.
 */
#ifndef TRANCHE_MODULES_H
#define TRANCHE_MODULES_H

#include "context.h"

/* A context is gone: no library is loaded in it. */
void modules_forget(const struct owner *owner);

/* The most that an image is expected to take on a card: of PTX what can be read in its text, of
 * binaries their size. exact: PTX, which says all. */
uint64_t image_estimate(const void *image, bool *exact);
uint64_t file_estimate(const char *path, bool *exact);

#endif
