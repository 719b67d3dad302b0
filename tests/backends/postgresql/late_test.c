/* An acquire that the server executes after its client has given up and released the token: it grants nothing, however
 * late it comes. */
#include "site.h"

#include "support/relay.h"

#include <signal.h>

enum { GIVES_UP_MS = 300, LATE_MS = 10000 };

/* How an acquire is sent: by the short way or the long one, prepared or, for poolers, in one statement. */
static const struct way {
    bool wanted;
    const char *listen;
} ways[] = {{false, NULL}, {true, NULL}, {true, "off"}};
enum { WAYS = sizeof ways / sizeof *ways };

static void connect_to(struct link *link, int port, const char *listen) {
    const struct params params = {.port = port, .more = {{listen ? "listen" : NULL, listen}}};
    struct dlock_error err;
    if (link_with(link, &params, 'a', TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
}

/* Connects, and has used the connection once. Returns the server's process. */
static int begin(struct link *link, int port, const struct way *way, struct held *held) {
    connect_to(link, port, way->listen);
    held_new(held, link, "late");
    assert_int_equal(acquire(link, held), 0);
    assert_int_equal(release(link, held), 0);
    held_new(held, link, "late");
    if (way->wanted) strcpy(pg_of(link)->wanted, "late");
    return PQbackendPID(pg_of(link)->link);
}

static void give_up(struct link *link, struct held *held) {
    struct dlock_error err;
    assert_int_equal(held_run(backend->acquire, link, held, 0, GIVES_UP_MS, &err), DLOCK_EUNAVAILABLE);
}

/* Releases the token over another connection, which finds nothing. */
static void release_elsewhere(struct held *held) {
    SCOPED_LINK other;
    connect_to(&other, 0, NULL);
    assert_int_equal(release(&other, held), DLOCK_ELOST);
}

static void expect_free(const struct held *held) {
    assert_int_equal(sql_number("SELECT count(*) FROM {}.locks WHERE token = '%s'", held->token), 0);
    LINK(other, 'b');
    HELD(theirs, &other, "late");
    assert_int_equal(acquire(&other, &theirs), 0);
    assert_int_equal(release(&other, &theirs), 0);
}

/* The request is in the network for longer than its client waits. */
TEST(a_request_that_was_held_back) {
    for (size_t i = 0; i < WAYS; i++) {
        SCOPED_RELAY *relay = relay_new(site.port);
        struct link link;
        struct held held;
        int pid = begin(&link, relay_port(relay), &ways[i], &held);
        relay_hold(relay, RELAY_REQUESTS, true);
        give_up(&link, &held);
        release_elsewhere(&held);
        relay_hold(relay, RELAY_REQUESTS, false);
        sql_wait("SELECT count(*) FROM pg_stat_activity WHERE pid = %d AND state = 'idle' AND "
                 "query ~ '[.](take|acquire)'",
                 pid);
        link_end(&link);
        session_gone(pid);
        expect_free(&held);
    }
}

/* The server's process is not run while its client waits, and reads the request when the connection has been reset. */
TEST(a_request_that_was_not_read) {
    for (size_t i = 0; i < WAYS; i++) {
        struct link link;
        struct held held;
        int pid = begin(&link, 0, &ways[i], &held);
        assert_int_equal(kill(pid, SIGSTOP), 0);
        int64_t begun = now_ms();
        give_up(&link, &held);
        link_end(&link);
        assert_true(now_ms() - begun < LATE_MS); /* neither call hangs */
        release_elsewhere(&held);
        assert_int_equal(kill(pid, SIGCONT), 0);
        session_gone(pid);
        expect_free(&held);
    }
}

/* An acquire in time is granted, whatever has happened to the server's clock since its last answer. */
TEST(a_clock_that_was_set) {
    static const int64_t steps_us[] = {-3600000000, 3600000000};
    for (size_t i = 0; i < WAYS; i++) {
        for (size_t j = 0; j < 2; j++) {
            SCOPED_LINK link;
            struct held held;
            begin(&link, 0, &ways[i], &held);
            pg_of(&link)->clock.server_us += steps_us[j];
            assert_int_equal(acquire(&link, &held), 0);
            assert_in_range(pg_of(&link)->clock.server_us, sql_number("SELECT {}.clock_us()") - 5000000,
                            sql_number("SELECT {}.clock_us()"));
            assert_int_equal(release(&link, &held), 0);
        }
    }
}

TESTS(NULL, NULL, site_begin, site_end)
