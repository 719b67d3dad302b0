/* A server that greets as MariaDB does, and then sends without end: an error in time, and nothing fills up. */
#include "support/clock.h"
#include "support/link.h"
#include "support/loopback.h"
#include "support/test.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SHORT_MS = 300, SLACK_MS = 3000 };

/* For how long the server sends, and how much: by far more than a client may take, and more than the buffers of two
 * sockets hold. */
enum { SEND_MS = 8000, SEND_MAX = 64 << 20, TAKEN_MAX = 32 << 20 };

/* Bytes that are sent in one piece. */
enum { PIECE = 1 << 19 };

enum { PARTS = 4 };

struct packets {
    unsigned char *bytes;
    size_t used;
    unsigned serial;
};

/* Adds a packet: three bytes of length, a serial number, the content. */
static void add(struct packets *to, const void *content, size_t length) {
    const unsigned char head[4] = {(unsigned char)length, (unsigned char)(length >> 8), (unsigned char)(length >> 16),
                                   (unsigned char)to->serial++};
    assert_true(to->used + length + sizeof head <= PIECE);
    memcpy(to->bytes + to->used, head, sizeof head);
    memcpy(to->bytes + to->used + sizeof head, content, length);
    to->used += length + sizeof head;
}

#define ADD(to, literal) add(to, literal, sizeof(literal) - 1)

#define GREETING                                       \
    "\x0a"                                             \
    "10.11.6-MariaDB\0"                                \
    "\1\0\0\0"                                         \
    "12345678\0"                                       \
    "\xff\xf7\x21\2\0\xff\xa0\x15\0\0\0\0\0\0\0\0\0\0" \
    "123456789012\0"                                   \
    "mysql_native_password\0"
#define OK "\0\0\0\2\0\0\0"
#define OK_AND_MORE "\0\0\0\x0a\0\0\0"
#define COLUMN "\3def\0\0\0\1a\1a\x0c\x21\0\x64\0\0\0\xfd\0\0\0\0\0"
#define END "\xfe\0\0\2\0"
#define END_AND_MORE "\xfe\0\0\x0a\0"
#define ROW "\x64xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define PROGRESS "\xff\xff\xff\1\1\1\1\1\1\4work"

/* The part of the conversation that comes before the endless part. */
enum stage { FIRST, LOGIN, ANSWER, COLUMNS, ROWS };

/* The server, of one connection. */
struct flood {
    enum stage after;
    struct part {
        const char *content;
        size_t length;
    } endless[PARTS]; /* the contents of packets, in turns; none: bytes of one packet */
    bool silent;      /* nothing comes instead, for SEND_MS */
    int listener;
    size_t sent;
};

static bool always_ready; /* poll() says that of the client's socket */
int __real_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms);

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms) {
    const int ready = __real_poll(fds, n, always_ready ? 0 : timeout_ms);
    if (ready != 0 || !always_ready) return ready;
    fds->revents = fds->events;
    return 1;
}

static bool send_all(int fd, const struct packets *packets) {
    for (size_t sent = 0; sent < packets->used;) {
        ssize_t n = send(fd, packets->bytes + sent, packets->used - sent, MSG_NOSIGNAL);
        if (n <= 0) return false;
        sent += (size_t)n;
    }
    return true;
}

/* Sends what an honest server sends until that stage. */
static bool begin(const struct flood *flood, int fd, struct packets *packets) {
    char request[8192];
    if (flood->after == FIRST) return true;
    ADD(packets, GREETING);
    if (!send_all(fd, packets) || recv(fd, request, sizeof request, 0) <= 0) return false;
    packets->used = 0, packets->serial = 2;
    if (flood->after == LOGIN) return true;
    ADD(packets, OK);
    if (!send_all(fd, packets) || recv(fd, request, sizeof request, 0) <= 0) return false;
    packets->used = 0, packets->serial = 1;
    if (flood->after == ANSWER) return true;
    ADD(packets, "\1");
    ADD(packets, COLUMN);
    if (flood->after == ROWS) ADD(packets, END);
    return send_all(fd, packets);
}

/* Fills a piece with what is sent without end. The serial numbers go round in it. */
static void fill(const struct flood *flood, struct packets *piece) {
    const unsigned first = piece->serial;
    piece->used = 0;
    if (!flood->endless[0].content) {
        memset(piece->bytes, 'x', PIECE);
        memcpy(piece->bytes, "\xff\xff\xff\0", 4);
        piece->used = PIECE;
        return;
    }
    size_t round = 0;
    for (size_t i = 0; i < PARTS; i++) round += 256 * (flood->endless[i].length + 4);
    do
        for (size_t i = 0; i < PARTS && flood->endless[i].content; i++)
            add(piece, flood->endless[i].content, flood->endless[i].length);
    while ((piece->serial & 255) != (first & 255) || piece->used + round <= PIECE);
}

