/* Beginnings and ends: opening, closing, and callbacks that are running then. */
#include "fixture.h"

#include <sys/eventfd.h>
#include <unistd.h>

/* ---- opening ----------------------------------------------------------------------------------------------------- */

TEST(opening_shows_what_is_wrong_at_once) {
    dlock_client *client = NULL;
    struct dlock_error err = {0, ""};
    fake_fault(FAKE_CONNECT, FAKE_AUTH, 1);
    assert_int_equal(dlock_open("fake:", NULL, &client, &err), DLOCK_EAUTH);
    assert_int_equal(err.code, DLOCK_EAUTH);
    fake_fault(FAKE_CONNECT, FAKE_PROTO, 1);
    assert_int_equal(dlock_open("fake:", NULL, &client, &err), DLOCK_EPROTO);
    fake_server_down(true);
    assert_int_equal(dlock_open("fake:", NULL, &client, &err), DLOCK_EUNAVAILABLE);
    assert_null(client);
    fake_server_down(false);
    assert_int_equal(dlock_open("nosuchscheme:", NULL, &client, &err), DLOCK_ENOBACKEND);
    assert_int_equal(dlock_open("fake:?lease=soon", NULL, &client, &err), DLOCK_EINVAL);
    assert_int_equal(dlock_open(NULL, NULL, &client, &err), DLOCK_EINVAL);
    assert_int_equal(dlock_open("fake:", NULL, NULL, &err), DLOCK_EINVAL);
    assert_null(client);
}

TEST(a_lazy_client_connects_when_it_must) {
    struct dlock_client_options options = DLOCK_CLIENT_OPTIONS_INIT;
    dlock_client *client = NULL;
    options.flags = DLOCK_CLIENT_LAZY;
    fake_server_down(true);
    assert_int_equal(dlock_open("fake:", &options, &client, NULL), 0);
    assert_int_equal(fake_log_size(), 0);
    dlock_lock *lock = lock_new(client, "n");
    assert_int_equal(dlock_acquire(lock, 0, NULL), DLOCK_EUNAVAILABLE);
    fake_server_down(false);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    lock_end(lock);
    dlock_close(client);
    fake_log_clear();
    assert_int_equal(dlock_open("fake:", &options, &client, NULL), 0);
    dlock_close(client);
    assert_int_equal(fake_log_size(), 0);
}

/* ---- closing ----------------------------------------------------------------------------------------------------- */

TEST(closing_with_a_server_that_is_gone_ends_in_time) {
    dlock_client *client = client_new("fake:?timeout=2s");
    dlock_lock *held = lock_new(client, "held"), *n = lock_new(client, "n");
    struct actor *waiter = actor_new(), *closer = actor_new();
    fake_other_acquire("n", 600000);
    assert_int_equal(dlock_acquire(held, 0, NULL), 0);
    begin_acquire(waiter, n, -1);
    fake_server_down(true);
    begin_close(closer, client);
    assert_true(wait_for(closer, 2500) <= 2100000);
    fake_settle();
    assert_int_equal(result(waiter), DLOCK_ECANCELED);
    assert_int_equal(fake_connections(), 0);
    fake_server_forget();
}

TEST(closing_while_everything_hangs_ends_in_time) {
    dlock_client *client = client_new("fake:?timeout=2s");
    dlock_lock *held = lock_new(client, "held"), *n = lock_new(client, "n");
    struct actor *waiter = actor_new(), *closer = actor_new();
    assert_int_equal(dlock_acquire(held, 0, NULL), 0);
    fake_advance_ms(3000);
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW, 100);
    fake_fault(FAKE_RENEW, FAKE_SLOW, 100);
    fake_fault(FAKE_RELEASE, FAKE_SLOW, 100);
    begin_acquire(waiter, n, -1);
    fake_advance_ms(400);
    begin_close(closer, client);
    assert_true(wait_for(closer, 5000) <= 2100000);
    fake_settle();
    assert_int_equal(result(waiter), DLOCK_ECANCELED);
    assert_int_equal(fake_connections(), 0);
    fake_server_forget();
}

TEST(no_callback_comes_after_the_close) {
    struct lost_count lost = {0};
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = watched_lock(client, "n", &lost);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_server_forget();
    client_end(client);
    fake_advance_ms(3 * LEASE_MS);
    assert_int_equal(lost.calls, 0);
}

/* ---- callbacks --------------------------------------------------------------------------------------------------- */

struct busy_callback {
    struct lost_count count;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool stay, inside;
};

static void stay_inside(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    struct busy_callback *busy = arg;
    pthread_mutex_lock(&busy->mutex);
    busy->inside = true;
    while (busy->stay) pthread_cond_wait(&busy->cond, &busy->mutex);
    busy->inside = false;
    pthread_mutex_unlock(&busy->mutex);
    count_lost(lock, err, &busy->count);
}

static void let_out(struct busy_callback *busy) {
    pthread_mutex_lock(&busy->mutex);
    assert_true(busy->inside);
    busy->stay = false;
    pthread_cond_signal(&busy->cond);
    pthread_mutex_unlock(&busy->mutex);
    fake_settle();
}

static dlock_lock *lost_with_a_callback_that_stays(dlock_client *client, struct busy_callback *busy) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.on_lost = stay_inside;
    options.on_lost_arg = busy;
    pthread_mutex_init(&busy->mutex, NULL);
    pthread_cond_init(&busy->cond, NULL);
    dlock_lock *lock = lock_new_with(client, "n", &options);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_server_forget();
    fake_advance_ms(THIRD_MS);
    return lock;
}

