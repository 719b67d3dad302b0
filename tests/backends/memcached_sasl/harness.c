#include "harness.h"

#include "support/loopback.h"

#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- servers ----------------------------------------------------------------------------------------------------- */

static bool answers(struct server *server) {
    int fd = loopback_connect(server->port);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

static const char *const words[] = {"sh", DLOCK_TEST_SERVE, "{folder}", "{port}", NULL};

const struct server_program server_program = {words, false, answers, NULL, NULL};

/* So much time that an operation without its own timeout would not end before its test does. */
enum { PATIENCE_MS = 600000 };

int try_log_in(struct link *link, int port, char letter, const char *password, struct dlock_error *err) {
    struct uri uri;
    uri_init(&uri, port);
    uri.parts.scheme = "memcached+sasl";
    uri.parts.user = "user";
    uri.parts.password = (char *)password;
    return link_try(link, &uri.parts, letter, 0, PATIENCE_MS, err);
}

void log_in(struct link *link, int port, char letter) {
    struct dlock_error err = {0};
    if (try_log_in(link, port, letter, "hunter2", &err) != 0) fail_msg("%s", err.message);
}

/* A connection's idea of the server's age dates from when it was made. */
void await_grants(int port) {
    int result = DLOCK_ENOTREADY;
    for (int64_t until = now_ms() + 30000; result == DLOCK_ENOTREADY; sleep_ms(50)) {
        struct link link;
        struct held held;
        assert_true(now_ms() < until);
        log_in(&link, port, 'f');
        held_new(&held, &link, "await");
        result = acquire(&link, &held);
        if (result == 0) assert_int_equal(release(&link, &held), 0);
        link_end(&link);
    }
    assert_int_equal(result, 0);
}

/* ---- a fake server ----------------------------------------------------------------------------------------------- */

enum { HEADER = 24, OPCODE_VERSION = 0x0b, OPCODE_STAT = 0x10, OPCODE_MECHANISMS = 0x20, OPCODE_LOGIN = 0x21 };

/* A header says how long its body is. */
static size_t request(const char *buffer, size_t size) {
    const unsigned char *bytes = (const unsigned char *)buffer;
    if (size < HEADER) return 0;
    const size_t whole = HEADER + ((size_t)bytes[8] << 24 | bytes[9] << 16 | bytes[10] << 8 | bytes[11]);
    return size < whole ? 0 : whole;
}

static const char *const greeting[] = {NULL};
const struct fake_protocol fake_protocol = {greeting, request, NULL};

bool answer_with(int fd, const char *asked, int status, const char *extras, const char *key, const char *value,
                 size_t sent) {
    char answer[512] = {0};
    const size_t n_extras = extras ? 4 : 0, n_key = strlen(key), n_value = strlen(value);
    const size_t body = n_extras + n_key + n_value, whole = HEADER + body;
    assert_true(whole <= sizeof answer);
    answer[0] = (char)0x81;
    answer[1] = asked[1];
    answer[3] = (char)n_key;
    answer[4] = (char)n_extras;
    answer[7] = (char)status;
    answer[10] = (char)(body >> 8);
    answer[11] = (char)body;
    memcpy(answer + 12, asked + 12, 4);
    answer[23] = 7; /* its cas id */
    if (n_extras) memcpy(answer + HEADER, extras, n_extras);
    memcpy(answer + HEADER + n_extras, key, n_key);
    memcpy(answer + HEADER + n_extras + n_key, value, n_value);
    if (sent > whole) sent = whole;
    return send(fd, answer, sent, MSG_NOSIGNAL) == (ssize_t)sent && sent == whole;
}

static bool say(int fd, const char *asked, const char *key, const char *value) {
    return answer_with(fd, asked, 0, NULL, key, value, SIZE_MAX);
}

bool answer_honestly(int fd, const char *asked) {
    switch (asked[1]) {
    case OPCODE_MECHANISMS: return say(fd, asked, "", "PLAIN");
    case OPCODE_LOGIN: return say(fd, asked, "", "Authenticated");
    case OPCODE_VERSION: return say(fd, asked, "", "1.6.18");
    case OPCODE_GETKQ: return true;
    case OPCODE_STAT:
        return say(fd, asked, "uptime", "100000") && say(fd, asked, "time", "1700100000") &&
               say(fd, asked, "evictions", "off") && say(fd, asked, "", "");
    default: return say(fd, asked, "", "");
    }
}
