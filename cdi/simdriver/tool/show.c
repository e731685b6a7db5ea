/* SPDX-License-Identifier: Apache-2.0 */
#include "tool.h"

#include "card/objects.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const char *const kinds[SIMCARD_KINDS] = {
	[SIMCARD_CONTEXT] = "context", [SIMCARD_MODULE] = "module", [SIMCARD_LINEAR] = "linear",
	[SIMCARD_MANAGED] = "managed", [SIMCARD_POOL] = "pool", [SIMCARD_VMM] = "vmm",
	[SIMCARD_ARRAY] = "array", [SIMCARD_GRAPH] = "graph", [SIMCARD_OTHER] = "other",
};

static uint64_t load(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static uint64_t held(const struct simcard_slot *slot)
{
	uint64_t sum = 0;

	for (int k = 0; k < SIMCARD_KINDS; k++)
		sum += load(&slot->held[k]);
	return sum;
}

void print_json_text(const char *text)
{
	putchar('"');
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c == '"' || c == '\\')
			printf("\\%c", c);
		else if (c < 0x20)
			printf("\\u%04x", c);
		else
			putchar(c);
	}
	putchar('"');
}

int open_cards(const struct options *o, enum card_access access, struct card *cards)
{
	int n = card_open_all(o->dir, access, cards, CARD_MAX), kept = 0;

	if (n < 0)
		fail("%s: %s", o->dir, strerror(-n));
	for (int i = 0; i < n; i++) {
		if (o->card && strcmp(cards[i].page->uuid, o->card) != 0) {
			card_close(&cards[i]);
			continue;
		}
		cards[kept] = cards[i];
		int err = card_open_pids(&cards[kept++]);
		if (err)
			fail("%s/pids: %s", cards[kept - 1].dir, strerror(-err));
	}
	if (o->card && kept == 0)
		fail("%s has no simulated card %s", o->dir, o->card);
	return kept;
}

static int one_card(const struct options *o, const char *command, struct card *cards)
{
	if (!o->card)
		fail("%s: say the UUID of the card", command);
	return open_cards(o, CARD_LOOK, cards);
}

int command_list(const struct options *o)
{
	struct card cards[CARD_MAX];
	int n = open_cards(o, CARD_LOOK, cards);

	if (o->json)
		putchar('[');
	else if (n)
		printf("%-5s %-40s %-24s %10s %10s %s\n", "INDEX", "UUID", "NAME", "TOTAL MiB", "USED MiB", "DRIVER");
	else
		printf("no simulated cards in %s\n", o->dir);
	for (int i = 0; i < n; i++) {
		const struct simcard *c = cards[i].page;

		if (!o->json) {
			printf("%-5u %-40s %-24s %10" PRIu64 " %10" PRIu64 " %s\n", c->index, c->uuid, c->name,
			       c->memory_total >> 20, (c->memory_driver + load(&c->used)) >> 20, c->driver_version);
			continue;
		}
		printf("%s{\"index\":%u,\"uuid\":", i ? "," : "", c->index);
		print_json_text(c->uuid);
		printf(",\"name\":");
		print_json_text(c->name);
		printf(",\"driverVersion\":");
		print_json_text(c->driver_version);
		printf(",\"total\":%" PRIu64 ",\"used\":%" PRIu64 "}", c->memory_total, load(&c->used));
	}
	if (o->json)
		puts("]");
	return 0;
}

static const char *const owners[] = {
	[CARD_FREE] = "free", [CARD_DEAD] = "dead", [CARD_CLEARED] = "being cleared", [CARD_ALIVE] = "alive",
};

static void slot_json(const struct card *card, unsigned i, bool first, enum card_owner owner, pid_t pid)
{
	const struct simcard_slot *s = &card->page->slot[i];

	printf("%s{\"slot\":%u,\"state\":\"%s\",\"alive\":%s,\"pid\":%d,\"nsPID\":%d,\"name\":", first ? "" : ",", i,
	       owners[owner], owner == CARD_ALIVE ? "true" : "false", (int)pid, s->ns_pid);
	print_json_text(s->name);
	printf(",\"held\":{");
	for (int k = 0; k < SIMCARD_KINDS; k++)
		printf("%s\"%s\":%" PRIu64, k ? "," : "", kinds[k], load(&s->held[k]));
	printf("},\"total\":%" PRIu64 ",\"heldMax\":%" PRIu64 ",\"busyNs\":%" PRIu64 ",\"launches\":%" PRIu64 "}", held(s),
	       load(&s->held_max), load(&s->busy), load(&s->launches));
}

static void slot_row(const struct card *card, unsigned i, enum card_owner owner, pid_t pid)
{
	const struct simcard_slot *s = &card->page->slot[i];

	printf("  %4u %-13s %8d %8d %-16s %10" PRIu64 " %10" PRIu64 " %12.3f %10" PRIu64 " ", i, owners[owner], (int)pid, s->ns_pid,
	       s->name, held(s) >> 20, load(&s->held_max) >> 20, (double)load(&s->busy) / 1e6, load(&s->launches));
	for (int k = 0; k < SIMCARD_KINDS; k++) {
		if (load(&s->held[k]))
			printf(" %s=%" PRIu64, kinds[k], load(&s->held[k]) >> 20);
	}
	putchar('\n');
}

