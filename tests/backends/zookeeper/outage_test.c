/* Connections that break, answers that are lost, partitions shorter and longer than a session. */
#include "behind.h"

#include <stdio.h>

static int setup(void **state) {
    (void)state;
    behind_begin("4s");
    return 0;
}

/* ---- lost answers ------------------------------------------------------------------------------------------------ */

TEST(lost_create_is_found) {
    warm("lost create");
    CLAIM_INIT(held, "lost create", 'a', 1);
    proxy_lose_answer(proxy, OP_CREATE2);
    assert_int_equal(persistently(&far, acquire, &held), 0);
    assert_int_equal(proxy_seen(proxy, OP_CREATE2), 1);
    assert_int_equal(plain_count(BASE "/lost create"), 1);
    assert_int_equal(renew(&far, &held), 0);
    CLAIM_INIT(next, "lost create", 'b', 1);
    assert_int_equal(acquire(&near, &next), DLOCK_EBUSY);
    assert_int_equal(release(&far, &held), 0);
    assert_int_equal(acquire(&near, &next), 0);
    assert_true(next.claim.fence > held.claim.fence);
    assert_int_equal(release(&near, &next), 0);
}

TEST(lost_create_of_a_try_leaves_nothing) {
    CLAIM_INIT(holder, "lost try", 'b', 1);
    assert_int_equal(acquire(&near, &holder), 0);
    CLAIM_INIT(held, "lost try", 'a', 1);
    proxy_lose_answer(proxy, OP_CREATE2);
    assert_int_equal(persistently(&far, acquire, &held), DLOCK_EBUSY);
    assert_int_equal(plain_count(BASE "/lost try"), 1);
    assert_int_equal(release(&near, &holder), 0);
}

TEST(lost_create_of_a_waiter_keeps_one_place) {
    struct dlock_wake wake;
    CLAIM_INIT(holder, "lost waiter", 'b', 1);
    assert_int_equal(acquire(&near, &holder), 0);
    CLAIM_INIT(held, "lost waiter", 'a', 1);
    proxy_lose_answer(proxy, OP_CREATE2);
    assert_int_equal(persistently(&far, queue_up, &held), DLOCK_EBUSY);
    assert_int_equal(plain_count(BASE "/lost waiter"), 2);
    while (wake_within(&far, &wake, 50)) { /* the reconnection */
    }
    assert_int_equal(release(&near, &holder), 0);
    assert_true(wake_kind_within(&far, &wake, DLOCK_WAKE_LOOK, 5000));
    assert_int_equal(queue_up(&far, &held), 0);
    assert_int_equal(release(&far, &held), 0);
}

TEST(lost_list_is_asked_again) {
    warm("lost list");
    CLAIM_INIT(held, "lost list", 'a', 1);
    proxy_lose_answer(proxy, OP_CHILDREN);
    assert_int_equal(persistently(&far, acquire, &held), 0);
    assert_int_equal(plain_count(BASE "/lost list"), 1);
    assert_int_equal(release(&far, &held), 0);
}

TEST(lost_delete_is_sent_again) {
    CLAIM_INIT(held, "lost delete", 'a', 1);
    assert_int_equal(acquire(&far, &held), 0);
    proxy_lose_answer(proxy, OP_DELETE);
    assert_int_equal(persistently(&far, release, &held), 0); /* "no such node" is success then */
    assert_int_equal(plain_count(BASE "/lost delete"), 0);
}

TEST(lost_write_proves_nothing) {
    struct dlock_error err = {0};
    CLAIM_INIT(held, "lost write", 'a', 1);
    assert_int_equal(acquire(&far, &held), 0);
    sleep_ms(500);
    proxy_lose_answer(proxy, OP_MULTI);
    assert_int_equal(held_run(backend->renew, &far, &held, 0, TIMEOUT_MS, &err), 0);
    assert_int_equal(held.claim.result, DLOCK_EUNAVAILABLE);
    assert_int_equal(persistently(&far, renew, &held), 0);
    assert_int_equal(release(&far, &held), 0);
}

/* ---- lost answers about permits ---------------------------------------------------------------------------------- */

static void permit_init(struct held *held, const char *name, char letter, int serial) {
    claim_init(held, name, letter, serial);
    held->claim.mode = DLOCK_PERMIT;
    held->claim.limit = 1;
}

static void expect_permits(const char *name, int leases, int queued) {
    char dir[64];
    snprintf(dir, sizeof dir, BASE "/%s/leases", name);
    assert_int_equal(plain_count(dir), leases);
    snprintf(dir, sizeof dir, BASE "/%s/locks", name);
    assert_int_equal(plain_count(dir), queued);
}

