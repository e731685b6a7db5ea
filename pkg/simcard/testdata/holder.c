/* SPDX-License-Identifier: Apache-2.0
 *
 * A process that holds frames of a card: takes a slot, says so, then obeys.
 *   + N   claims N frames     -   gives back what it claimed last
 *   ~ N   claims and gives back N frames, as often as it can, until it is killed
 * It answers each line with "ok" or "no".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "card/card.h"

static struct {
	uint32_t *frames;
	uint64_t count;
} claims[64];
static unsigned used;
static struct card card;

static int claim(uint64_t count)
{
	claims[used].count = count;
	claims[used].frames = calloc(count, sizeof(uint32_t));
	if (card_claim(&card, SIMCARD_LINEAR, claims[used].frames, count) != 0) {
		free(claims[used].frames);
		return 0;
	}
	used++;
	return 1;
}

static void give_back(void)
{
	used--;
	card_release(&card, claims[used].frames, claims[used].count);
	free(claims[used].frames);
}

int main(int argc, char **argv)
{
	char line[64];

	if (argc != 2 || card_open(argv[1], CARD_USE, &card) != 0 || card_take_slot(&card) != 0)
		return 1;
	puts("ok");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		uint64_t count = strtoull(line + 1, NULL, 10);

		if (line[0] == '~') {
			for (;;) {
				if (claim(count))
					give_back();
			}
		}
		if (line[0] == '-')
			give_back();
		puts(line[0] != '+' || claim(count) ? "ok" : "no");
		fflush(stdout);
	}
	return 0;
}
