/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA_VISIBLE_DEVICES: numbers or beginnings of UUIDs, separated by commas. What
 * follows the first entry that names no card, or more than one, does not count. A card that is named twice:
 * no card is seen.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "process.h"

/* The number of the card, or -1. */
static int by_uuid(const char *entry, size_t length, const struct card *cards, int all)
{
	int found = -1;

	for (int i = 0; i < all; i++) {
		if (strncasecmp(cards[i].page->uuid, entry, length) != 0)
			continue;
		if (found >= 0)
			return -1;
		found = i;
	}
	return found;
}

static int by_entry(const char *entry, size_t length, const struct card *cards, int all)
{
	char *end;
	long number;

	while (length > 0 && *entry == ' ') {
		entry++;
		length--;
	}
	while (length > 0 && entry[length - 1] == ' ')
		length--;
	if (length > strlen("GPU-") && strncasecmp(entry, "GPU-", strlen("GPU-")) == 0)
		return by_uuid(entry, length, cards, all);
	if (length == 0 || entry[0] < '0' || entry[0] > '9')
		return -1;
	number = strtol(entry, &end, 10);
	return end == entry + length && number < all ? (int)number : -1;
}

int sim_visible(const char *value, const struct card *cards, int all, int chosen[CARD_MAX])
{
	bool seen[CARD_MAX] = {false};
	int count = 0;

	for (int i = 0; !value && i < all; i++)
		chosen[count++] = i;
	while (value && *value) {
		size_t length = strcspn(value, ",");
		int card = by_entry(value, length, cards, all);

		if (card < 0)
			break;
		if (seen[card])
			return 0;
		seen[card] = true;
		chosen[count++] = card;
		value += length + (value[length] == ',');
	}
	return count;
}
