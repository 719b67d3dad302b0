/* Waiting: joining the queue while another call has the row, and which waiters are considered alive. */
#include "queue_scene.h"

#include <pthread.h>

/* The first waiter's process is gone. */
TEST(dead_waiters_are_skipped) {
    SCOPED_SCENE s;
    struct dlock_wake wake;
    scene_begin(&s, "dead");
    link_end(&s.first_ear);
    sql_wait("SELECT count(*) FROM (SELECT {}.lives('%s')) x(lives) WHERE NOT lives", s.one.token);
    assert_int_equal(release(&s.holder, &s.held), 0);
    wake_get(&s.second_ear, &wake);
    assert_granted(&wake, &s.two, 0);
    assert_int_equal(waiting("dead"), 0);
}

static void *release_in_thread(void *arg) {
    struct scene *s = arg;
    s->held.claim.result = release(&s->holder, &s->held);
    return NULL;
}

static void *acquire_in_thread(void *arg) {
    struct scene *s = arg;
    s->held.claim.result = acquire(&s->holder, &s->held);
    return NULL;
}

/* While `call` waits for the row, which it has seen without waiters, the second waiter joins the queue. Returns when
 * that was. */
static int64_t join_during(struct scene *s, void *(*call)(void *), const char *function) {
    const char *name = s->held.claim.name;
    char text[512];
    pthread_t thread;
    PGconn *plain = plain_open();
    sql("DELETE FROM {}.queue WHERE name = '%s'", name);
    sql("UPDATE {}.locks SET awaited = false WHERE name = '%s'", name);
    plain_run(plain, "SET search_path = {}, pg_temp");
    plain_run(plain, "BEGIN");
    snprintf(text, sizeof text, "SELECT FROM locks WHERE name = '%s' FOR UPDATE", name);
    plain_run(plain, text);
    assert_int_equal(pthread_create(&thread, NULL, call, s), 0);
    sql_wait("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid IN (SELECT pid FROM pg_stat_activity WHERE query "
             "LIKE '%%{}%%%s%%')",
             function);
    snprintf(text, sizeof text, "SELECT enqueue(ROW('%s', NULL, '%s', 10000, 0, 0, false)::queue)", name, s->two.token);
    plain_run(plain, text);
    int64_t joined_us = sql_number("SELECT {}.clock_us()");
    plain_run(plain, "COMMIT");
    pthread_join(thread, NULL);
    PQfinish(plain);
    return joined_us;
}

/* A release that saw only the queue from before its wait would wake no waiter; one with a time from before its wait
 * would seem older than the answer that says so. */
TEST(joining_during_a_release) {
    static const char *const statements[] = {"give", "release"}; /* the short way, the long one */
    static const char *const names[] = {"during", "during, too"};
    struct scene s;
    struct dlock_wake wake;
    for (size_t i = 0; i < 2; i++) {
        scene_begin(&s, names[i]);
        strcpy(pg_of(&s.holder)->wanted, i == 0 ? "" : names[i]);
        int64_t joined_us = join_during(&s, release_in_thread, statements[i]);
        assert_int_equal(s.held.claim.result, 0);
        wake_get(&s.second_ear, &wake);
        assert_granted(&wake, &s.two, s.held.claim.fence);
        assert_true(wake.server_us > joined_us);
        scene_end(&s);
    }
}

/* One who asks, and finds it free, would pass who joined first. */
TEST(joining_during_an_acquire) {
    static const char *const statements[] = {"take", "acquire"}; /* the short way, the long one */
    static const char *const names[] = {"meanwhile", "meanwhile, too"};
    struct scene s;
    struct dlock_wake wake;
    for (size_t i = 0; i < 2; i++) {
        scene_begin(&s, names[i]);
        assert_int_equal(release(&s.first, &s.one), DLOCK_ELOST);
        assert_int_equal(release(&s.second, &s.two), DLOCK_ELOST);
        assert_int_equal(release(&s.holder, &s.held), 0);
        strcpy(pg_of(&s.holder)->wanted, i == 0 ? "" : names[i]);
        int64_t joined_us = join_during(&s, acquire_in_thread, statements[i]);
        assert_int_equal(s.held.claim.result, DLOCK_EBUSY);
        wake_get(&s.second_ear, &wake);
        assert_granted(&wake, &s.two, 0);
        assert_true(wake.server_us > joined_us);
        scene_end(&s);
    }
}

/* A call that waits for the row in order to join the queue is not passed: a free lock is not taken before its turn. But
 * any client can take the turn, and keep it: that only delays. */
TEST(a_turn_is_waited_for_but_not_for_long) {
    SCOPED_SCENE s;
    struct dlock_wake wake;
    scene_begin(&s, "turn");
    PGconn *stranger = stranger_open();
    plain_run(stranger, "SELECT pg_advisory_lock(hashtextextended(encode('turn', 'hex'), 1))");
    assert_int_equal(release(&s.first, &s.one), DLOCK_ELOST);
    int64_t began = now_ms();
    assert_int_equal(queue_up(&s.first, &s.one), DLOCK_EBUSY);
    assert_true(now_ms() - began >= 90);
    assert_int_equal(release(&s.holder, &s.held), 0);
    wake_get(&s.second_ear, &wake);
    assert_granted(&wake, &s.two, 0);
    assert_int_equal(release(&s.second, &s.two), 0);
    wake_get(&s.first_ear, &wake);
    assert_granted(&wake, &s.one, 0);
    assert_int_equal(release(&s.first, &s.one), 0);
    began = now_ms();
    held_new(&s.held, &s.holder, "turn");
    assert_int_equal(acquire(&s.holder, &s.held), 0);
    assert_true(now_ms() - began >= 90);
    stranger_end(stranger);
}

/* A release may have the row already, and so waits for no turn. */
TEST(a_release_needs_no_turn) {
    SCOPED_SCENE s;
    SCOPED_PLAIN *plain = plain_open();
    scene_begin(&s, "no turn");
    plain_run(plain, "BEGIN");
    plain_run(plain, "SELECT pg_advisory_xact_lock({}.turn_key('no turn'))");
    assert_int_equal(release(&s.first, &s.one), DLOCK_ELOST);
    assert_int_equal(waiting("no turn"), 1);
    assert_int_equal(release(&s.holder, &s.held), 0);
}

TESTS(NULL, NULL, site_begin, site_end)