/* A lease, or a place in the queue, whose create was not answered is found; one that was not granted is given back. */
TEST(lost_creates_of_permits_are_found) {
    struct dlock_wake wake;
    struct held holder, held;
    for (int i = 0; i < 2; i++) { /* the first round makes the containers */
        permit_init(&held, "lost lease", 'a', i);
        proxy_lose_answer(proxy, OP_CREATE2);
        assert_int_equal(persistently(&far, acquire, &held), 0);
        assert_int_equal(renew(&far, &held), 0);
        expect_permits("lost lease", 1, 0);
        assert_int_equal(release(&far, &held), 0);
        expect_permits("lost lease", 0, 0);
    }
    permit_init(&holder, "lost lease", 'b', 1);
    assert_int_equal(acquire(&near, &holder), 0);
    permit_init(&held, "lost lease", 'a', 10);
    proxy_lose_answer(proxy, OP_CREATE2);
    assert_int_equal(persistently(&far, acquire, &held), DLOCK_EBUSY);
    expect_permits("lost lease", 1, 0);
    proxy_lose_answer(proxy, OP_CREATE2);
    assert_int_equal(persistently(&far, queue_up, &held), DLOCK_EBUSY);
    expect_permits("lost lease", 2, 1);
    while (wake_within(&far, &wake, 50)) { /* the reconnections */
    }
    assert_int_equal(release(&near, &holder), 0);
    assert_true(wake_kind_within(&far, &wake, DLOCK_WAKE_LOOK, 5000));
    proxy_lose_answer(proxy, OP_DELETE); /* of its place, now that it has the permit */
    assert_int_equal(persistently(&far, queue_up, &held), 0);
    expect_permits("lost lease", 1, 0);
    proxy_lose_answer(proxy, OP_DELETE);
    assert_int_equal(persistently(&far, release, &held), 0);
    expect_permits("lost lease", 0, 0);
}

/* A claim that is given up without an answer leaves neither a lease nor a place. */
TEST(unanswered_permits_are_released) {
    struct dlock_error err = {0};
    struct held holder, held;
    permit_init(&holder, "unanswered", 'b', 1);
    assert_int_equal(acquire(&near, &holder), 0);
    for (int i = 0; i < 2; i++) {
        permit_init(&held, "unanswered", 'a', i);
        proxy_hold(proxy, true);
        assert_int_equal(held_run(backend->acquire, &far, &held, i ? DLOCK_CLAIM_QUEUE : 0, 300, &err), 0);
        assert_int_equal(held.claim.result, DLOCK_EUNAVAILABLE);
        proxy_hold(proxy, false);
        assert_int_equal(persistently(&far, release, &held), DLOCK_ELOST);
        expect_permits("unanswered", 1, 0);
    }
    permit_init(&held, "unanswered", 'a', 9);
    assert_int_equal(queue_up(&far, &held), DLOCK_EBUSY);
    expect_permits("unanswered", 2, 1);
    assert_int_equal(release(&far, &held), DLOCK_ELOST);
    expect_permits("unanswered", 1, 0);
    assert_int_equal(release(&near, &holder), 0);
}

/* ---- short outages ----------------------------------------------------------------------------------------------- */

TEST(session_survives_a_short_outage) {
    struct dlock_error err = {0};
    CLAIM_INIT(held, "short outage", 'a', 1);
    CLAIM_INIT(next, "short outage", 'a', 2);
    assert_int_equal(acquire(&far, &held), 0);
    sleep_ms(500);
    proxy_refuse(proxy, true);
    sleep_ms(300);
    int64_t begun = now_ms();
    assert_int_equal(held_run(backend->renew, &far, &held, 0, 300, &err), 0);
    assert_int_equal(held.claim.result, DLOCK_EUNAVAILABLE); /* suspect, not lost */
    assert_int_equal(held_run(backend->acquire, &far, &next, 0, 300, &err), 0);
    assert_int_equal(next.claim.result, DLOCK_EUNAVAILABLE);
    assert_in_range(now_ms() - begun, 500, 2500);
    proxy_refuse(proxy, false);
    assert_int_equal(persistently(&far, renew, &held), 0);
    claim_init(&next, "short outage", 'b', 1);
    assert_int_equal(acquire(&near, &next), DLOCK_EBUSY);
    assert_int_equal(release(&far, &held), 0);
}

