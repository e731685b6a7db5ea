/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading the text of a module.
 */
#include "text.h"

#include <ctype.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "memory.h"
#include "tokens.h"

/* What a module's variables are aligned to at least. */
#define GLOBAL_UNIT 16u
#define GLOBAL_MAX ((uint64_t)1 << 40)

/* Bytes of a type like ".u64", 0 for what is none. */
static size_t type_size(const struct tokens *tokens)
{
	static const struct {
		const char *name;
		size_t size;
	} types[] = {
		{".b8", 1}, {".u8", 1}, {".s8", 1}, {".pred", 1}, {".b16", 2}, {".u16", 2}, {".s16", 2}, {".f16", 2},
		{".bf16", 2}, {".b32", 4}, {".u32", 4}, {".s32", 4}, {".f32", 4}, {".f16x2", 4}, {".b64", 8}, {".u64", 8},
		{".s64", 8}, {".f64", 8}, {".texref", 8}, {".samplerref", 8}, {".surfref", 8}, {".b128", 16},
	};

	for (size_t i = 0; i < SIM_ARRAY_SIZE(types); i++) {
		if (tokens_is(tokens, types[i].name))
			return types[i].size;
	}
	return 0;
}

/* A variable's or parameter's declaration from behind .param, .global or .const to its name and
 * dimensions. */
struct declaration {
	uint64_t align;
	uint64_t size;
	size_t element;
	bool managed;
	char *name;
};

/* "[4][8]"; the current token is behind it afterwards. An open dimension counts as 0. */
static bool parse_dimensions(struct tokens *tokens, struct declaration *declared)
{
	while (tokens_is(tokens, "[")) {
		uint64_t number = 0;

		if (!tokens_next(tokens))
			return false;
		if (!tokens_is(tokens, "]") && (!tokens_number(tokens, &number) || !tokens_next(tokens)))
			return false;
		if (!tokens_is(tokens, "]") || (declared->size && number > GLOBAL_MAX / declared->size))
			return false;
		declared->size *= number;
		tokens_next(tokens);
	}
	return true;
}

static bool parse_declaration(struct tokens *tokens, struct declaration *declared)
{
	*declared = (struct declaration){0};
	while (tokens_next(tokens)) {
		if (tokens_is(tokens, ".align")) {
			/* In a pointer's type the alignment is that of what it points to. */
			uint64_t align;

			if (!tokens_next(tokens) || !tokens_number(tokens, &align) || align == 0 || align > 4096 || (align & (align - 1)))
				return false;
			if (!declared->element)
				declared->align = align;
		} else if (tokens_is(tokens, ".attribute")) {
			if (!tokens_next(tokens) || !tokens_is(tokens, "(") || !tokens_next(tokens))
				return false;
			declared->managed = tokens_is(tokens, ".managed");
			while (!tokens_is(tokens, ")")) {
				if (!tokens_next(tokens))
					return false;
			}
		} else if (tokens_begins(tokens, ".v") && tokens->length == 3) {
			declared->size = (uint64_t)(tokens->token[2] - '0');
		} else if (type_size(tokens)) {
			declared->element = type_size(tokens);
		} else if (*tokens->token != '.') {
			break;
		}
	}
	if (!declared->element || tokens->length == 0 || !(isalpha((unsigned char)*tokens->token) || strchr("_$%", *tokens->token)))
		return false;
	declared->size = declared->size ? declared->size * declared->element : declared->element;
	if (!declared->align)
		declared->align = declared->size < 16 ? declared->size : 16;
	declared->name = tokens_copy(tokens);
	tokens_next(tokens);
	if (declared->name && parse_dimensions(tokens, declared))
		return true;
	free(declared->name);
	return false;
}

/* "(.param ..., .param ...)"; the current token is the opening parenthesis, and the closing one
 * afterwards. */
static bool parse_parameters(struct tokens *tokens, struct sim_kernel *kernel)
{
	tokens_next(tokens);
	while (!tokens_is(tokens, ")")) {
		struct declaration declared;
		struct sim_parameter *more;

		if (!tokens_is(tokens, ".param") || !parse_declaration(tokens, &declared))
			return false;
		free(declared.name);
		more = realloc(kernel->parameter, (kernel->parameters + 1) * sizeof(*more));
		if (!more)
			return false;
		kernel->parameter = more;
		more[kernel->parameters].offset = sim_round_up(kernel->parameter_bytes, declared.align);
		more[kernel->parameters].size = declared.size;
		kernel->parameter_bytes = more[kernel->parameters].offset + declared.size;
		kernel->parameters++;
		if (kernel->parameter_bytes > 32768)
			return false;
		if (tokens_is(tokens, ","))
			tokens_next(tokens);
	}
	return true;
}

