/* SPDX-License-Identifier: Apache-2.0 */
#include "line.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static uint32_t said;

/* Writes although nobody may read: a broken pipe must not end the program by a
 * signal that it would not have got without us. */
static void write_quietly(const char *text, size_t length)
{
	struct timespec none = { 0, 0 };
	sigset_t pipe_only, before, pending;
	int cancel = cancel_defer();
	bool was_pending;

	sigemptyset(&pipe_only);
	sigaddset(&pipe_only, SIGPIPE);
	sigpending(&pending);
	was_pending = sigismember(&pending, SIGPIPE);
	sigprocmask(SIG_BLOCK, &pipe_only, &before);
	if (write(STDERR_FILENO, text, length) < 0 && errno == EPIPE && !was_pending)
		sigtimedwait(&pipe_only, NULL, &none);
	sigprocmask(SIG_SETMASK, &before, NULL);
	cancel_restore(cancel);
}

void session_say(const char *format, ...)
{
	static const char prefix[] = "tranche: ";
	char line[512];
	size_t length = sizeof(prefix) - 1;
	int saved = errno;
	va_list arguments;
	int written;

	if (__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED))
		return;
	memcpy(line, prefix, sizeof(prefix));
	va_start(arguments, format);
	written = vsnprintf(line + length, sizeof(line) - length - 1, format, arguments);
	va_end(arguments);
	if (written > 0)
		length += (size_t)written < sizeof(line) - length - 1 ? (size_t)written : sizeof(line) - length - 2;
	line[length] = '\n';
	write_quietly(line, length + 1);
	errno = saved;
}

void why_set(struct line_why *why, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(why->text, sizeof(why->text), format, arguments);
	va_end(arguments);
}
