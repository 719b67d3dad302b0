/* The server is restarted, or crashes, while locks are held and waited for; through the public interface. */
#include "support/api.h"
#include "support/clock.h"
#include "support/test.h"

#include <libpq-fe.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static struct dlock_error err;

static void control(const char *how) {
    char command[512];
    snprintf(command, sizeof command, "$DLOCK_TEST_CONTROL %s", how);
    assert_int_equal(system(command), 0);
}

static dlock_client *client_new(const char *lease) {
    return api_client("%s?lease=%s&timeout=2s", getenv("DLOCK_TEST_SERVER"), lease);
}

static dlock_lock *lock_new(dlock_client *client, const char *name, enum dlock_mode mode, dlock_callback on_lost,
                            void *arg) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.mode = mode;
    options.limit = mode == DLOCK_PERMIT;
    options.owner = DLOCK_OWNER_HANDLE;
    options.on_lost = on_lost;
    options.on_lost_arg = arg;
    return api_lock(client, name, &options);
}

struct waiter {
    dlock_client *client;
    dlock_lock *lock;
    pthread_t thread;
    int result;
    struct dlock_error err;
};

static void *wait_in_thread(void *arg) {
    struct waiter *waiter = arg;
    waiter->result = dlock_acquire(waiter->lock, 60000, &waiter->err);
    return NULL;
}

static void waiter_begin(struct waiter *waiter, const char *name, enum dlock_mode mode) {
    waiter->client = client_new("20s");
    waiter->lock = lock_new(waiter->client, name, mode, NULL, NULL);
    assert_int_equal(pthread_create(&waiter->thread, NULL, wait_in_thread, waiter), 0);
    sleep_ms(300);
}

static void waiter_end(struct waiter *waiter) {
    dlock_free(waiter->lock);
    dlock_close(waiter->client);
}

/* Held in one mode, and waited for in one that it excludes. */
static void held_and_waited_for(const char *name, enum dlock_mode mode, enum dlock_mode wish, const char *how) {
    dlock_client *holder = client_new("20s"), *third = client_new("20s");
    dlock_lock *lock = lock_new(holder, name, mode, NULL, NULL), *late = lock_new(third, name, wish, NULL, NULL);
    struct waiter waiter;
    if (dlock_acquire(lock, 0, &err) != 0) fail_msg("%s", err.message);
    uint64_t fence = dlock_fence(lock);
    waiter_begin(&waiter, name, wish);
    control(how);
    /* The grant is still there. */
    assert_int_equal(dlock_acquire(late, 1500, &err), DLOCK_ETIMEDOUT);
    assert_true(dlock_held(lock));
    assert_false(dlock_held(waiter.lock));
    if (dlock_release(lock, &err) != 0) fail_msg("%s", err.message);
    pthread_join(waiter.thread, NULL);
    if (waiter.result != 0) fail_msg("%s", waiter.err.message);
    assert_true(dlock_fence(waiter.lock) > fence);
    if (dlock_release(waiter.lock, &err) != 0) fail_msg("%s", err.message);
    dlock_free(lock);
    dlock_free(late);
    dlock_close(holder);
    dlock_close(third);
    waiter_end(&waiter);
}

TEST(grants_and_places_survive) {
    static const char restart[] = "restart -m fast", crash[] = "restart -m immediate";
    held_and_waited_for("restart", DLOCK_EXCLUSIVE, DLOCK_EXCLUSIVE, restart);
    held_and_waited_for("crash", DLOCK_EXCLUSIVE, DLOCK_EXCLUSIVE, crash);
    held_and_waited_for("crash-reader", DLOCK_SHARED, DLOCK_EXCLUSIVE, crash);
    held_and_waited_for("crash-permit", DLOCK_PERMIT, DLOCK_PERMIT, crash);
}

static void count_loss(dlock_lock *lock, const struct dlock_error *why, void *arg) {
    (void)lock;
    if (why->code == DLOCK_ELOST) __atomic_add_fetch((int *)arg, 1, __ATOMIC_SEQ_CST);
}

/* Away for longer than the lease: the holder learns of its loss, and the waiter gets the lock afterwards. */
TEST(an_outage) {
    int losses = 0;
    dlock_client *holder = client_new("1s");
    dlock_lock *lock = lock_new(holder, "outage", DLOCK_EXCLUSIVE, count_loss, &losses);
    struct waiter waiter;
    if (dlock_acquire(lock, 0, &err) != 0) fail_msg("%s", err.message);
    uint64_t fence = dlock_fence(lock);
    waiter_begin(&waiter, "outage", DLOCK_EXCLUSIVE);
    control("stop -m fast");
    sleep_ms(1500);
    assert_int_equal(__atomic_load_n(&losses, __ATOMIC_SEQ_CST), 1);
    assert_false(dlock_held(lock));
    control("restart"); /* a mere start would forget its options */
    pthread_join(waiter.thread, NULL);
    if (waiter.result != 0) fail_msg("%s", waiter.err.message);
    assert_true(dlock_fence(waiter.lock) > fence);
    assert_int_equal(dlock_release(lock, &err), DLOCK_ELOST);
    if (dlock_release(waiter.lock, &err) != 0) fail_msg("%s", err.message);
    dlock_free(lock);
    dlock_close(holder);
    waiter_end(&waiter);
}

static void run(PGconn *plain, const char *statement) {
    PGresult *result = PQexec(plain, statement);
    if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK)
        fail_msg("%s: %s", statement, PQerrorMessage(plain));
    PQclear(result);
}

/* mode=session: the fence comes from what another session has written ahead, and which is not on disk. */
TEST(a_crash_repeats_no_fence) {
    SCOPED_CLIENT *client = api_client("%s?mode=session&schema=crashing&timeout=10s", getenv("DLOCK_TEST_SERVER"));
    SCOPED_LOCK *lock = lock_new(client, "fences", DLOCK_EXCLUSIVE, NULL, NULL);
    PGconn *plain = PQconnectdb(getenv("DLOCK_TEST_SERVER"));
    if (dlock_acquire(lock, 0, &err) != 0) fail_msg("%s", err.message);
    if (dlock_release(lock, &err) != 0) fail_msg("%s", err.message);
    run(plain, "ALTER SYSTEM SET wal_writer_delay = '10s'");
    run(plain, "SELECT pg_reload_conf()");
    run(plain, "CHECKPOINT"); /* after it the next draw writes */
    run(plain, "BEGIN");
    run(plain, "SELECT nextval('crashing.fences')");
    if (dlock_acquire(lock, 0, &err) != 0) fail_msg("%s", err.message);
    uint64_t fence = dlock_fence(lock);
    control("restart -m immediate");
    PQfinish(plain);
    (void)dlock_release(lock, NULL); /* it is lost */
    if (dlock_acquire(lock, 20000, &err) != 0) fail_msg("%s", err.message);
    assert_true(dlock_fence(lock) > fence);
    if (dlock_release(lock, &err) != 0) fail_msg("%s", err.message);
}

TESTS(NULL, NULL, NULL, NULL)