/* The callback's time does not count: the close releases held locks even if the callback took longer than `timeout`. */
TEST(closing_releases_after_a_long_callback) {
    struct busy_callback busy = {.stay = true};
    struct actor *closer = actor_new();
    dlock_client *client = client_new("fake:?timeout=2s");
    dlock_lock *other = lock_new(client, "other");
    lost_with_a_callback_that_stays(client, &busy);
    assert_int_equal(dlock_acquire(other, 0, NULL), 0);
    begin_close(closer, client);
    fake_advance_ms(2500);
    assert_false(over(closer));
    assert_string_not_equal(fake_holder("other").token, "");
    let_out(&busy);
    wait_for(closer, 100);
    assert_string_equal(fake_holder("other").token, "");
}

/* The keeper has leases to look after, whatever the application's callbacks do. */
TEST(a_callback_that_stays_delays_no_renewal) {
    struct busy_callback busy = {.stay = true};
    dlock_client *client = client_new("fake:");
    dlock_lock *other = lock_new(client, "other");
    lost_with_a_callback_that_stays(client, &busy);
    assert_int_equal(dlock_acquire(other, 0, NULL), 0);
    fake_advance_ms(3 * LEASE_MS);
    assert_true(dlock_held(other));
    let_out(&busy);
}

/* Those of other handles do, wherever they stand in the line. */
TEST(a_callback_of_a_freed_handle_does_not_come) {
    for (int freed = 0; freed < 2; freed++) {
        struct busy_callback busy = {.stay = true};
        struct lost_count lost[2] = {{0}, {0}};
        dlock_client *client = client_new("fake:");
        dlock_lock *locks[2];
        lost_with_a_callback_that_stays(client, &busy);
        for (int i = 0; i < 2; i++) {
            locks[i] = watched_lock(client, i ? "o" : "m", &lost[i]);
            assert_int_equal(dlock_acquire(locks[i], 0, NULL), 0);
        }
        fake_server_forget();
        fake_advance_ms(THIRD_MS);
        lock_end(locks[freed]);
        let_out(&busy);
        assert_int_equal(lost[freed].calls, 0);
        assert_int_equal(lost[1 - freed].calls, 1);
        client_end(client);
    }
}

/* The answer says that the server has kept a grant that is lost here, and only the close can release it. With a lease
 * this short the last renewal is soon in flight when the grant ends. */
TEST(closing_while_a_renewal_comes_too_late_releases) {
    struct actor *holder = actor_new(), *closer = actor_new();
    for (int attempt = 0; attempt < 40; attempt++) {
        struct lost_count lost = {0};
        struct dlock_options options = {
            .size = sizeof options, .lease_ms = 100, .on_lost = count_lost, .on_lost_arg = &lost};
        dlock_client *client = client_new("fake:");
        dlock_lock *lock = lock_new_with(client, "n", &options);
        assert_int_equal(acquire_by(holder, lock, 0), 0);
        fake_fault(FAKE_RENEW, FAKE_SLOW_AFTER, 1000);
        while (lost.calls == 0) assert_true(fake_advance_next());
        fake_faults_clear();
        bool on_its_way = fake_slow_waiting() == 1;
        begin_close(closer, client);
        assert_int_equal(over(closer), !on_its_way);
        fake_slow_go();
        fake_settle();
        assert_int_equal(result(closer), 0);
        if (on_its_way) return; /* the teardown finds what is left at the server */
        fake_advance_ms(200);
    }
    fail_msg("no renewal was on its way when its grant ended");
}

static void no_answer(struct dlock_claim *claim) {
    claim->result = DLOCK_EUNAVAILABLE;
}

/* As above, and the last release, which is sent when the keeper and its descriptors are gone, has no answer: the
 * application may have opened others by then, with the same numbers. */
TEST(closing_writes_to_no_descriptor_that_it_has_closed) {
    enum { OTHERS = 64 };
    struct actor *holder = actor_new(), *closer = actor_new();
    int fds[OTHERS];
    for (int attempt = 0; attempt < 40; attempt++) {
        struct lost_count lost = {0};
        dlock_client *client = client_new("fakesession:?timeout=1s");
        dlock_lock *lock = watched_lock_with(client, "n", 0, 150, &lost);
        assert_int_equal(acquire_by(holder, lock, 0), 0);
        fake_edit(FAKE_RENEW, no_answer, 2); /* the next one is sent shortly before the end, or never */
        fake_fault(FAKE_RENEW, FAKE_SLOW_AFTER, 1000);
        while (lost.calls == 0) assert_true(fake_advance_next());
        fake_faults_clear();
        bool on_its_way = fake_slow_waiting() == 1;
        begin_close(closer, client);
        if (on_its_way) fake_fault(FAKE_RELEASE, FAKE_SLOW, 1);
        fake_slow_go();
        fake_settle();
        assert_int_equal(fake_slow_waiting(), on_its_way);
        for (int i = 0; i < OTHERS; i++) fds[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        fake_server_cut();
        wait_for(closer, 1100);
        for (int i = 0; i < OTHERS; i++) {
            eventfd_t count;
            assert_int_equal(eventfd_read(fds[i], &count), -1);
            close(fds[i]);
        }
        if (on_its_way) return;
        fake_advance_ms(200);
    }
    fail_msg("no renewal was on its way when its grant ended");
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
