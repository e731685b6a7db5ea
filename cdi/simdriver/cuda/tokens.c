/* SPDX-License-Identifier: Apache-2.0 */
#include "tokens.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

void tokens_init(struct tokens *tokens, const char *text)
{
	*tokens = (struct tokens){.at = text, .token = text};
}

static bool in_word(char c)
{
	return isalnum((unsigned char)c) || (c && strchr("._$%@:-+", c));
}

static const char *skip_blank(const char *at)
{
	for (;;) {
		at += strspn(at, " \t\r\n\f\v");
		if (at[0] == '/' && at[1] == '/') {
			at += strcspn(at, "\n");
		} else if (at[0] == '/' && at[1] == '*') {
			const char *end = strstr(at + 2, "*/");

			at = end ? end + 2 : at + strlen(at);
		} else {
			return at;
		}
	}
}

bool tokens_next(struct tokens *tokens)
{
	const char *at = skip_blank(tokens->at);

	tokens->token = at;
	if (*at == '"') {
		at += 1 + strcspn(at + 1, "\"");
		at += *at == '"';
	} else if (in_word(*at)) {
		while (in_word(*at))
			at++;
	} else if (*at) {
		at++;
	}
	tokens->length = (size_t)(at - tokens->token);
	tokens->at = at;
	return tokens->length > 0;
}

bool tokens_is(const struct tokens *tokens, const char *what)
{
	return strlen(what) == tokens->length && strncmp(tokens->token, what, tokens->length) == 0;
}

bool tokens_begins(const struct tokens *tokens, const char *what)
{
	return strlen(what) <= tokens->length && strncmp(tokens->token, what, strlen(what)) == 0;
}

bool tokens_number(const struct tokens *tokens, uint64_t *number)
{
	const char *text = tokens->token;
	const char *end = text + tokens->length;
	char *stop;
	bool negative = *text == '-';

	if (negative)
		text++;
	if (!isdigit((unsigned char)*text))
		return false;
	if (text[0] == '0' && strchr("fFdD", text[1]))
		*number = strtoull(text + 2, &stop, 16);
	else
		*number = strtoull(text, &stop, 0);
	if (stop < end && (*stop == 'U' || *stop == 'u'))
		stop++;
	if (negative)
		*number = -*number;
	return stop == end;
}

bool tokens_skip(struct tokens *tokens)
{
	char open = *tokens->token;
	char shut = open == '{' ? '}' : ')';
	unsigned depth = 1;

	while (depth > 0) {
		if (!tokens_next(tokens))
			return false;
		if (*tokens->token == open)
			depth++;
		else if (*tokens->token == shut)
			depth--;
	}
	return true;
}

char *tokens_copy(const struct tokens *tokens)
{
	return strndup(tokens->token, tokens->length);
}
