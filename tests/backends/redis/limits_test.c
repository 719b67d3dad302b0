/* A server at its limits: scripts forgotten, memory full, just restarted. */
#include "harness.h"
#include "support/group.h"

#include <poll.h>

static struct link holder, asker, listener; /* clients 'f', and 'a' for both others */
static struct held held, waiter;

static int setup(void **state) {
    (void)state;
    ask_text(&server, "FLUSHALL");
    link_to(&holder, server.port, 'f');
    link_to(&asker, server.port, 'a');
    link_to(&listener, server.port, 'a');
    link_listen(&listener);
    claim_init(&held, "limit", 'f', 1);
    claim_init(&waiter, "limit", 'a', 1);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    ask_text(&server, "CONFIG SET maxmemory 0");
    link_end(&holder);
    link_end(&asker);
    link_end(&listener);
    return 0;
}

/* ---- scripts ----------------------------------------------------------------------------------------------------- */

TEST(forgotten_scripts_are_given_again) {
    enum { N = 300 };
    static struct held many[N];
    static char names[N][16];
    struct dlock_claim *claims[N];
    struct dlock_wake wake;
    struct dlock_error err = {0};
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "batch-%03d", i);
        claim_init(&many[i], names[i], 'f', i);
        claims[i] = &many[i].claim;
    }
    ask_text(&server, "SCRIPT FLUSH");
    assert_int_equal(backend->acquire(holder.conn, claims, N, TIMEOUT_MS, &err), 0);
    for (int i = 0; i < N; i++) assert_int_equal(claims[i]->result, 0);
    ask_text(&server, "SCRIPT FLUSH");
    assert_int_equal(backend->renew(holder.conn, claims, N, TIMEOUT_MS, &err), 0);
    for (int i = 0; i < N; i++) assert_int_equal(claims[i]->result, 0);

    assert_int_equal(acquire(&holder, &held), 0);
    assert_int_equal(queue_up(&asker, &waiter), DLOCK_EBUSY);
    ask_text(&server, "SCRIPT FLUSH");
    assert_int_equal(release(&holder, &held), 0);
    assert_true(wake_within(&listener, &wake, 5000));
    assert_string_equal(wake.token, waiter.token);
    ask_text(&server, "SCRIPT FLUSH");
    assert_int_equal(backend->break_lock(holder.conn, "limit", TIMEOUT_MS, &err), 0);
}

