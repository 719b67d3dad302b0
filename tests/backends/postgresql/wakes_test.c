/* Connections that listen, and the wake-ups that arrive there. */
#include "queue_scene.h"

/* A new listener does not wait for the end of the old one, and one of the two is enough to be alive. */
TEST(listeners_of_one_client) {
    struct scene s;
    struct link third;
    struct dlock_wake wake;
    scene_begin(&s, "twice");
    link_new(&third, 'b');
    const int old = PQbackendPID(pg_of(&s.first_ear)->link);
    link_listen(&third);
    assert_int_equal(sql_number("SELECT count(*) FROM pg_stat_activity WHERE pid = %d", old), 1);
    link_end(&s.first_ear);
    assert_int_equal(release(&s.holder, &s.held), 0);
    wake_get(&third, &wake);
    assert_granted(&wake, &s.one, 0);
    link_end(&third);
    scene_end(&s);
}

/* Waiters that live stay in the table, and most of the others go. */
TEST(listeners_that_ended_are_forgotten) {
    struct link ear, other;
    link_new(&ear, 'b');
    link_listen(&ear);
    sql("INSERT INTO {}.listeners (client, channel, secret) SELECT 'ended-' || n, 'ended-' || n, '' FROM "
        "generate_series(1, 100) "
        "n");
    for (int i = 0; i < 40; i++) {
        link_new(&other, (char)('c' + i % 2));
        link_listen(&other);
        link_end(&other);
    }
    assert_true(sql_number("SELECT count(*) FROM {}.listeners") < 20);
    assert_int_equal(sql_number("SELECT count(*) FROM {}.listeners WHERE client = '%s'", ear.client), 1);
    link_end(&ear);
}

static int acquire_lingering(struct link *link, struct held *held, uint32_t flags) {
    struct dlock_error err;
    assert_int_equal(held_run(backend->acquire, link, held, flags | DLOCK_CLAIM_LINGER, TIMEOUT_MS, &err), 0);
    return held->claim.result;
}

static void assert_wanted(struct link *ear, const char *name) {
    struct dlock_wake wake;
    wake_get(ear, &wake);
    assert_int_equal(wake.kind, DLOCK_WAKE_WANTED);
    assert_string_equal(wake.name, name);
    assert_true(wake_none(ear));
}

/* A holder that may linger is told of every other client that asks; other holders are not. */
TEST(who_lingers_is_told) {
    struct link link, ear, other, other_ear;
    struct held held, mine, theirs, shared;
    struct dlock_wake wake;
    link_new(&link, 'b');
    link_new(&ear, 'b');
    link_new(&other, 'c');
    link_new(&other_ear, 'c');
    link_listen(&ear);
    link_listen(&other_ear);
    held_new(&held, &link, "linger");
    held_new(&mine, &link, "linger");
    held_new(&theirs, &other, "linger");
    held_new(&shared, &other, "linger");
    shared.claim.mode = DLOCK_SHARED;
    assert_int_equal(acquire_lingering(&link, &held, 0), 0);
    assert_int_equal(acquire(&link, &mine), DLOCK_EBUSY);
    assert_true(wake_none(&ear));
    assert_int_equal(acquire(&other, &theirs), DLOCK_EBUSY);
    assert_wanted(&ear, "linger");
    assert_int_equal(acquire(&other, &shared), DLOCK_EBUSY);
    assert_wanted(&ear, "linger");
    assert_int_equal(acquire_lingering(&other, &theirs, DLOCK_CLAIM_QUEUE), DLOCK_EBUSY);
    assert_wanted(&ear, "linger");
    assert_int_equal(acquire_lingering(&other, &theirs, DLOCK_CLAIM_QUEUE), DLOCK_EBUSY);
    assert_wanted(&ear, "linger");
    /* The wish goes along with the place in the queue. */
    assert_int_equal(release(&link, &held), 0);
    wake_get(&other_ear, &wake);
    assert_granted(&wake, &theirs, held.claim.fence);
    assert_int_equal(acquire(&link, &mine), DLOCK_EBUSY);
    assert_wanted(&other_ear, "linger");
    /* A holder that did not ask to be told is not. */
    assert_int_equal(acquire(&other, &theirs), 0);
    assert_int_equal(acquire(&link, &mine), DLOCK_EBUSY);
    assert_true(wake_none(&other_ear));
    link_end(&link);
    link_end(&ear);
    link_end(&other);
    link_end(&other_ear);
}

/* Several wake-ups are read one by one, until none is left. */
TEST(many_wakes) {
    enum { N = 50 };
    static struct held held[N], waiter[N];
    static char names[N][16];
    struct link holder, waiting_link, ear;
    struct dlock_wake wake;
    struct dlock_error err;
    struct dlock_claim *claims[N];
    link_new(&holder, 'a');
    link_new(&waiting_link, 'b');
    link_new(&ear, 'b');
    link_listen(&ear);
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "many-%02d", i);
        held_new(&held[i], &holder, names[i]);
        held_new(&waiter[i], &waiting_link, names[i]);
        assert_int_equal(acquire(&holder, &held[i]), 0);
        assert_int_equal(queue_up(&waiting_link, &waiter[i]), DLOCK_EBUSY);
        claims[i] = &held[i].claim;
    }
    assert_int_equal(backend->release(holder.conn, claims, N, TIMEOUT_MS, &err), 0);
    for (int i = 0; i < N; i++) {
        wake_get(&ear, &wake);
        assert_string_equal(wake.name, names[i]);
        assert_string_equal(wake.token, waiter[i].token);
    }
    assert_true(wake_none(&ear));
    link_end(&holder);
    link_end(&waiting_link);
    link_end(&ear);
}

TEST(the_listeners_end_shows) {
    struct link ear;
    struct dlock_wake wake;
    struct dlock_error err;
    int rc = 0;
    link_new(&ear, 'b');
    link_listen(&ear);
    sql("SELECT pg_terminate_backend(%d)", PQbackendPID(pg_of(&ear)->link));
    for (int64_t until = now_ms() + 5000; rc == 0 && now_ms() < until; sleep_ms(10))
        rc = backend->wake(ear.conn, &wake, &err);
    assert_int_equal(rc, DLOCK_EUNAVAILABLE);
    link_end(&ear);
}

TESTS(NULL, NULL, site_begin, site_end)