/* From a function's name to the end of its body. */
static bool skip_body(struct tokens *tokens)
{
	while (tokens_next(tokens)) {
		if (tokens_is(tokens, ";"))
			return true;
		if (tokens_is(tokens, "{"))
			return tokens_skip(tokens);
	}
	return false;
}

static bool parse_entry(struct tokens *tokens, struct sim_text *text)
{
	struct sim_kernel *more = realloc(text->kernel, (text->kernels + 1) * sizeof(*more));
	struct sim_kernel *kernel;
	struct tokens ahead;

	if (!more || !tokens_next(tokens))
		return false;
	text->kernel = more;
	kernel = &more[text->kernels];
	*kernel = (struct sim_kernel){.name = tokens_copy(tokens)};
	text->kernels++;
	ahead = *tokens;
	if (tokens_next(&ahead) && tokens_is(&ahead, "(")) {
		*tokens = ahead;
		if (!parse_parameters(tokens, kernel))
			return false;
	}
	return kernel->name && skip_body(tokens);
}

/* "= 5" or "= {1, 2}"; the current token is the "=". */
static bool parse_value(struct tokens *tokens, struct sim_global *global, size_t element)
{
	uint64_t number;
	bool list;

	global->value = calloc(1, global->size ? global->size : 1);
	if (!global->value || !tokens_next(tokens))
		return false;
	list = tokens_is(tokens, "{");
	if (list)
		tokens_next(tokens);
	while (tokens_number(tokens, &number)) {
		if (global->value_bytes + element > global->size)
			return false;
		/* Little-endian, as the card is. */
		memcpy(global->value + global->value_bytes, &number, element < sizeof(number) ? element : sizeof(number));
		global->value_bytes += element;
		tokens_next(tokens);
		if (list && tokens_is(tokens, ","))
			tokens_next(tokens);
	}
	return !list || (tokens_is(tokens, "}") && tokens_next(tokens));
}

static bool parse_global(struct tokens *tokens, struct sim_text *text, bool external)
{
	struct sim_global *more = realloc(text->global, (text->globals + 1) * sizeof(*more));
	struct declaration declared;
	struct sim_global *global;

	if (!more)
		return false;
	text->global = more;
	if (!parse_declaration(tokens, &declared))
		return false;
	if (external) {
		free(declared.name);
		return tokens_is(tokens, ";");
	}
	global = &more[text->globals++];
	*global = (struct sim_global){.name = declared.name, .managed = declared.managed, .size = declared.size};
	if (tokens_is(tokens, "=") && !parse_value(tokens, global, declared.element))
		return false;
	return tokens_is(tokens, ";");
}

static bool parse_version(struct tokens *tokens, struct sim_text *text)
{
	unsigned major, minor;

	if (!tokens_next(tokens) || sscanf(tokens->token, "%2u.%1u", &major, &minor) != 2)
		return false;
	text->version = major * 10 + minor;
	return true;
}

static bool parse_function(struct tokens *tokens)
{
	/* What it returns stands before its name. */
	if (!tokens_next(tokens) || (tokens_is(tokens, "(") && !tokens_skip(tokens)))
		return false;
	return skip_body(tokens);
}

static bool parse_all(struct tokens *tokens, struct sim_text *text)
{
	bool external = false;

	while (tokens_next(tokens)) {
		bool good = true;

		if (tokens_is(tokens, ".version"))
			good = parse_version(tokens, text);
		else if (tokens_is(tokens, ".target"))
			good = tokens_next(tokens) && (sscanf(tokens->token, "sm_%3u", &text->target) == 1 || tokens_begins(tokens, "texmode"));
		else if (tokens_is(tokens, ".entry"))
			good = parse_entry(tokens, text);
		else if (tokens_is(tokens, ".func"))
			good = parse_function(tokens);
		else if (tokens_is(tokens, ".global") || tokens_is(tokens, ".const"))
			good = parse_global(tokens, text, external);
		else if (tokens_is(tokens, "{"))
			good = tokens_skip(tokens);
		if (!good)
			return false;
		external = tokens_is(tokens, ".extern");
	}
	return text->version > 0 && text->target > 0;
}

static void set_time(struct sim_text *text, const char *name, uint64_t nanoseconds)
{
	for (unsigned i = 0; i < text->kernels; i++) {
		if (strcmp(text->kernel[i].name, name) == 0) {
			text->kernel[i].fixed = true;
			text->kernel[i].nanoseconds = nanoseconds;
		}
	}
}

