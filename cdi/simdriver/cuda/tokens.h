/* SPDX-License-Identifier: Apache-2.0
 *
 * Words of PTX.
 */
#ifndef TRANCHE_SIM_TOKENS_H
#define TRANCHE_SIM_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A word, a number, or one character of punctuation; comments are passed over. */
struct tokens {
	const char *at; /* behind the current token */
	const char *token;
	size_t length; /* 0: the end */
};

void tokens_init(struct tokens *tokens, const char *text);
/* Goes to the next token; false at the end. */
bool tokens_next(struct tokens *tokens);
/* Whether the current token is this. */
bool tokens_is(const struct tokens *tokens, const char *what);
/* Whether the current token begins like this. */
bool tokens_begins(const struct tokens *tokens, const char *what);
/* The current token as a number: decimal, hexadecimal, or the bits of a float (0f, 0d). */
bool tokens_number(const struct tokens *tokens, uint64_t *number);
/* From an opening brace or parenthesis that is the current token to the closing
 * one. False: there is none. */
bool tokens_skip(struct tokens *tokens);
/* A copy of the current token, or NULL. */
char *tokens_copy(const struct tokens *tokens);

#endif
