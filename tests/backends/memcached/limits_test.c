/* Servers that forget and servers that are full. */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

static int64_t time_of_day_ms(void) {
    struct timeval now;
    gettimeofday(&now, NULL);
    return (int64_t)now.tv_sec * 1000 + now.tv_usec / 1000;
}

/* One that was started just now, and what it says about when that was. */
static int64_t start_young(struct server *young, struct link *link) {
    struct uri uri;
    server_start_unheard(young, NULL);
    uri_init(&uri, young->port);
    for (int64_t until = now_ms() + 10000; link_try(link, &uri.parts, 'a', 0, TIMEOUT_MS, NULL) != 0; sleep_ms(5)) {
        assert_true(now_ms() < until);
        link_end(link);
    }
    return stat_of(young, "time") - stat_of(young, "uptime");
}

/* A restart within the second in which the server was started: both count their fences from the same number. So the
 * first life must not have granted anything, even without a quarantine. */
TEST(fences_grow_across_a_quick_restart) {
    struct server first, second;
    struct held held;
    struct link link;
    claim_init(&held, "young", 'a', 1);
    for (int tries = 0; tries < 20; tries++) {
        uint64_t last = 0;
        int64_t started;
        while (time_of_day_ms() % 1000 > 50) sleep_ms(5);
        started = start_young(&first, &link);
        for (int i = 0; i < 20; i++) {
            if (acquire(&link, &held) != 0) continue;
            last = held.claim.fence;
            assert_int_equal(release(&link, &held), 0);
        }
        link_end(&link);
        server_stop(&first);
        if (start_young(&second, &link) == started) tries = 20;
        for (int64_t until = now_ms() + 10000; acquire(&link, &held) != 0; sleep_ms(10)) assert_true(now_ms() < until);
        if (tries == 20) assert_true(held.claim.fence > last);
        link_end(&link);
        server_stop(&second);
        if (tries == 20) return;
    }
    fail_msg("no two starts within one second");
}

/* Floods the server with items of the same size as ours, whose names also have 11 bytes, as fast as a pipe allows. */
static void flood(const struct server *server) {
    char command[400];
    snprintf(command, sizeof command,
             "awk 'BEGIN { for (i = 0; i < 60000; i++) printf \"set flood%%06d 4294967295 0 33 "
             "noreply\\r\\n%%033d\\r\\n\", i, i; "
             "printf \"version\\r\\nquit\\r\\n\" }' | "
             "bash -c 'exec 3<>/dev/tcp/127.0.0.1/%d; cat <&3 >/dev/null & cat >&3; wait'",
             server->port);
    assert_int_equal(system(command), 0);
}

/* The holder is told, and the next grant has a greater fence. `forget` makes the server lose the lock. */
static void assert_loss_is_told(const char *const *arguments, void (*forget)(const struct server *server)) {
    struct server server;
    struct held mine, next;
    struct link link;
    server_start(&server, arguments);
    link_to(&link, server.port, 'a');
    claim_init(&mine, "evicted_one", 'a', 1);
    claim_init(&next, "evicted_one", 'a', 2);
    mine.claim.lease_ms = 600000;
    assert_int_equal(acquire(&link, &mine), 0);
    forget(&server);
    assert_int_equal(renew(&link, &mine), DLOCK_ELOST);
    assert_int_equal(acquire(&link, &next), 0);
    assert_true(next.claim.fence > mine.claim.fence);
    assert_int_equal(release(&link, &mine), DLOCK_ELOST);
    assert_int_equal(renew(&link, &next), 0);
    link_end(&link);
    server_stop(&server);
}

static void flush(const struct server *server) {
    ask(server, "flush_all");
    sleep_ms(1100); /* it works by whole seconds */
}

TEST(flush_all_is_a_loss) {
    assert_loss_is_told(NULL, flush);
}

/* Before the item is read: items that were read twice are kept longer. */
static void evict(const struct server *server) {
    flood(server);
    for (int i = 0; i < 10 && strncmp(ask(server, "get evicted_one"), "VALUE", 5) == 0; i++) flood(server);
    assert_true(stat_of(server, "evictions") > 0);
}