/* The lines that only the simulation reads. */
static void parse_comments(const char *source, struct sim_text *text)
{
	static const char mark[] = "// tranche_sim_";

	text->bytes = strlen(source);
	for (const char *line = strstr(source, mark); line; line = strstr(line + 1, mark)) {
		unsigned long long number;
		char copy[512], name[256];

		/* A copy, because sscanf would measure all of the text each time. */
		snprintf(copy, sizeof(copy), "%.*s", (int)strcspn(line, "\n"), line);
		if (sscanf(copy, "// tranche_sim_module %llu", &number) == 1)
			text->bytes = number;
		else if (sscanf(copy, "// tranche_sim_kernel %255s %llu", name, &number) == 2)
			set_time(text, name, number);
	}
}

/* Where the variables are in the module's memory. */
static bool place_globals(struct sim_text *text)
{
	uint64_t end = 0;

	for (unsigned i = 0; i < text->globals; i++) {
		text->global[i].offset = end;
		end = sim_round_up(end + text->global[i].size, GLOBAL_UNIT);
	}
	if (text->bytes < end)
		text->bytes = end;
	return text->bytes <= GLOBAL_MAX;
}

/* A kernel that nobody tells a time takes none. */
static void default_times(struct sim_text *text)
{
	for (unsigned i = 0; i < text->kernels; i++) {
		struct sim_kernel *kernel = &text->kernel[i];

		if (kernel->parameters == 0 || kernel->parameter[0].size != sizeof(uint64_t))
			kernel->fixed = true;
	}
}

static CUresult check_kind(const char *image)
{
	static const unsigned char binaries[][4] = {{0x7f, 'E', 'L', 'F'}, {0x50, 0xed, 0x55, 0xba}, {0xb1, 0x43, 0x62, 0x46}};

	for (size_t i = 0; i < SIM_ARRAY_SIZE(binaries); i++) {
		size_t same = 0;

		/* An image may be shorter. */
		while (same < sizeof(binaries[i]) && (unsigned char)image[same] == binaries[i][same])
			same++;
		if (same == sizeof(binaries[i]))
			return CUDA_ERROR_NOT_SUPPORTED;
	}
	for (const char *c = image; *c; c++) {
		if (!isprint((unsigned char)*c) && !isspace((unsigned char)*c))
			return CUDA_ERROR_INVALID_IMAGE;
	}
	return CUDA_SUCCESS;
}

CUresult sim_text_parse(const void *image, struct sim_text **result)
{
	struct tokens tokens;
	struct sim_text *text;

	SIM_TRY(check_kind(image));
	tokens_init(&tokens, image);
	if (!tokens_next(&tokens) || !tokens_is(&tokens, ".version"))
		return CUDA_ERROR_INVALID_IMAGE;
	text = calloc(1, sizeof(*text));
	if (!text)
		return CUDA_ERROR_OUT_OF_MEMORY;
	text->references = 1;
	tokens_init(&tokens, image);
	if (!parse_all(&tokens, text)) {
		sim_text_release(text);
		return CUDA_ERROR_INVALID_PTX;
	}
	parse_comments(image, text);
	default_times(text);
	if (!place_globals(text)) {
		sim_text_release(text);
		return CUDA_ERROR_INVALID_PTX;
	}
	*result = text;
	return CUDA_SUCCESS;
}

void sim_text_retain(struct sim_text *text)
{
	__atomic_fetch_add(&text->references, 1, __ATOMIC_SEQ_CST);
}

void sim_text_release(struct sim_text *text)
{
	if (!text || __atomic_sub_fetch(&text->references, 1, __ATOMIC_SEQ_CST) > 0)
		return;
	for (unsigned i = 0; i < text->kernels; i++) {
		free(text->kernel[i].name);
		free(text->kernel[i].parameter);
	}
	for (unsigned i = 0; i < text->globals; i++) {
		free(text->global[i].name);
		free(text->global[i].value);
	}
	free(text->kernel);
	free(text->global);
	free(text);
}

const struct sim_kernel *sim_text_kernel(const struct sim_text *text, const char *name)
{
	for (unsigned i = 0; i < text->kernels; i++) {
		if (strcmp(text->kernel[i].name, name) == 0)
			return &text->kernel[i];
	}
	return NULL;
}

const struct sim_global *sim_text_global(const struct sim_text *text, const char *name)
{
	for (unsigned i = 0; i < text->globals; i++) {
		if (strcmp(text->global[i].name, name) == 0)
			return &text->global[i];
	}
	return NULL;
}