static void *serve(void *arg) {
    struct flood *flood = arg;
    struct packets piece = {.bytes = malloc(PIECE)};
    assert_non_null(piece.bytes);
    int fd = accept(flood->listener, NULL, NULL);
    bool goes_on = begin(flood, fd, &piece);
    fill(flood, &piece);
    const int64_t begun = now_ms();
    while (goes_on && flood->sent < SEND_MAX && now_ms() - begun < SEND_MS) {
        if (flood->silent) {
            struct pollfd closed = {.fd = fd, .events = POLLIN};
            goes_on = __real_poll(&closed, 1, SEND_MS) == 0;
            continue;
        }
        goes_on = send_all(fd, &piece);
        flood->sent += piece.used;
    }
    close(fd);
    free(piece.bytes);
    return NULL;
}

/* The error when such a server is connected to within `timeout_ms`. Returns how many bytes it could send. */
static size_t meet(struct flood flood, int timeout_ms, int code, const char *word) {
    struct dlock_error err = {0};
    struct link link;
    struct uri uri;
    pthread_t thread;
    int port;
    flood.listener = loopback_listen(&port);
    assert_int_equal(pthread_create(&thread, NULL, serve, &flood), 0);
    uri_init(&uri, port);
    uri.parts.path = "/db";
    uri.parts.user = uri.parts.password = "u";
    const int64_t begun = now_ms();
    const int rc = link_try(&link, &uri.parts, 'a', 0, timeout_ms, &err);
    const int64_t took_ms = now_ms() - begun;
    link_end(&link);
    pthread_join(thread, NULL);
    close(flood.listener);
    if (rc != code || !strstr(err.message, word)) fail_msg("%d (%s) instead of %d (%s)", rc, err.message, code, word);
    assert_true(took_ms < timeout_ms + SLACK_MS);
    return flood.sent;
}

#define PART(literal) \
    { .content = (literal), .length = sizeof(literal) - 1 }
#define ENDLESS(literal) .endless = {PART(literal)}

static void assert_too_long(struct flood flood, const char *word) {
    assert_true(meet(flood, TIMEOUT_MS, DLOCK_EPROTO, word) < TAKEN_MAX);
}

static void rows_without_end(void **state) {
    (void)state;
    assert_too_long((struct flood){.after = ROWS, ENDLESS(ROW)}, "too long");
    assert_too_long((struct flood){.after = ROWS, ENDLESS("\0")}, "too long");
    assert_too_long((struct flood){.after = ROWS, ENDLESS("\xfb")}, "too long"); /* NULL */
}

static void columns_without_end(void **state) {
    (void)state;
    assert_too_long((struct flood){.after = COLUMNS, ENDLESS(COLUMN)}, "too many columns");
    assert_too_long((struct flood){.after = COLUMNS, ENDLESS("\3def\xfa")}, "description of a column");
    assert_too_long((struct flood){.after = COLUMNS, ENDLESS("\3def\xfd\0\0\0")}, "description of a column");
}

static void results_without_end(void **state) {
    (void)state;
    assert_too_long((struct flood){.after = ANSWER, ENDLESS(OK_AND_MORE)}, "more results");
    assert_too_long((struct flood){.after = ANSWER,
                                   .endless = {PART("\1"), PART(COLUMN), PART(END), PART(END_AND_MORE)}},
                    "more results");
}

/* One packet, at each stage: the connection ends as soon as its length is known. */
static void a_packet_without_end(void **state) {
    (void)state;
    for (int after = FIRST; after <= ROWS; after++) {
        const struct flood flood = {.after = (enum stage)after};
        assert_true(meet(flood, TIMEOUT_MS, DLOCK_EUNAVAILABLE, "MySQL at") < TAKEN_MAX);
    }
}

/* They are read as long as they come, but not beyond the deadline. */
static void reports_of_progress_without_end(void **state) {
    (void)state;
    meet((struct flood){.after = FIRST, ENDLESS(PROGRESS)}, SHORT_MS, DLOCK_EUNAVAILABLE, "MySQL at");
    meet((struct flood){.after = LOGIN, ENDLESS(PROGRESS)}, SHORT_MS, DLOCK_EUNAVAILABLE, "MySQL at");
    meet((struct flood){.after = ANSWER, ENDLESS(PROGRESS)}, SHORT_MS, DLOCK_EUNAVAILABLE, "MySQL at");
    meet((struct flood){.after = ROWS, ENDLESS(PROGRESS)}, SHORT_MS, DLOCK_EUNAVAILABLE, "MySQL at");
}

/* As if each poll() found another byte. */
static void a_socket_that_is_always_ready(void **state) {
    (void)state;
    always_ready = true;
    meet((struct flood){.after = LOGIN, .silent = true}, SHORT_MS, DLOCK_EUNAVAILABLE, "in time");
    meet((struct flood){.after = ANSWER, .silent = true}, SHORT_MS, DLOCK_EUNAVAILABLE, "in time");
    meet((struct flood){.after = ROWS, .silent = true}, SHORT_MS, DLOCK_EUNAVAILABLE, "in time");
    always_ready = false;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_without_end),
        cmocka_unit_test(columns_without_end),
        cmocka_unit_test(results_without_end),
        cmocka_unit_test(a_packet_without_end),
        cmocka_unit_test(reports_of_progress_without_end),
        cmocka_unit_test(a_socket_that_is_always_ready),
    };
    return cmocka_run_group_tests(tests, backend_load, NULL);
}