/* The answer to what was begun says so; the call that reads it then takes a further round trip. */
TEST(a_begun_operation_may_lack_its_script) {
    struct pollfd answer = {.events = POLLIN};
    assert_int_equal(acquire(&holder, &held), 0); /* it begins only what it takes the server to know */
    assert_int_equal(release(&holder, &held), 0);
    ask_text(&server, "SCRIPT FLUSH");
    assert_int_equal(backend->begin(holder.conn, DLOCK_ACQUIRE, &held.claim, &answer.fd, NULL), 0);
    assert_int_equal(poll(&answer, 1, TIMEOUT_MS), 1);
    assert_int_equal(ask_number(&server, "EXISTS limit"), 0);
    assert_int_equal(acquire(&holder, &held), 0);
    assert_string_equal(ask_text(&server, "GET limit"), held.token);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void fill_memory(void) {
    ask_text(&server, "CONFIG SET maxmemory 1");
}

static void assert_refused_for_memory(struct link *link, struct held *claimed, uint32_t flags) {
    struct dlock_claim *claim = &claimed->claim;
    struct dlock_error err = {0};
    claim->flags = flags;
    assert_int_equal(backend->acquire(link->conn, &claim, 1, TIMEOUT_MS, &err), DLOCK_EUNAVAILABLE);
    assert_non_null(strstr(err.message, "OOM"));
}

TEST(no_half_grant_without_memory) {
    fill_memory();
    assert_refused_for_memory(&asker, &waiter, 0);
    assert_int_equal(ask_number(&server, "DBSIZE"), 0);
    ask_text(&server, "CONFIG SET maxmemory 0");
    assert_int_equal(acquire(&holder, &held), 0);
    fill_memory();
    assert_refused_for_memory(&asker, &waiter, DLOCK_CLAIM_QUEUE);
    assert_int_equal(ask_number(&server, "DBSIZE"), 2); /* the lock and its fence */
    assert_int_equal(acquire(&asker, &waiter), DLOCK_EBUSY);
    assert_int_equal(renew(&holder, &held), 0);
    assert_int_equal(release(&holder, &held), 0);
    assert_int_equal(ask_number(&server, "EXISTS limit"), 0);
}

TEST(a_release_hands_over_without_memory) {
    struct dlock_wake wake;
    assert_int_equal(acquire(&holder, &held), 0);
    assert_int_equal(queue_up(&asker, &waiter), DLOCK_EBUSY);
    fill_memory();
    assert_int_equal(release(&holder, &held), 0);
    assert_true(wake_within(&listener, &wake, 5000));
    assert_string_equal(wake.token, waiter.token);
    assert_string_equal(ask_text(&server, "GET limit"), waiter.token);
    assert_int_equal(ask_number(&server, "ZCARD {limit}:dlock:queue"), 0);
    assert_int_equal(acquire(&asker, &waiter), 0);
    assert_true(waiter.claim.fence > held.claim.fence);
    assert_int_equal(renew(&asker, &waiter), 0);
    assert_int_equal(release(&asker, &waiter), 0);
}

/* A try that finds the lock free and a waiter alive hands over whole, or not at all. */
TEST(a_passer_by_hands_over_without_memory) {
    struct held stranger;
    struct dlock_wake wake;
    assert_int_equal(acquire(&holder, &held), 0);
    assert_int_equal(queue_up(&asker, &waiter), DLOCK_EBUSY);
    ask_number(&server, "DEL limit");
    claim_init(&stranger, "limit", 'f', 2);
    fill_memory();
    assert_int_equal(acquire(&holder, &stranger), DLOCK_EBUSY);
    assert_true(wake_within(&listener, &wake, 5000));
    assert_string_equal(ask_text(&server, "GET limit"), waiter.token);
    assert_true(ask_number(&server, "PTTL limit") > 0);
    assert_int_equal(acquire(&asker, &waiter), 0);
    assert_true(waiter.claim.fence > held.claim.fence);
}

/* ---- quarantine -------------------------------------------------------------------------------------------------- */

TEST_WITH(NULL, NULL, after_a_restart_nothing_is_granted_for_a_while) {
    enum { QUARANTINE_MS = 4000 };
    struct server fresh;
    struct link careful, careless;
    struct held first, second;
    struct dlock_claim *claim = &second.claim;
    struct dlock_error err = {0};
    int64_t started;
    server_start(&fresh, NULL);
    started = now_ms();
    link_careful(&careful, fresh.port, 'a', QUARANTINE_MS);
    link_to(&careless, fresh.port, 'b');
    claim_init(&first, "first", 'a', 1);
    claim_init(&second, "second", 'a', 2);

    /* A release does not give it to another client. */
    assert_int_equal(acquire(&careless, &first), 0);
    /* At the end of its lease it might be another client's at the same moment, where a former master grants it. */
    ask_number(&fresh, "PEXPIRE first 450");
    assert_int_equal(acquire(&careful, &first), DLOCK_EBUSY);
    assert_true(ask_number(&fresh, "PTTL first") <= 450);
    ask_number(&fresh, "PEXPIRE first %d", LEASE_MS);
    first.claim.token = second.token;
    assert_int_equal(queue_up(&careful, &first), DLOCK_EBUSY);
    assert_in_range(first.claim.retry_ms, 1, QUARANTINE_MS + 1);
    first.claim.token = first.token;
    assert_int_equal(release(&careful, &first), 0);
    assert_int_equal(ask_number(&fresh, "EXISTS first"), 0);
    assert_int_equal(ask_number(&fresh, "ZCARD {first}:dlock:queue"), 1);

    claim->retry_ms = claim->ready_ms = -1;
    claim->result = DLOCK_EPROTO;
    assert_int_equal(backend->acquire(careful.conn, &claim, 1, TIMEOUT_MS, &err), 0);
    assert_int_equal(claim->result, DLOCK_ENOTREADY);
    assert_in_range(claim->ready_ms, 1, QUARANTINE_MS);
    assert_int_equal(claim->retry_ms, -1); /* after that time */
    assert_int_equal(ask_number(&fresh, "EXISTS second"), 0);

    /* Its waiters keep asking, which shows that they are alive. */
    for (int i = 0; i < 3; i++) {
        struct held later;
        claim_init(&later, "third", 'a', 10 + i);
        assert_int_equal(queue_up(&careful, &later), DLOCK_ENOTREADY);
        assert_in_range(later.claim.retry_ms, 1, 2250);
    }
    while (acquire(&careful, &second) == DLOCK_ENOTREADY) {
        assert_true(now_ms() - started < 3 * QUARANTINE_MS);
        sleep_ms(20);
    }
    assert_int_equal(second.claim.result, 0);
    assert_true(now_ms() - started >= QUARANTINE_MS - 500); /* redis-server was up a little before it answered */
    link_end(&careful);
    link_end(&careless);
    server_stop(&fresh);
}

/* An old snapshot names a former holder, a waiter and a long-lived incarnation. Without memory the new incarnation
 * cannot be recorded, and a late release must not hand over: another client may hold the lock by now. */
TEST(an_old_snapshot_hands_nothing_over_without_memory) {
    enum { QUARANTINE_MS = 2000 };
    struct server old;
    struct link before, after, ear;
    struct held later, other;
    struct dlock_wake wake;
    claim_init(&later, "limit", 'f', 2);
    claim_init(&other, "other", 'f', 3);
    held.claim.lease_ms = 60000; /* does not end while the server is restarted */
    server_start(&old, NULL);
    link_careful(&before, old.port, 'f', QUARANTINE_MS);
    for (int64_t until = now_ms() + 10 * QUARANTINE_MS; acquire(&before, &held) == DLOCK_ENOTREADY; sleep_ms(20))
        assert_true(now_ms() < until);
    assert_int_equal(queue_up(&before, &waiter), DLOCK_EBUSY);
    assert_string_equal(ask_text(&old, "SAVE"), "OK");
    assert_int_equal(release(&before, &held), 0);
    assert_int_equal(acquire(&before, &later), 0); /* a grant that is forgotten */
    link_end(&before);
    server_kill(&old);
    server_again(&old, NULL);
    ask_text(&old, "CONFIG SET maxmemory 1");
    assert_string_equal(ask_text(&old, "GET limit"), held.token);

    link_to(&ear, old.port, 'a');
    link_listen(&ear); /* so the waiter is alive */
    link_careful(&after, old.port, 'f', QUARANTINE_MS);
    assert_int_equal(release(&after, &other), DLOCK_ELOST); /* the server knows the script now */
    sleep_ms(1200);                                         /* the connection asks for the incarnation again */
    assert_int_equal(release(&after, &held), 0);
    assert_string_equal(ask_text(&old, "GET limit"), "");
    assert_int_equal(ask_number(&old, "ZCARD {limit}:dlock:queue"), 1);
    assert_false(wake_within(&ear, &wake, 0));
    link_end(&after);
    link_end(&ear);
    server_stop(&old);
}

/* It cannot record the start of its quarantine, which would therefore never end: a client that does not queue is told
 * why. */
TEST_WITH(NULL, NULL, a_server_that_refuses_to_write_says_so) {
    static const struct {
        const char *setting, *why;
    } refusals[] = {{"min-replicas-to-write", "min-replicas-to-write asks for more"}, {"maxmemory", "raise maxmemory"}};
    struct server fresh;
    server_start(&fresh, NULL);
    for (size_t i = 0; i < 2; i++) {
        struct link link;
        struct held claimed;
        struct dlock_error err = {0};
        claim_init(&claimed, "refused", 'a', 1);
        ask_text(&fresh, "CONFIG SET %s 1", refusals[i].setting);
        link_careful(&link, fresh.port, 'a', 60000);
        assert_int_equal(held_run(backend->acquire, &link, &claimed, 0, TIMEOUT_MS, &err), 0);
        assert_int_equal(claimed.claim.result, DLOCK_EUNAVAILABLE);
        assert_non_null(strstr(err.message, refusals[i].why));
        ask_text(&fresh, "CONFIG SET %s 0", refusals[i].setting);
        sleep_ms(1200); /* the connection checks again */
        assert_int_equal(acquire(&link, &claimed), DLOCK_ENOTREADY);
        ask_text(&fresh, "FLUSHALL");
        link_end(&link);
    }
    server_stop(&fresh);
}

/* The current settings say nothing about those before the restart: that one may have
 * turned the journal on, and forgotten everything. Only quarantine=0 is a way out. */
TEST_WITH(NULL, NULL, the_quarantine_does_not_ask_for_settings) {
    static const char *const always[] = {"--appendonly", "yes", "--appendfsync", "always", NULL};
    struct server fresh;
    struct link link;
    struct held claimed;
    claim_init(&claimed, "kept", 'a', 1);
    server_start(&fresh, always);
    for (int quarantine_ms = 60000; quarantine_ms >= 0; quarantine_ms -= 60000) {
        link_careful(&link, fresh.port, 'a', quarantine_ms);
        assert_int_equal(acquire(&link, &claimed), quarantine_ms ? DLOCK_ENOTREADY : 0);
        link_end(&link);
    }
    server_stop(&fresh);
}

TESTS(setup, teardown, group_begin, group_end)