static void card_truth(const struct card *card, bool json)
{
	const struct simcard *c = card->page;
	bool first = true;

	if (json) {
		printf("{\"uuid\":");
		print_json_text(c->uuid);
		printf(",\"total\":%" PRIu64 ",\"driver\":%" PRIu64 ",\"used\":%" PRIu64 ",\"usedMax\":%" PRIu64 ",\"refused\":%" PRIu64
		       ",\"runs\":%" PRIu64 ",\"slots\":[", c->memory_total, c->memory_driver, load(&c->used), load(&c->used_max),
		       load(&c->refused), load(&c->log_next));
	} else {
		printf("%s  %s\n", c->uuid, c->name);
		printf("  total %" PRIu64 " MiB, driver %" PRIu64 ", used %" PRIu64 ", used at most %" PRIu64 ", refused %" PRIu64
		       " times, runs %" PRIu64 "\n", c->memory_total >> 20, c->memory_driver >> 20, load(&c->used) >> 20,
		       load(&c->used_max) >> 20, load(&c->refused), load(&c->log_next));
		printf("  %4s %-13s %8s %8s %-16s %10s %10s %12s %10s  %s\n", "SLOT", "STATE", "PID", "NS PID", "NAME", "MiB", "MAX MiB",
		       "BUSY ms", "LAUNCHES", "HELD, MiB");
	}
	for (unsigned i = 0; i < SIMCARD_MAX_SLOTS; i++) {
		pid_t pid;
		enum card_owner owner = card_owner(card, i, &pid);

		if (owner == CARD_FREE)
			continue;
		if (json)
			slot_json(card, i, first, owner, pid);
		else
			slot_row(card, i, owner, pid);
		first = false;
	}
	if (json)
		printf("]}");
}

int command_truth(const struct options *o)
{
	struct card cards[CARD_MAX];
	int n = open_cards(o, CARD_LOOK, cards);

	if (o->json)
		putchar('[');
	for (int i = 0; i < n; i++) {
		if (o->json && i)
			putchar(',');
		card_truth(&cards[i], o->json);
	}
	if (o->json)
		puts("]");
	else if (n == 0)
		printf("no simulated cards in %s\n", o->dir);
	return 0;
}

int command_runs(const struct options *o)
{
	struct card cards[CARD_MAX];
	const struct simcard *c;
	uint64_t next, i;
	bool first = true;

	one_card(o, "runs", cards);
	c = cards[0].page;
	next = load(&c->log_next);
	i = next > SIMCARD_LOG && o->since < next - SIMCARD_LOG ? next - SIMCARD_LOG : o->since;
	if (o->json)
		putchar('[');
	else
		printf("%10s %5s %5s %18s %14s\n", "RUN", "SLOT", "WHAT", "START us", "TOOK us");
	for (; i < next; i++) {
		const struct simcard_run *r = &c->log[i % SIMCARD_LOG];
		uint64_t start = load(&r->start), end = load(&r->end);
		uint32_t what = __atomic_load_n(&r->what, __ATOMIC_ACQUIRE);

		/* What is written last says which run the entry has; simcard.h. */
		if (what >> 8 != ((uint32_t)(i / SIMCARD_LOG) & 0xffffff) || !(what & 0xff))
			continue;
		if (o->json)
			printf("%s{\"run\":%" PRIu64 ",\"slot\":%u,\"what\":%u,\"start\":%" PRIu64 ",\"end\":%" PRIu64 "}", first ? "" : ",", i,
			       r->slot, what & 0xff, start, end);
		else
			printf("%10" PRIu64 " %5u %5u %18.3f %14.3f\n", i, r->slot, what & 0xff, (double)start / 1e3, (double)(end - start) / 1e3);
		first = false;
	}
	if (o->json)
		puts("]");
	return 0;
}

/* What a watcher prints, and whether it differs from the last time. */
struct look {
	uint64_t used, refused;
	unsigned alive, dead;
};

static struct look look_at(const struct card *card)
{
	struct look l = { .used = load(&card->page->used), .refused = load(&card->page->refused) };

	for (unsigned i = 0; i < SIMCARD_MAX_SLOTS; i++) {
		enum card_owner owner = card_owner(card, i, NULL);

		l.alive += owner == CARD_ALIVE;
		l.dead += owner == CARD_DEAD;
	}
	return l;
}

int command_watch(const struct options *o)
{
	struct card cards[CARD_MAX];
	struct look last = { .used = UINT64_MAX };
	struct timespec pause = { .tv_sec = (time_t)(o->interval / 1000000000), .tv_nsec = (long)(o->interval % 1000000000) };

	one_card(o, "watch", cards);
	printf("%18s %10s %8s %6s %6s\n", "TIME s", "USED MiB", "REFUSED", "ALIVE", "DEAD");
	for (uint64_t n = 1;; n++) {
		struct look now = look_at(&cards[0]);
		struct timespec time;

		if (memcmp(&now, &last, sizeof(now)) != 0) {
			clock_gettime(CLOCK_MONOTONIC, &time);
			printf("%8lld.%09ld %10" PRIu64 " %8" PRIu64 " %6u %6u\n", (long long)time.tv_sec, time.tv_nsec, now.used >> 20,
			       now.refused, now.alive, now.dead);
			fflush(stdout);
			last = now;
		}
		if (n == o->count)
			return 0;
		nanosleep(&pause, NULL);
	}
}

int command_reap(const struct options *o)
{
	struct card cards[CARD_MAX];
	int n = open_cards(o, CARD_USE, cards);

	for (int i = 0; i < n; i++) {
		uint64_t freed = (card_reap(&cards[i]) + card_sweep(&cards[i])) * SIMCARD_FRAME;

		printf("%s: %" PRIu64 " MiB freed\n", cards[i].page->uuid, freed >> 20);
	}
	return 0;
}
