/* The events of a client: what happens to its locks, told in order, in its worker thread. */
#include "fixture.h"

#include <pthread.h>
#include <stdio.h>

static char told[4096];
static pthread_mutex_t telling = PTHREAD_MUTEX_INITIALIZER;
static struct barrier *slow; /* the next event waits for it */
static unsigned dropped;

static const char *const words[] = {
#define X(name, number, word, meaning) [number] = word,
    DLOCK_EVENTS(X)
#undef X
};

/* "kind name fence? waited/held in ms", one a line */
static void note(const struct dlock_event *event, void *arg) {
    (void)arg;
    struct barrier *barrier = slow;
    slow = NULL;
    if (barrier) barrier_wait(barrier);
    pthread_mutex_lock(&telling);
    size_t used = strlen(told);
    dropped += event->dropped;
    snprintf(told + used, sizeof told - used, "%s%s %s%s", used ? "; " : "", words[event->kind], event->name,
             event->fence ? " fence" : "");
    used = strlen(told);
    if (event->waited_us >= 0) snprintf(told + used, sizeof told - used, " waited %d", (int)(event->waited_us / 1000));
    used = strlen(told);
    if (event->held_us >= 0) snprintf(told + used, sizeof told - used, " held %d", (int)(event->held_us / 1000));
    pthread_mutex_unlock(&telling);
}

static dlock_client *noting_client(const char *uri, uint32_t flags) {
    dlock_client *client;
    struct dlock_client_options options = DLOCK_CLIENT_OPTIONS_INIT;
    options.flags = flags;
    options.event = note;
    told[0] = '\0';
    slow = NULL;
    dropped = 0;
    assert_int_equal(dlock_open(uri, &options, &client, NULL), 0);
    return client;
}

static void assert_told(const char *what) {
    fake_settle();
    pthread_mutex_lock(&telling);
    assert_string_equal(told, what);
    told[0] = '\0';
    pthread_mutex_unlock(&telling);
}

TEST(grants_and_releases_with_their_times) {
    dlock_client *client = noting_client("fakefull:", DLOCK_CLIENT_MANUAL);
    dlock_lock *lock = lock_new(client, "n");
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0); /* a re-entry is not told */
    fake_advance_ms(70);
    assert_int_equal(dlock_release(lock, NULL), 0);
    assert_told("granted n fence waited 0");
    assert_int_equal(dlock_release(lock, NULL), 0);
    assert_told("released n fence held 70");
    lock_end(lock);
    dlock_close(client);
}

TEST(waits_that_are_given_up) {
    dlock_client *client = noting_client("fakefull:", 0);
    dlock_lock *lock = lock_new(client, "n");
    struct actor *actor = actor_new();
    fake_other_acquire("n", 60000);
    assert_int_equal(dlock_acquire(lock, 0, NULL), DLOCK_EBUSY);
    assert_told("given-up n waited 0");
    begin_acquire(actor, lock, 500);
    fake_settle();
    assert_told("waiting n waited 0");
    wait_for(actor, 1000);
    assert_int_equal(result(actor), DLOCK_ETIMEDOUT);
    assert_told("given-up n waited 500");
    lock_end(lock);
    dlock_close(client);
}

TEST(a_loss_after_late_renewals) {
    dlock_client *client = noting_client("fakefull:", 0);
    dlock_lock *lock = lock_new(client, "n");
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_told("granted n fence waited 0");
    fake_server_down(true);
    fake_advance_ms(LEASE_MS);
    fake_settle();
    pthread_mutex_lock(&telling);
    assert_memory_equal(told, "late n fence", strlen("late n fence"));
    const char *lost = strstr(told, "; lost n fence held");
    assert_non_null(lost);
    assert_null(strstr(lost, "released"));
    told[0] = '\0';
    pthread_mutex_unlock(&telling);
    fake_server_down(false);
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
    dlock_close(client);
}

TEST(a_slow_listener_delays_no_renewal_and_learns_what_was_dropped) {
    enum { MANY = 200 };
    struct barrier barrier = BARRIER;
    dlock_client *client = noting_client("fakefull:", 0);
    dlock_lock *lock = lock_new(client, "n"), *held = lock_new(client, "held");
    slow = &barrier;
    assert_int_equal(dlock_acquire(held, 0, NULL), 0);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
        assert_int_equal(dlock_release(lock, NULL), 0);
    }
    fake_advance_ms(2 * LEASE_MS);
    const bool is_held = dlock_held(held);
    barrier_lift(&barrier);
    assert_true(is_held);
    assert_int_equal(dlock_release(held, NULL), 0);
    fake_settle();
    assert_int_equal(dropped, 2 * MANY + 1 - 256 - 1); /* one was in the call meanwhile */
    lock_end(lock);
    dlock_close(client);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