/* Changes during the outage are heard of after it. */
TEST(watches_survive_a_short_outage) {
    char path[512];
    struct dlock_wake wake;
    CLAIM_INIT(holder, "watched", 'b', 1);
    CLAIM_INIT(waiter, "watched", 'a', 1);
    CLAIM_INIT(held, "watched too", 'a', 2);
    assert_int_equal(acquire(&near, &holder), 0);
    assert_int_equal(queue_up(&far, &waiter), DLOCK_EBUSY);
    assert_int_equal(acquire(&far, &held), 0);
    assert_int_equal(renew(&far, &held), 0);
    proxy_refuse(proxy, true);
    sleep_ms(200);
    assert_int_equal(release(&near, &holder), 0);
    plain_only(BASE "/watched too", path, sizeof path);
    plain_delete(path);
    proxy_refuse(proxy, false);
    assert_true(wake_kind_within(&far, &wake, DLOCK_WAKE_LOOK, 10000));
    assert_int_equal(persistently(&far, queue_up, &waiter), 0);
    assert_int_equal(persistently(&far, renew, &held), DLOCK_ELOST);
    assert_int_equal(release(&far, &waiter), 0);
}

/* ---- expiry ------------------------------------------------------------------------------------------------------ */

/* Until the server has given the lock to another client. */
static void await_expiry(struct held *next) {
    for (int64_t until = now_ms() + 20000; acquire(&near, next) != 0; sleep_ms(20)) assert_true(now_ms() < until);
}

static void expect_dead(void) {
    struct dlock_error err = {0};
    struct dlock_wake wake;
    assert_true(wake_kind_within(&far, &wake, DLOCK_WAKE_LOST, 10000));
    assert_null(wake.name);
    assert_null(wake.token);
    assert_int_equal(backend->wake(far.conn, &wake, &err), DLOCK_EUNAVAILABLE);
    CLAIM_INIT(held, "dead", 'a', 77);
    int64_t begun = now_ms();
    assert_int_equal(held_run(backend->acquire, &far, &held, 0, TIMEOUT_MS, &err), DLOCK_EUNAVAILABLE);
    assert_int_equal(held_run(backend->renew, &far, &held, 0, TIMEOUT_MS, &err), DLOCK_EUNAVAILABLE);
    assert_int_equal(held_run(backend->release, &far, &held, 0, TIMEOUT_MS, &err), DLOCK_EUNAVAILABLE);
    assert_in_range(now_ms() - begun, 0, 2000); /* at once */
}

/* The grant is over, by the time that we were told, before another client has it; and we learn of that after the
 * partition. */
TEST(holder_is_partitioned) {
    struct dlock_error err = {0};
    CLAIM_INIT(held, "partitioned", 'a', 1);
    CLAIM_INIT(next, "partitioned", 'b', 1);
    assert_int_equal(acquire(&far, &held), 0);
    sleep_ms(500);
    int64_t renewed = now_ms();
    assert_int_equal(renew(&far, &held), 0);
    int64_t valid_until = renewed + held.claim.kept_ms;
    proxy_silence(proxy, true);
    assert_int_equal(held_run(backend->renew, &far, &held, 0, 500, &err), 0);
    await_expiry(&next);
    assert_true(now_ms() >= valid_until);
    assert_true(next.claim.fence > held.claim.fence);
    proxy_silence(proxy, false);
    expect_dead();
    link_end(&far);
    link_new(&far, proxy_port(proxy), "4s", 'a');
    assert_int_equal(release(&far, &held), DLOCK_ELOST);
    assert_int_equal(renew(&far, &held), DLOCK_ELOST);
    assert_int_equal(plain_count(BASE "/partitioned"), 1);
    assert_int_equal(release(&near, &next), 0);
}

/* They may be somewhere else by now: only a new session looks them up. */
TEST(servers_that_stay_away_end_the_session) {
    CLAIM_INIT(held, "stay away", 'a', 1);
    assert_int_equal(acquire(&far, &held), 0);
    proxy_refuse(proxy, true);
    expect_dead();
    proxy_refuse(proxy, false);
}

