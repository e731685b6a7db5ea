/* SPDX-License-Identifier: Apache-2.0
 *
 * How much memory an image is expected to take, from looking at it.
 */
#include <ctype.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "modules.h"

#define FATBIN_WRAPPER 0x466243b1u
#define FATBIN 0xba55ed50u

struct fatbin_wrapper {
	uint32_t magic;
	uint32_t version;
	const void *data;
};

struct fatbin {
	uint32_t magic;
	uint16_t version;
	uint16_t header_size;
	uint64_t size;
};

static const struct {
	const char *name;
	unsigned bytes;
} types[] = {
	{ "8", 1 }, { "16", 2 }, { "32", 4 }, { "64", 8 }, { "128", 16 }, { "16x2", 4 }, { "ref", 8 },
};

/* Bytes of the type whose name the text is at, 8 where it is none that we know. */
static uint64_t type_bytes(const char *text, size_t length)
{
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		size_t ending = strlen(types[i].name);

		if (length > ending && strncmp(text + length - ending, types[i].name, ending) == 0 &&
		    !isdigit((unsigned char)text[length - ending - 1]))
			return types[i].bytes;
	}
	return 8;
}

/* The variables of one declaration, from behind its state space to the semicolon. */
static uint64_t declared_bytes(const char *text)
{
	uint64_t sum = 0, element = 8, elements = 1;
	bool named = false;

	for (; *text && *text != ';' && *text != '=' && *text != '{'; text++) {
		size_t length = strcspn(text, " \t\r\n[],;=.{");

		if (*text == '.') {
			length = 1 + strcspn(text + 1, " \t\r\n[],;=.{");
			if (strncmp(text, ".align", 6) == 0)
				text += 6 + strspn(text + 6, " \t\r\n0123456789") - 1;
			else {
				element = type_bytes(text, length);
				text += length - 1;
			}
		} else if (*text == '[') {
			elements *= strtoull(text + 1, NULL, 0);
		} else if (*text == ',') {
			sum += named ? element * elements + 16 : 0;
			elements = 1;
		} else if (length > 1) {
			named = true;
			text += length - 1;
		} else if (length == 1 && (isalpha((unsigned char)*text) || *text == '_')) {
			named = true;
		}
	}
	return named ? sum + element * elements + 16 : 0;
}

/* What the text declares in the memory of the card. */
static uint64_t variables(const char *text)
{
	static const char *const spaces[] = { ".global", ".const" };
	uint64_t sum = 0;

	for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++) {
		size_t length = strlen(spaces[i]);

		for (const char *at = text; (at = strstr(at, spaces[i])); at += length)
			if ((at == text || isspace((unsigned char)at[-1]) || at[-1] == ';' || at[-1] == '}') && isspace((unsigned char)at[length]) &&
			    __builtin_add_overflow(sum, declared_bytes(at + length), &sum))
				return UINT64_MAX;
	}
	return sum;
}

static uint64_t text_estimate(const char *text)
{
	const char *hint = strstr(text, "// tranche_sim_module ");
	uint64_t declared = variables(text);
	unsigned long long said;
	uint64_t bytes;

	if (hint && sscanf(hint, "// tranche_sim_module %llu", &said) == 1)
		return frames_of(said > declared ? said : declared);
	bytes = strlen(text);
	return frames_of(bytes > declared ? bytes : declared) + FRAME;
}

uint64_t image_estimate(const void *image, bool *exact)
{
	const struct fatbin_wrapper *wrapper = image;
	const struct fatbin *fatbin = image;
	const Elf64_Ehdr *elf = image;
	/* A text may end within the first bytes, so they are looked at one by one. */
	const unsigned char *first = image;

	*exact = false;
	if (!image)
		return 0;
	if (first[0] == 0x7f && first[1] == 'E' && first[2] == 'L' && first[3] == 'F')
		return frames_of(elf->e_shoff + (uint64_t)elf->e_shnum * elf->e_shentsize) + FRAME;
	if (first[0] == 0xb1 && first[1] == 0x43 && first[2] == 0x62 && first[3] == 0x46) {
		fatbin = wrapper->data;
		return fatbin && fatbin->magic == FATBIN ? frames_of(fatbin->header_size + fatbin->size) + FRAME : FRAME;
	}
	if (first[0] == 0x50 && first[1] == 0xed && first[2] == 0x55 && first[3] == 0xba)
		return frames_of(fatbin->header_size + fatbin->size) + FRAME;
	*exact = true;
	return text_estimate(image);
}

/* What is in the file, with zeros behind it; NULL: it cannot be read. */
static char *read_text(int fd, size_t size)
{
	char *text = calloc(1, size + 1);
	size_t got = 0;

	while (text && got < size) {
		ssize_t n = read(fd, text + got, size - got);

		if (n <= 0)
			break;
		got += (size_t)n;
	}
	return text;
}

uint64_t file_estimate(const char *path, bool *exact)
{
	uint64_t estimate = 0;
	char first = 0;
	char *text;
	off_t size;
	int fd;

	*exact = false;
	fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return 0; /* the driver will say what is wrong with it */
	size = lseek(fd, 0, SEEK_END);
	if (size > 0 && pread(fd, &first, 1, 0) == 1 && lseek(fd, 0, SEEK_SET) == 0) {
		/* Of binaries, which can be large, the size is enough. */
		estimate = frames_of((uint64_t)size) + FRAME;
		text = isprint((unsigned char)first) || isspace((unsigned char)first) ? read_text(fd, (size_t)size) : NULL;
		if (text)
			estimate = image_estimate(text, exact);
		free(text);
	}
	close(fd);
	return estimate;
}
