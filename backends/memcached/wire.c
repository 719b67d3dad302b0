/* The socket. Every wait is a poll() limited by the caller's deadline; requests are sent while replies are read. */
#include "memcached.h"

#include <stdatomic.h>
#include <unistd.h>

/* ---- connecting -------------------------------------------------------------------------------------------------- */

int memcached_dial(struct memcached *memcached, const struct memcached_address *address, int64_t deadline_us,
                   struct dlock_error *err) {
    char server[sizeof memcached->where + 16];
    if (address->socket)
        snprintf(memcached->where, sizeof memcached->where, "%s", address->socket);
    else
        snprintf(memcached->where, sizeof memcached->where, strchr(address->host->address, ':') ? "[%s]:%d" : "%s:%d",
                 address->host->address, address->port);
    snprintf(server, sizeof server, "memcached at %s", memcached->where);
    int rc = dlock_stream_dial(&memcached->wire.stream, address->uri, address->socket, address->host, address->port,
                               server, deadline_us, err);
    if (rc) return rc;
    memcached->wire.open = true;
    memcached->wire.broken = memcached->wire.heard = false;
    memcached->wire.unanswered = 0;
    memcached->wire.requests = NULL;
    memcached->wire.out_at = memcached->wire.out_end = memcached->wire.in_at = memcached->wire.in_end = 0;
    return 0;
}

void memcached_hang_up(struct memcached *memcached) {
    if (!memcached->wire.open) return;
    dlock_stream_hang_up(&memcached->wire.stream, memcached->wire.unanswered || memcached->wire.broken);
    memcached->wire.open = false; /* before the close: a concurrently forked child reads this */
    atomic_signal_fence(memory_order_seq_cst);
    dlock_stream_close(&memcached->wire.stream);
}

void memcached_abandon(void *conn) {
    struct memcached *memcached = conn;
    if (memcached->wire.open) close(memcached->wire.stream.fd);
    if (memcached->wire.stream.dialing) close(memcached->wire.stream.dialing - 1);
}

void memcached_doubt(const struct memcached_address *address, struct dlock_error *err) {
    dlock_stream_doubt(err, "memcached", address->socket ? NULL : "memcached+tls");
}

void memcached_report(const struct memcached *memcached, struct dlock_report *report) {
    dlock_stream_report(&memcached->wire.stream, report);
}

int memcached_dead(struct memcached *memcached, const char *why, struct dlock_error *err) {
    memcached->wire.broken = true;
    return dlock_fail(err, DLOCK_EUNAVAILABLE, "memcached at %s: %s", memcached->where, why);
}

int memcached_nonsense(struct memcached *memcached, const char *what, struct dlock_error *err) {
    memcached->wire.broken = true;
    return dlock_fail(err, DLOCK_EPROTO, "memcached at %s sent an invalid answer: %s", memcached->where, what);
}

/* ---- sending and receiving --------------------------------------------------------------------------------------- */

void memcached_request(struct memcached *memcached, size_t replies, const char *format, ...) {
    const size_t room = sizeof memcached->wire.out - memcached->wire.out_end;
    va_list args;
    int length;
    /* Unread bytes without an open request answer none, and would be mistaken for the answer to this one. */
    if (!memcached->wire.unanswered && memcached->wire.in_at < memcached->wire.in_end) memcached->wire.broken = true;
    va_start(args, format);
    length = vsnprintf(memcached->wire.out + memcached->wire.out_end, room, format, args);
    va_end(args);
    if (length < 0 || (size_t)length >= room) {
        memcached->wire.broken = true; /* half a request must not go out */
        return;
    }
    memcached->wire.out_end += (size_t)length;
    memcached->wire.unanswered += replies;
}

static void write_requests(struct memcached *memcached) {
    struct memcached_requests *requests = memcached->wire.requests;
    if (memcached->wire.out_at > 0) {
        memmove(memcached->wire.out, memcached->wire.out + memcached->wire.out_at,
                memcached->wire.out_end - memcached->wire.out_at);
        memcached->wire.out_end -= memcached->wire.out_at;
        memcached->wire.out_at = 0;
    }
    while (requests && requests->next < requests->count &&
           sizeof memcached->wire.out - memcached->wire.out_end > MEMCACHED_REQUEST_MAX)
        requests->write(memcached, requests->next++, requests->arg);
}

void memcached_write(struct memcached *memcached, struct memcached_requests *requests) {
    memcached->wire.requests = requests;
    write_requests(memcached);
}

static int broken(const struct memcached *memcached, struct dlock_error *err) {
    return dlock_fail(err, DLOCK_EUNAVAILABLE, "the connection to memcached at %s is broken", memcached->where);
}

