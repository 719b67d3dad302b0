/* Leases on a server whose clock stops for a while, jumps, or is odd; and requests to the letter. */
#include "script.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- a server that is stopped and continues ---------------------------------------------------------------------- */

/* The lease is shorter than the stop, and longer than it takes to ask for all of them, and then to look. */
enum { MANY = 40, STOP_MS = 7000, LEASE_AFTER_MS = 4500, LOOK_MS = 1500, TRIES = 5 };

/* A separate client, which sends a request while the server is stopped. */
struct asker {
    struct link link;
    struct held held;
    char name[16];
    dlock_batch *operation;
    int port;
    pthread_t thread;
};

static void *ask_for_it(void *arg) {
    struct asker *asker = arg;
    struct dlock_claim *claim = &asker->held.claim;
    if (!asker->link.conn) link_to(&asker->link, asker->port, 'a');
    claim_run(asker->operation, asker->link.conn, claim, TIMEOUT_MS, NULL);
    return NULL;
}

/* All are looked at with one request. False: it was answered too late to say, for the machine is busy. */
static bool check_that_all_last(const struct server *server, const struct asker *askers, int64_t end) {
    char names[MANY * 16] = "";
    int ended = 0;
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(askers[i].held.claim.result, 0);
        strcat(strcat(names, " "), askers[i].name);
    }
    const char *items = ask(server, "get%s", names);
    const int64_t late = now_ms() - end;
    for (int i = 0; i < MANY; i++) ended += !strstr(items, askers[i].held.token);
    if (late >= 0) return false;
    if (ended) fail_msg("%d of %d leases ended early", ended, MANY);
    return true;
}

/* The request is sent shortly before the server continues, so that its round trip is short, and perhaps answered before
 * the server's clock is set. */
static bool try_leases(struct asker *askers, dlock_batch *operation, bool connected) {
    struct server server;
    server_start(&server, NULL);
    for (int i = 0; i < MANY; i++) {
        struct asker *asker = &askers[i];
        memset(asker, 0, sizeof *asker);
        snprintf(asker->name, sizeof asker->name, "stop%d", i);
        claim_init(&asker->held, asker->name, 'a', i);
        asker->port = server.port;
        asker->operation = operation;
        asker->held.claim.lease_ms = LEASE_AFTER_MS + STOP_MS;
        if (connected) link_to(&asker->link, server.port, 'a');
        if (operation == backend->renew) assert_int_equal(acquire(&asker->link, &asker->held), 0);
        asker->held.claim.lease_ms = LEASE_AFTER_MS;
    }
    kill(server.pid, SIGSTOP);
    sleep_ms(STOP_MS);
    for (int i = 0; i < MANY; i++) assert_int_equal(pthread_create(&askers[i].thread, NULL, ask_for_it, &askers[i]), 0);
    sleep_ms(200);
    const int64_t goes_on = now_ms();
    kill(server.pid, SIGCONT);
    for (int i = 0; i < MANY; i++) pthread_join(askers[i].thread, NULL);
    const int64_t left = goes_on + LOOK_MS - now_ms(); /* the clock ticks once a second */
    if (left > 0) sleep_ms((int)left);
    bool seen = check_that_all_last(&server, askers, goes_on + LEASE_AFTER_MS);
    for (int i = 0; i < MANY; i++) link_end(&askers[i].link);
    server_stop(&server);
    return seen;
}

static void leases_last_that(struct asker *askers, dlock_batch *operation, bool connected) {
    for (int tries = 1; !try_leases(askers, operation, connected); tries++)
        if (tries == TRIES) fail_msg("looked %d times too late to say: the machine is too slow", TRIES);
}

static struct asker askers[MANY];

TEST(grants_after_a_stop_last) {
    leases_last_that(askers, backend->acquire, true);
}

TEST(renewals_after_a_stop_last) {
    leases_last_that(askers, backend->renew, true);
}

TEST(connections_made_during_a_stop_are_no_worse) {
    leases_last_that(askers, backend->acquire, false);
}

/* ---- what a connection knows of the clock ------------------------------------------------------------------------ */

static int acquire_by(const struct line *lines) {
    struct held held;
    int result = script_run(FAKE_GREETING, lines, backend->acquire, DLOCK_EXCLUSIVE, &held);
    if (result == 0) assert_true(held.claim.fence == FAKE_STARTED_US + 5);
    return result;
}

enum { LEASE_S = LEASE_MS / 1000 };

TEST(an_expiry_is_an_absolute_time) {
    static const struct line lines[] = {{ADD, "STORED\r\n" OURS(FRESH, 5)}, {TIME, FAKE_CLOCK(1700100000)}};
    assert_int_equal(acquire_by(lines), 0);
    assert_in_range(script_numbers[1], START + LEASE_S + 3, START + LEASE_S + 4); /* 2.25 s for the clock, rounded up */
}

/* The first reading was made before the clock was set: what was derived from it is redone. */
TEST(a_clock_that_jumps_is_not_believed) {
    static const struct line lines[] = {{ADD, "STORED\r\n" OURS(FRESH, 5)},
                                        {TIME, FAKE_CLOCK(1700100060)},
                                        {CAS(5), "STORED\r\n" OURS(FIFTH, 6)},
                                        {NULL, NULL}};
    static const struct line lost[] = {{ADD, "STORED\r\n" OURS(FRESH, 5)},
                                       {TIME, FAKE_CLOCK(1700100060)},
                                       {CAS(5), "EXISTS\r\nVALUE clock 0 4 6\r\nthem\r\nEND\r\n"},
                                       {NULL, NULL}};
    assert_int_equal(acquire_by(lines), 0);
    /* Readings that differ prove more: no quarter of a second for a late timer. */
    assert_in_range(script_numbers[3], START + 60 + LEASE_S + 1, START + 60 + LEASE_S + 3);
    assert_int_equal(acquire_by(lost), DLOCK_EBUSY);
}

