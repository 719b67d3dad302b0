#include "harness.h"

#include "support/fake.h"
#include "support/loopback.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* All that comes until the server has hung up, which it does once it has answered; false: it cannot be reached. */
static bool talk(int port, const char *request, char *out, size_t size) {
    int fd = loopback_connect(port);
    size_t n = 0;
    ssize_t got = 1;
    if (fd < 0) return false;
    if (send(fd, request, strlen(request), MSG_NOSIGNAL) == (ssize_t)strlen(request) && shutdown(fd, SHUT_WR) == 0)
        while (n + 1 < size && (got = recv(fd, out + n, size - 1 - n, 0)) > 0) n += (size_t)got;
    close(fd);
    out[n] = '\0';
    return n > 0;
}

/* ---- servers ----------------------------------------------------------------------------------------------------- */

static int64_t stat_in(const char *stats, const char *name) {
    char line[80];
    const char *found;
    snprintf(line, sizeof line, "STAT %s ", name);
    found = strstr(stats, line);
    if (!found) fail_msg("no %s in stats", name);
    return strtoll(found + strlen(line), NULL, 10);
}

/* It does, and is old enough to grant something: more than a second, of which `uptime` is ahead by up to three. */
static bool answers(struct server *server) {
    char text[16384];
    if (servers_are_classic()) classic_relay(server);
    if (!talk(server->port, "stats\r\n", text, sizeof text)) return false;
    return strncmp(text, "CLIENT_ERROR", 12) == 0 || stat_in(text, "uptime") >= 4; /* it may want a password */
}

/* The rest of the command line comes behind. */
#define LAUNCH                                                                    \
    "port=$0 socket=$1; shift\n"                                                  \
    "if [ \"$DLOCK_TEST_CLASSIC\" ]; then set -- -s \"$socket\" -a 0777 \"$@\"\n" \
    "else set -- -p \"$port\" -l 127.0.0.1 \"$@\"; fi\n"                          \
    "exec \"${DLOCK_MEMCACHED_SERVER:-memcached}\" -U 0 \"$@\""
static const char *const words[] = {"sh", "-c", LAUNCH, "{port}", "{folder}" CLASSIC_SOCKET, NULL};

const struct server_program server_program = {words, true, answers, NULL, NULL};

/* ---- the plain client -------------------------------------------------------------------------------------------- */

const char *ask(const struct server *server, const char *format, ...) {
    static char text[16384];
    char request[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(request, sizeof request - 2, format, args);
    va_end(args);
    strcat(request, "\r\n");
    if (!talk(server->port, request, text, sizeof text)) fail_msg("no answer to: %s", request);
    return text;
}

int64_t stat_of(const struct server *server, const char *name) {
    return stat_in(ask(server, "stats"), name);
}

void count(const struct server *server, struct counts *since) {
    static struct counts last;
    const char *stats = ask(server, "stats");
    struct counts now = {stat_in(stats, "cmd_set"), stat_in(stats, "cmd_get"), stat_in(stats, "cas_hits"),
                         stat_in(stats, "cas_badval") + stat_in(stats, "cas_misses"), stat_in(stats, "delete_hits")};
    if (since)
        *since = (struct counts){now.stores - last.stores, now.gets - last.gets, now.cas_hits - last.cas_hits,
                                 now.cas_misses - last.cas_misses, now.deletes - last.deletes};
    last = now;
}

int reservations(const struct server *server) {
    static int known = -1; /* all servers of a program are of one kind */
    if (known < 0) known = strcmp(ask(server, "mg dlock-asks-for-meta E1"), "EN\r\n") == 0;
    return known;
}

void await_tick(const struct server *server, struct link *link) {
    const int gets = 1 + reservations(server);
    struct counts counts = {0};
    for (int64_t until = now_ms() + 10000; counts.gets != gets; sleep_ms(50)) {
        struct held held;
        assert_true(now_ms() < until);
        held_new(&held, link, "tick");
        assert_int_equal(acquire(link, &held), 0);
        assert_int_equal(release(link, &held), 0);
        count(server, NULL);
        held_new(&held, link, "tick");
        assert_int_equal(acquire(link, &held), 0);
        count(server, &counts);
        assert_int_equal(release(link, &held), 0);
    }
}

bool poll_for(struct link *link, struct held *held, int ms) {
    for (int64_t until = now_ms() + ms; now_ms() < until; sleep_ms(10))
        if (acquire(link, held) == 0) return true;
    return false;
}

/* ---- what an honest server says ---------------------------------------------------------------------------------- */

static const char *const greeting[] = {FAKE_GREETING, NULL};
static const char ask_time[] = "stats\r\n";

static bool asks_time(const char *text, size_t size) {
    return size == strlen(ask_time) && memcmp(text, ask_time, size) == 0;
}

/* Bytes that come at once are one request, but for the question that ends it. */
static size_t request(const char *buffer, size_t size) {
    const size_t end = strlen(ask_time);
    return size > end && asks_time(buffer + size - end, end) ? size - end : size;
}

static const char *time_stands_still(const char *text, size_t size) {
    return asks_time(text, size) ? FAKE_CLOCK(1700100000) : NULL;
}

const struct fake_protocol fake_protocol = {greeting, request, time_stands_still};