/* Fails because no answer will come; adds advice to the message if the server has never answered. */
static int no_answer(struct memcached *memcached, const char *why, struct dlock_error *err) {
    char advised[320];
    if (memcached->wire.heard) return memcached_dead(memcached, why, err);
    snprintf(
        advised, sizeof advised,
        "%s (one that runs with -S is memcached+sasl://user:password@host; with -B binary it has no text protocol)",
        why);
    return memcached_dead(memcached, advised, err);
}

/* twemproxy closes a connection on a command that it does not forward, and some of these are indispensable to dlock. */
static int closed(struct memcached *memcached, struct dlock_error *err) {
    return no_answer(memcached,
                     memcached->wire.heard
                         ? "the server closed the connection"
                         : "the server closed the connection, as twemproxy does, which dlock cannot use",
                     err);
}

/* Fails with the reason in errno. */
static int failed(struct memcached *memcached, struct dlock_error *err) {
    int code;
    const char *why = dlock_stream_why(&memcached->wire.stream, errno, &code);
    no_answer(memcached, why, err);
    if (err) err->code = code;
    return code;
}

/* Sends as much as the socket takes without blocking. */
static int send_some(struct memcached *memcached, struct dlock_error *err) {
    for (;;) {
        write_requests(memcached);
        if (memcached->wire.broken) return broken(memcached, err);
        if (memcached->wire.out_end == 0) return 0;
        ssize_t n = dlock_stream_send(&memcached->wire.stream, memcached->wire.out, memcached->wire.out_end);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
        /* The server may have sent the reason before it closed the connection: read that first. */
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) {
            memcached->wire.out_end = 0;
            memcached->wire.requests = NULL;
            return 0;
        }
        if (n < 0) return failed(memcached, err);
        memcached->wire.out_at = (size_t)n;
    }
}

/* Waits until something is received; keeps sending while it waits. */
static int more(struct memcached *memcached, int64_t deadline_us, struct dlock_error *err) {
    memmove(memcached->wire.in, memcached->wire.in + memcached->wire.in_at,
            memcached->wire.in_end - memcached->wire.in_at);
    memcached->wire.in_end -= memcached->wire.in_at;
    memcached->wire.in_at = 0;
    while (dlock_now_us() < deadline_us) { /* poll() never waits if a server sends without end */
        int rc = send_some(memcached, err);
        if (rc) return rc;
        int ready = dlock_stream_wait(&memcached->wire.stream, memcached->wire.out_end ? POLLIN | POLLOUT : POLLIN,
                                      deadline_us);
        if (!(ready & ~POLLOUT)) continue;
        ssize_t n = dlock_stream_recv(&memcached->wire.stream, memcached->wire.in + memcached->wire.in_end,
                                      sizeof memcached->wire.in - memcached->wire.in_end, MSG_DONTWAIT);
        if (n == 0) return closed(memcached, err);
        if (n > 0) {
            memcached->wire.in_end += (size_t)n;
            return 0;
        }
        if (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK) return failed(memcached, err);
    }
    return no_answer(memcached, "no answer in time", err);
}

int memcached_line(struct memcached *memcached, int64_t deadline_us, char **line, struct dlock_error *err) {
    if (!memcached->wire.open || memcached->wire.broken) return broken(memcached, err);
    for (;;) {
        char *start = memcached->wire.in + memcached->wire.in_at;
        size_t length = memcached->wire.in_end - memcached->wire.in_at;
        char *end = length ? memchr(start, '\n', length) : NULL;
        if (end) {
            memcached->wire.in_at += (size_t)(end - start) + 1;
            if (end > start && end[-1] == '\r') end--;
            if (memchr(start, '\0', (size_t)(end - start)))
                return memcached_nonsense(memcached, "a line with a NUL in it", err);
            *end = '\0';
            *line = start;
            memcached->wire.heard = true;
            return 0;
        }
        if (length == sizeof memcached->wire.in) return memcached_nonsense(memcached, "a line without an end", err);
        int rc = more(memcached, deadline_us, err);
        if (rc) return rc;
    }
}

int memcached_block(struct memcached *memcached, uint64_t length, char *keep, size_t size, int64_t deadline_us,
                    struct dlock_error *err) {
    uint64_t done = 0;
    while (done < length + 2) {
        if (memcached->wire.in_at == memcached->wire.in_end) {
            int rc = more(memcached, deadline_us, err);
            if (rc) return rc;
        }
        char byte = memcached->wire.in[memcached->wire.in_at++];
        if (done < length && done < size) keep[done] = byte;
        if (done >= length && byte != "\r\n"[done - length])
            return memcached_nonsense(memcached, "a value without an end", err);
        done++;
    }
    return 0;
}
