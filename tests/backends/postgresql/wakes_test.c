/* Connections that listen, and the wake-ups that arrive there. */
#include "queue_scene.h"

/* A new listener does not wait for the end of the old one, and one of the two is enough to be alive. */
TEST(listeners_of_one_client) {
    SCOPED_SCENE s;
    struct dlock_wake wake;
    scene_begin(&s, "twice");
    LINK(third, 'b');
    const int old = PQbackendPID(pg_of(&s.first_ear)->link);
    link_listen(&third);
    assert_int_equal(sql_number("SELECT count(*) FROM pg_stat_activity WHERE pid = %d", old), 1);
    link_end(&s.first_ear);
    assert_int_equal(release(&s.holder, &s.held), 0);
    wake_get(&third, &wake);
    assert_granted(&wake, &s.one, 0);
}

/* Waiters that live stay in the table, and most of the others go. */
TEST(listeners_that_ended_are_forgotten) {
    struct link other;
    EAR(ear, 'b');
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

/* The wish goes along with the place in the queue, from where it also counts as another client that asks. */
TEST(who_lingers_after_a_hand_over_is_told) {
    struct dlock_wake wake;
    LINK(link, 'b');
    EAR(ear, 'b');
    LINK(other, 'c');
    EAR(other_ear, 'c');
    HELD(held, &link, "linger");
    HELD(mine, &link, "linger");
    HELD(theirs, &other, "linger");
    assert_int_equal(acquire_lingering(&link, &held, 0), 0);
    assert_int_equal(acquire(&link, &mine), DLOCK_EBUSY); /* its own client's */
    assert_true(wake_none(&ear));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(acquire_lingering(&other, &theirs, DLOCK_CLAIM_QUEUE), DLOCK_EBUSY);
        assert_wanted(&ear, "linger");
    }
    assert_int_equal(release(&link, &held), 0);
    wake_get(&other_ear, &wake);
    assert_granted(&wake, &theirs, held.claim.fence);
    assert_int_equal(acquire(&link, &mine), DLOCK_EBUSY);
    assert_wanted(&other_ear, "linger");
    /* A holder that did not ask to be told is not. */
    assert_int_equal(acquire(&other, &theirs), 0);
    assert_int_equal(acquire(&link, &mine), DLOCK_EBUSY);
    assert_true(wake_none(&other_ear));
}

TEST(the_listeners_end_shows) {
    struct dlock_wake wake;
    struct dlock_error err;
    int rc = 0;
    EAR(ear, 'b');
    sql("SELECT pg_terminate_backend(%d)", PQbackendPID(pg_of(&ear)->link));
    for (int64_t until = now_ms() + 5000; rc == 0 && now_ms() < until; sleep_ms(10))
        rc = backend->wake(ear.conn, &wake, &err);
    assert_int_equal(rc, DLOCK_EUNAVAILABLE);
}

TESTS(NULL, NULL, site_begin, site_end)