/* A shared cache evicts a held lock within a fraction of a second. */
TEST(an_evicted_lock_is_lost_and_said_to_be) {
    assert_loss_is_told((const char *const[]){"-m", "2", NULL}, evict);
}

static const char *const never_evicts[] = {"-m", "2", "-M", NULL};

/* Whether the server reports that it has no memory for this; on a separate connection, which does not survive it. */
static void assert_full(const struct server *server, dlock_batch *operation, struct held *held) {
    struct dlock_error err = {0};
    struct link link;
    link_to(&link, server->port, 'a');
    assert_int_equal(held_run(operation, &link, held, 0, TIMEOUT_MS, &err), DLOCK_EUNAVAILABLE);
    assert_non_null(strstr(err.message, "SERVER_ERROR out of memory"));
    link_end(&link);
}

/* With -M it says that it is full, where it would have forgotten locks: held ones stay, new ones are unavailable, and
 * neither who wants one that is held nor its own renewal, which fails, ends it. */
TEST(a_full_server_is_unavailable) {
    struct server server;
    struct held mine, more, same;
    struct link link;
    server_start(&server, never_evicts);
    link_to(&link, server.port, 'a');
    claim_init(&mine, "kept_locked", 'a', 1);
    claim_init(&more, "more_locked", 'a', 2);
    claim_init(&same, "kept_locked", 'a', 3);
    mine.claim.lease_ms = 600000;
    assert_int_equal(acquire(&link, &mine), 0);
    flood(&server);
    assert_full(&server, backend->acquire, &more);
    assert_full(&server, backend->acquire, &same);
    assert_full(&server, backend->renew, &mine);
    assert_non_null(strstr(ask(&server, "get kept_locked"), mine.token));
    assert_int_equal(stat_of(&server, "evictions"), 0);
    link_end(&link);
    server_stop(&server);
}

/* A release needs no memory; it leaves room for the next lock. */
TEST(a_full_server_takes_locks_back) {
    struct server server;
    struct held mine, next;
    struct link link;
    server_start(&server, never_evicts);
    link_to(&link, server.port, 'a');
    claim_init(&mine, "given__back", 'a', 1);
    claim_init(&next, "given__back", 'a', 2);
    assert_int_equal(acquire(&link, &mine), 0);
    flood(&server);
    assert_int_equal(release(&link, &mine), 0);
    assert_int_equal(acquire(&link, &next), 0);
    assert_true(next.claim.fence > mine.claim.fence);
    link_end(&link);
    server_stop(&server);
}

/* Why no lock is taken by a meta set, and none is renewed by one on a server that never evicts: without memory for the
 * new item it drops the existing one, which an `add` and a `cas` leave alone. If this fails, the server has stopped
 * doing so, and from that version on a meta set might do both (claims.c). */
TEST(a_meta_set_that_finds_no_memory_frees_a_lock) {
    struct server server;
    for (int renews = 0; renews <= 1; renews++) {
        server_start(&server, never_evicts);
        assert_string_equal(ask(&server, "add others_lock 0 0 33\r\n%033d", 1), "STORED\r\n");
        flood(&server);
        assert_non_null(strstr(ask(&server, "add others_lock 0 0 33\r\n%033d", 2), "SERVER_ERROR"));
        assert_non_null(strstr(ask(&server, "cas others_lock 0 0 33 9\r\n%033d", 2), "SERVER_ERROR"));
        assert_non_null(strstr(ask(&server, "get others_lock"), "VALUE"));
        assert_non_null(strstr(ask(&server, "ms others_lock 33 %s\r\n%033d", renews ? "C9" : "ME", 2), "SERVER_ERROR"));
        assert_string_equal(ask(&server, "get others_lock"), "END\r\n");
        server_stop(&server);
    }
}

TESTS(NULL, NULL, backend_load, NULL)