TEST(waiter_is_partitioned) {
    CLAIM_INIT(holder, "waiting apart", 'b', 1);
    CLAIM_INIT(waiter, "waiting apart", 'a', 1);
    assert_int_equal(acquire(&near, &holder), 0);
    assert_int_equal(queue_up(&far, &waiter), DLOCK_EBUSY);
    proxy_silence(proxy, true);
    for (int64_t until = now_ms() + 20000; plain_count(BASE "/waiting apart") > 1; sleep_ms(50))
        assert_true(now_ms() < until);
    assert_int_equal(release(&near, &holder), 0);
    CLAIM_INIT(next, "waiting apart", 'b', 2);
    assert_int_equal(acquire(&near, &next), 0);
    proxy_silence(proxy, false);
    expect_dead();
    link_end(&far);
    link_new(&far, proxy_port(proxy), "4s", 'a');
    assert_int_equal(queue_up(&far, &waiter), DLOCK_EBUSY); /* the same token, in a new session */
    assert_int_equal(release(&near, &next), 0);
    struct dlock_wake wake;
    assert_true(wake_kind_within(&far, &wake, DLOCK_WAKE_LOOK, 5000));
    assert_int_equal(queue_up(&far, &waiter), 0);
    assert_int_equal(release(&far, &waiter), 0);
}

/* An acquire that is on its way while its session ends. */
TEST(session_ends_while_acquiring) {
    struct task task;
    warm("on its way");
    CLAIM_INIT(held, "on its way", 'a', 1);
    proxy_silence(proxy, true);
    task_begin(&task, backend->acquire, &far, &held, 0);
    sleep_ms(6000);
    proxy_silence(proxy, false);
    assert_int_equal(task_end(&task), DLOCK_EUNAVAILABLE);
    link_end(&far);
    link_new(&far, proxy_port(proxy), "4s", 'a');
    assert_int_equal(acquire(&far, &held), 0);
    assert_int_equal(plain_count(BASE "/on its way"), 1);
    assert_int_equal(release(&far, &held), 0);
}

TEST(nothing_waits_for_a_silent_server) {
    struct dlock_error err = {0};
    struct uri uri;
    struct link late;
    CLAIM_INIT(held, "silent", 'a', 1);
    assert_int_equal(acquire(&far, &held), 0);
    proxy_silence(proxy, true);
    int64_t begun = now_ms();
    held_run(backend->renew, &far, &held, 0, 200, &err);
    held_run(backend->release, &far, &held, 0, 200, &err);
    assert_int_equal(backend->inspect(far.conn, "silent", NULL, NULL, 200, &err), DLOCK_EUNAVAILABLE);
    assert_int_equal(backend->break_lock(far.conn, "silent", 200, &err), DLOCK_EUNAVAILABLE);
    assert_in_range(now_ms() - begun, 700, 2500);
    int64_t took = INT64_MAX;
    for (int i = 0; i < 4 && took > 1000; i++) { /* the quickest of some, since the machine may be busy */
        if (i > 0) {
            proxy_silence(proxy, false);
            link_new(&far, proxy_port(proxy), "4s", 'a');
            proxy_silence(proxy, true);
        }
        begun = now_ms();
        link_end(&far);
        took = now_ms() - begun;
    }
    assert_in_range(took, 0, 1000); /* the library alone would wait 1.5 s, and up to 3 s */
    uri_session(&uri, proxy_port(proxy), "4s");
    begun = now_ms();
    memset(&late, 0, sizeof late);
    assert_int_equal(link_try(&late, &uri.parts, 'c', 0, 1500, &err), DLOCK_EUNAVAILABLE);
    link_end(&late);
    assert_in_range(now_ms() - begun, 1400, 1500 + 2000);
    proxy_silence(proxy, false);
    link_new(&far, shared_port(), "4s", 'a');
}

static int setup_long(void **state) {
    (void)state;
    behind_begin("60s"); /* the connection is kept for the whole test */
    return 0;
}

/* A try that finds the lock busy deletes its node, also within its time. */
TEST_WITH(setup_long, behind_end, a_try_waits_for_no_deletion) {
    struct dlock_error err = {0};
    CLAIM_INIT(holder, "silent deletion", 'b', 1);
    assert_int_equal(acquire(&near, &holder), 0);
    CLAIM_INIT(held, "silent deletion", 'a', 1);
    proxy_hold_after(proxy, OP_DELETE, 1);
    int64_t begun = now_ms();
    (void)held_run(backend->acquire, &far, &held, 0, 1000, &err);
    assert_in_range(now_ms() - begun, 900, 1000 + 4000);
    assert_int_equal(held.claim.result, DLOCK_EUNAVAILABLE);
    proxy_hold_after(proxy, 0, 0);
    proxy_hold(proxy, false);
    (void)release(&far, &held);
    assert_int_equal(plain_count(BASE "/silent deletion"), 1);
    assert_int_equal(release(&near, &holder), 0);
}

TESTS(setup, behind_end, backend_load, NULL)