/* The same for a reader who joins another one. */
TEST(a_clock_that_jumps_is_not_believed_by_readers) {
#define LIST "dlock shared 0\n"
#define OTHER "other 5 0 100000 4000000000\n"
    static const struct line lines[] = {
        {"add clock 0 # 70\r\n" LIST TOKEN " 0 0 10000 #\n\r\ngets clock\r\n",
         "NOT_STORED\r\nVALUE clock 0 43 5\r\n" LIST OTHER "\r\nEND\r\n"},
        {TIME, FAKE_CLOCK(1700100000)},
        {"gets clock\r\n", "VALUE clock 0 43 5\r\n" LIST OTHER "\r\nEND\r\n"},
        {"cas clock 0 4000000000 98 5\r\n" LIST OTHER TOKEN " 0 5 10000 #\n\r\ngets clock\r\n",
         "STORED\r\nVALUE clock 0 98 6\r\n" LIST OTHER TOKEN " 0 5 10000 1700100014\n\r\nEND\r\n"},
        {TIME, FAKE_CLOCK(1700100060)},
        {"cas clock 0 4000000000 98 6\r\n" LIST OTHER TOKEN " 6 6 10000 #\n\r\ngets clock\r\n",
         "STORED\r\nVALUE clock 0 98 7\r\n" LIST OTHER TOKEN " 6 6 10000 1700100073\n\r\nEND\r\n"},
        {NULL, NULL}};
    struct held held;
    assert_int_equal(script_run(FAKE_GREETING, lines, backend->acquire, DLOCK_SHARED, &held), 0);
    assert_true(held.claim.fence == FAKE_STARTED_US + 6);
    assert_in_range(script_numbers[6], START + 60 + LEASE_S + 1, START + 60 + LEASE_S + 3);
}

/* A clock advances by one second. */
TEST(a_clock_that_ticks_is_believed) {
    static const struct line lines[] = {{ADD, "STORED\r\n" OURS(FRESH, 5)},
                                        {TIME, FAKE_CLOCK(1700100001)},
                                        {NULL, NULL}};
    assert_int_equal(acquire_by(lines), 0);
}

/* The clock does not move: the server was stopped, and served these requests before it continued. Earlier knowledge is
 * not given up for that. */
TEST(a_clock_that_stands_still_is_not_believed) {
    static const struct line lines[] = {{ADD, "STORED\r\n" OURS(FRESH, 5)},
                                        {TIME, FAKE_CLOCK(1700100000)},
                                        {ADD, "STORED\r\n" OURS(FRESH, 5)},
                                        {TIME, FAKE_CLOCK(1700100000)},
                                        {ADD, "STORED\r\n" OURS(FRESH, 5)},
                                        {TIME, FAKE_CLOCK(1700100000)},
                                        {NULL, NULL}};
    struct fake fake = {0};
    struct held held;
    struct link link;
    script_link(&fake, &link, FAKE_GREETING, lines);
    claim_init(&held, "clock", 'a', 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(acquire(&link, &held), 0);
        if (i == 0) sleep_ms(2500);
    }
    script_unlink(&fake, &link);
    for (int i = 3; i <= 5; i += 2) assert_in_range(script_numbers[i], START + LEASE_S + 4, START + LEASE_S + 30);
}

/* Its items would be given relative times. */
TEST(a_server_without_a_clock_is_refused) {
    struct fake fake = {.greeting = {"STAT uptime 100\r\nSTAT time 2592000\r\nEND\r\nSTAT cas_enabled yes\r\nEND\r\n"}};
    struct dlock_error err = {0};
    struct link link;
    assert_int_equal(fake_try(&fake, &link, TIMEOUT_MS, &err), DLOCK_EPROTO);
    assert_non_null(strstr(err.message, "a plausible time"));
    fake_unlink(&fake, &link);
}

/* The flags have 19 bits for the id of the grant. When more items were stored since, they say that they do not know. */
TEST(a_grant_of_long_ago_is_noted_as_unknown) {
    static const struct line renewal[] = {{"gets clock\r\n", OURS(FRESH, 5)},
                                          {TIME, FAKE_CLOCK(1700100000)},
                                          {CAS(5), "STORED\r\n" OURS(FIFTH, 1000000)},
                                          {TIME, FAKE_CLOCK(1700100000)},
                                          {"cas clock 2565865470 # 33 1000000\r\n" TOKEN "\r\ngets clock\r\n",
                                           "STORED\r\n" OURS(2565865470, 1000001)},
                                          {TIME, FAKE_CLOCK(1700100000)},
                                          {NULL, NULL}};
    /* The answer of that grant was lost, or it would not be requested again: so it may count from now. */
    static const struct line again[] = {{ADD, "NOT_STORED\r\n" OURS(2565865470, 1000001)},
                                        {TIME, FAKE_CLOCK(1700100000)},
                                        {"cas clock 2565865471 # 33 1000001\r\n" TOKEN "\r\ngets clock\r\n",
                                         "STORED\r\n" OURS(FRESH, 1000002)},
                                        {TIME, FAKE_CLOCK(1700100000)},
                                        {NULL, NULL}};
    struct held held;
    assert_int_equal(script_run(FAKE_GREETING, renewal, backend->renew, DLOCK_EXCLUSIVE, &held), 0);
    assert_int_equal(script_run(FAKE_GREETING, again, backend->acquire, DLOCK_EXCLUSIVE, &held), 0);
    assert_true(held.claim.fence == FAKE_STARTED_US + 1000002);
}

TESTS(NULL, NULL, backend_load, NULL)
