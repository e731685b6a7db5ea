/* SPDX-License-Identifier: Apache-2.0 */
#include "line.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FIRST_NAP_NS 1000000ull
#define LONGEST_NAP_NS 50000000ull

uint32_t line_count;

enum line_result line_send(int fd, const void *message, size_t size, int passed)
{
	struct iovec data = { .iov_base = (void *)message, .iov_len = size };
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct msghdr header = { .msg_iov = &data, .msg_iovlen = 1 };
	ssize_t sent;

	if (passed >= 0) {
		memset(&control, 0, sizeof(control));
		header.msg_control = control.space;
		header.msg_controllen = sizeof(control.space);
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &passed, sizeof(int));
	}
	do
		sent = sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (sent < 0 && errno == EINTR);
	return sent == (ssize_t)size ? LINE_OK : LINE_AGAIN;
}

static bool wait_readable(int fd, uint64_t deadline)
{
	for (;;) {
		struct pollfd poller = { .fd = fd, .events = POLLIN };
		uint64_t now = now_ns();
		int ready;

		/* Rounded up, so that the last turn does not spin. */
		ready = poll(&poller, 1, now >= deadline ? 0 : (int)((deadline - now) / 1000000 + 1));
		if (ready > 0)
			return true;
		if (ready == 0 || errno != EINTR)
			return false;
	}
}

/* Takes every descriptor that came; what is more than pages holds is closed. */
static void collect(struct msghdr *header, struct line_pages *pages)
{
	int taken = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c; c = CMSG_NXTHDR(header, c)) {
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (pages && taken < 3)
				pages->fd[taken++] = fd;
			else
				close(fd);
		}
	}
}

enum line_result line_receive(int fd, void *message, size_t size, struct line_pages *pages, uint64_t deadline)
{
	struct iovec data = { .iov_base = message, .iov_len = size };
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(4 * sizeof(int))];
	} control;
	struct msghdr header = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control) };
	ssize_t got;

	for (int i = 0; pages && i < 3; i++)
		pages->fd[i] = -1;
	if (!wait_readable(fd, deadline))
		return LINE_AGAIN;
	do
		got = recvmsg(fd, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return LINE_AGAIN;
	collect(&header, pages);
	if (got == 0)
		return LINE_AGAIN;
	return got == (ssize_t)size && !(header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) ? LINE_OK : LINE_REFUSED;
}

bool line_stands(const struct session_share *share)
{
	struct pollfd poller = { .fd = share->fd, .events = 0 };

	if (share->lost || !fd_is(share->fd, share->fd_identity))
		return false;
	return poll(&poller, 1, 0) <= 0;
}

void line_drop(struct session_share *share)
{
	if (fd_is(share->fd, share->fd_identity))
		close(share->fd);
	__atomic_store_n(&share->fd, -1, __ATOMIC_RELAXED);
	share->lost = true;
	__atomic_store_n(&share->alone, 1, __ATOMIC_RELAXED);
	__atomic_or_fetch(&session_trouble_word, SESSION_ALONE, __ATOMIC_RELAXED);
}

/* Who answers nothing may be there in an instant; who may not be reached will not. */
static bool may_come(int error)
{
	return error == ENOENT || error == ECONNREFUSED || error == EAGAIN || error == EINTR || error == ECONNRESET;
}

static enum line_result dial(const struct session_share *share, int *dialled, struct line_why *why)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	char text[96];
	int fd;

	snprintf(address.sun_path, sizeof(address.sun_path), TRANCHE_SHARES_DIR "/%s/" TRANCHE_SOCKET_NAME, share->key);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) {
		why_set(why, "no socket can be made: %s", strerror_r(errno, text, sizeof(text)));
		return LINE_BROKEN;
	}
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0) {
		*dialled = fd_aside(fd);
		return LINE_OK;
	}
	why_set(why, "tranche-arbiter cannot be reached: connect: %s", strerror_r(errno, text, sizeof(text)));
	if (may_come(errno)) {
		close(fd);
		return LINE_AGAIN;
	}
	close(fd);
	return LINE_BROKEN;
}

static enum line_result judge(struct tranche_welcome *welcome, struct line_why *why)
{
	if (welcome->magic != TRANCHE_MESSAGE_MAGIC) {
		why_set(why, "the arbiter's answer is not understood");
		return LINE_REFUSED;
	}
	if (welcome->status == TRANCHE_OK || welcome->status == TRANCHE_MOVED)
		return LINE_OK;
	welcome->reason[sizeof(welcome->reason) - 1] = 0;
	if (welcome->status == TRANCHE_EVERSION)
		why_set(why, "the arbiter speaks version %u of the contract and this container's library version %u%s%s", welcome->version,
			TRANCHE_CONTRACT_VERSION, welcome->reason[0] ? ": " : "", welcome->reason);
	else
		why_set(why, "the arbiter refuses (%d)%s%s", welcome->status, welcome->reason[0] ? ": " : "", welcome->reason);
	return LINE_REFUSED;
}

/* One try on a fresh connection. */
static enum line_result introduce(struct session_share *share, int fd, enum tranche_role role, uint64_t deadline, struct line_why *why)
{
	bool again = role == TRANCHE_ROLE_AGAIN;
	struct tranche_hello hello = {
		.magic = TRANCHE_MESSAGE_MAGIC,
		.version = TRANCHE_CONTRACT_VERSION,
		.role = role,
		.ns_pid = getpid(),
		.slot = again ? share->slot_number : 0,
		.nonce = again ? share->nonce : 0,
	};
	bool shown = again && fd_is(share->ledger_fd, share->ledger_identity);
	struct tranche_welcome welcome;
	struct line_pages pages;
	enum line_result result;

	result = line_send(fd, &hello, sizeof(hello), shown ? share->ledger_fd : -1);
	if (result == LINE_OK)
		result = line_receive(fd, &welcome, sizeof(welcome), &pages, deadline);
	else
		pages = (struct line_pages){ .fd = { -1, -1, -1 } };
	if (result == LINE_AGAIN)
		why_set(why, "tranche-arbiter does not answer");
	else if (result == LINE_REFUSED)
		why_set(why, "the arbiter's answer is not understood");
	if (result == LINE_OK)
		result = judge(&welcome, why);
	if (result == LINE_OK)
		return pages_take(share, &pages, &welcome, share->grant != NULL, why);
	for (int i = 0; i < 3; i++)
		if (pages.fd[i] >= 0)
			close(pages.fd[i]);
	return result;
}

enum line_result line_open(struct session_share *share, enum tranche_role role, uint64_t deadline, struct line_why *why)
{
	uint64_t nap = FIRST_NAP_NS;

	for (;;) {
		int fd = -1;
		enum line_result result = dial(share, &fd, why);

		if (result == LINE_OK) {
			result = introduce(share, fd, role, deadline, why);
			if ((result == LINE_OK || result == LINE_MOVED) && fd_identify(fd, share->fd_identity)) {
				__atomic_store_n(&share->fd, fd, __ATOMIC_RELAXED);
				share->lost = false;
				__atomic_store_n(&share->alone, 0, __ATOMIC_RELAXED);
				__atomic_add_fetch(&line_count, 1, __ATOMIC_RELAXED);
				return result;
			}
			close(fd);
		}
		if (result != LINE_AGAIN || now_ns() + nap >= deadline)
			return result;
		nap_ns(nap);
		if (nap < LONGEST_NAP_NS)
			nap *= 2;
	}
}
