// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"bytes"
	"fmt"
	"strings"
)

// The parts of the generated header; fill puts words for those in braces.
const (
	headerTop = `#ifndef TRANCHE_{LIB}_HOOKS_H
#define TRANCHE_{LIB}_HOOKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "{include}"

#define HOOKS_HIDDEN __attribute__((visibility("hidden")))

/* The functions that the runtime exports ({LIB}_HOOKS of them), and behind
 * them those that it calls and does not export ({LIB}_REALS altogether). */
`

	headerReal = `
struct {lib}_hook_entry {
	const char *name;
	void *wrapper; /* as it is exported; NULL from {LIB}_HOOKS on */
};

/* What cuGetProcAddress and dlsym of the real library answer for .name is to be
 * replaced by .wrapper. */
extern const struct {lib}_hook_entry {lib}_hook_table[{LIB}_REALS] HOOKS_HIDDEN;

/* A wrapper calls its hook whatever runs already on the thread: a call that the
 * program makes from a callback of the driver counts like any other. The driver's own
 * calls of its functions do not come by here.
 *
 * Written by hand: what the real library has under this name, or NULL. The real library
 * is there whenever a wrapper is called, so each name is asked for once (by several
 * threads at once, perhaps). */
void *tranche_real(const char *name);

/* Real functions as far as they have been found. */
extern void *{lib}_real_pointer[{LIB}_REALS] HOOKS_HIDDEN;
void *{lib}_real_slow(enum {lib}_hook hook);

static inline void *{lib}_real(enum {lib}_hook hook)
{
	void *real = __atomic_load_n(&{lib}_real_pointer[hook], __ATOMIC_ACQUIRE);

	return __builtin_expect(real != NULL, 1) ? real : {lib}_real_slow(hook);
}

/* Whether the driver has the function. A wrapper asks before it does anything
 * else, and an older driver's lack is what its caller sees. */
static inline bool {lib}_has(enum {lib}_hook hook)
{
	return {lib}_real(hook) != NULL;
}
`
)

func (d dialect) fill(text string) string {
	return strings.NewReplacer("{lib}", d.prefix, "{LIB}", strings.ToUpper(d.prefix), "{result}", d.result, "{include}", d.include).Replace(text)
}

func (d dialect) hooksHeader(rows Table) []byte {
	var b bytes.Buffer
	b.WriteString(header + d.fill(headerTop))
	d.enumeration(&b, rows)
	b.WriteString(d.fill(headerReal))
	b.WriteString("\n/* ---- The real functions ---- */\n\n")
	for _, row := range rows.called() {
		d.caller(&b, row)
	}
	b.WriteString("/* The one of several functions with the same parameters that hook names. */\n\n")
	for _, row := range rows.families() {
		fmt.Fprintf(&b, "static inline %s real_of_%s(%s)\n{\n", d.result, row.Handler, row.declare(d.hookArg()))
		fmt.Fprintf(&b, "\treal_fn_%s *real = (real_fn_%[1]s *)%s_real(hook);\n\n", row.Symbol, d.prefix)
		fmt.Fprintf(&b, "\treturn real != NULL ? real(%s) : %s;\n}\n\n", row.call(), d.missing)
	}
	b.WriteString("/* ---- Hand-written ---- */\n\n")
	done := map[string]bool{"": true}
	for _, row := range rows {
		if done[row.Handler] {
			continue
		}
		done[row.Handler] = true
		if rows.shared(row.Handler) {
			fmt.Fprintf(&b, "%s hook_%s(%s);\n", d.result, row.Handler, row.declare(d.hookArg()))
		} else {
			fmt.Fprintf(&b, "%s hook_%s(%s);\n", d.result, row.Handler, row.declare())
		}
	}
	b.WriteString("\n#endif\n")
	return b.Bytes()
}

func (d dialect) enumeration(b *bytes.Buffer, rows Table) {
	fmt.Fprintf(b, "enum %s_hook {\n", d.prefix)
	capitals := strings.ToUpper(d.prefix)
	hooked := len(rows.Hooked())
	for i, row := range rows.called() {
		if i == hooked {
			fmt.Fprintf(b, "\t%s_HOOKS,\n\tHOOK_%s = %[1]s_HOOKS,\n", capitals, row.Symbol)
			continue
		}
		fmt.Fprintf(b, "\tHOOK_%s,\n", row.Symbol)
	}
	fmt.Fprintf(b, "\t%s_REALS\n};\n", capitals)
}

func (d dialect) caller(b *bytes.Buffer, row Row) {
	fmt.Fprintf(b, "typedef %s real_fn_%s(%s);\n\n", d.result, row.Symbol, row.declare())
	fmt.Fprintf(b, "static inline %s real_%s(%s)\n{\n", d.result, row.Symbol, row.declare())
	fmt.Fprintf(b, "\treal_fn_%s *real = (real_fn_%[1]s *)%s_real(HOOK_%[1]s);\n\n", row.Symbol, d.prefix)
	fmt.Fprintf(b, "\treturn real != NULL ? real(%s) : %s;\n}\n\n", row.call(), d.missing)
}
