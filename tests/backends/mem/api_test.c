/* mem: as an application has it: URIs, which clients see the same locks, and faults. */
#include "support/api.h"
#include "support/clock.h"
#include "support/test.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TEST(uris_are_refused) {
    static const struct {
        const char *uri, *why;
    } bad[] = {
        {"mem://host", "has no hosts"},
        {"mem://user:hunter2@", "no user"},
        {"mem:?delay=", "\"delay\" must be a duration"},
        {"mem:?delay=-1s", "\"delay\" must be a duration"},
        {"mem:?delay=2h", "up to 1h"},
        {"mem:?delay=soon", "\"delay\" must be a duration"},
        {"mem:?fail=", "\"fail\" must be a share"},
        {"mem:?fail=1.01", "\"fail\" must be a share"},
        {"mem:?fail=1.000001", "\"fail\" must be a share"},
        {"mem:?fail=2", "\"fail\" must be a share"},
        {"mem:?fail=-0.1", "\"fail\" must be a share"},
        {"mem:?fail=.5", "\"fail\" must be a share"},
        {"mem:?fail=0.", "\"fail\" must be a share"},
        {"mem:?fail=0.0000001", "6 digits"},
        {"mem:?fail=0,1", "\"fail\" must be a share"},
        {"mem:?fail=1%25", "\"fail\" must be a share"},
        {"mem:?fail=10s", "\"fail\" must be a share"},
        {"mem:?dealy=20ms", "did you mean \"delay\""},
        {"mem:?password_file=/etc/passwd", "leave \"password_file\" out"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct dlock_error err = {0};
        dlock_client *client = NULL;
        if (dlock_open(bad[i].uri, NULL, &client, &err) != DLOCK_EINVAL) fail_msg("%s is not refused", bad[i].uri);
        if (!strstr(err.message, bad[i].why)) fail_msg("%s: %s", bad[i].uri, err.message);
        assert_null(strstr(err.message, "hunter2"));
    }
}

TEST(uris_are_taken) {
    static const char *const good[] = {"mem:",
                                       "mem:tests",
                                       "mem:/a/b c",
                                       "mem:?delay=0",
                                       "mem:?delay=1.5ms",
                                       "mem:?fail=0",
                                       "mem:?fail=0.000001",
                                       "mem:x?fail=0.0&delay=0ms&lease=1s&linger=50ms",
                                       "mem:?quarantine=5s"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) dlock_close(api_client("%s", good[i]));
}

static int try_lock(dlock_client *client, const char *name) {
    dlock_lock *lock = api_lock(client, name, NULL);
    struct dlock_error err;
    int rc = dlock_acquire(lock, 0, &err);
    if (rc == DLOCK_EBUSY) assert_non_null(strstr(err.message, "\" is busy: held by a process on "));
    dlock_free(lock);
    return rc;
}

/* A name in the URI is a separate server; the rest of the URI makes no difference. */
TEST(names_tell_servers_apart) {
    dlock_client *one = api_client("mem:one"), *same = api_client("mem:one?delay=1ms"), *two = api_client("mem:two");
    dlock_client *none = api_client("mem:");
    dlock_lock *lock = api_lock(one, "job", NULL);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(try_lock(same, "job"), DLOCK_EBUSY);
    assert_int_equal(try_lock(two, "job"), 0);
    assert_int_equal(try_lock(none, "job"), 0);
    dlock_free(lock);
    assert_int_equal(try_lock(same, "job"), 0);
    dlock_close(one);
    dlock_close(same);
    dlock_close(two);
    dlock_close(none);
}

static atomic_int losses;

static void count_loss(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)lock, (void)arg;
    assert_int_equal(err->code, DLOCK_ELOST);
    atomic_fetch_add(&losses, 1);
}

/* The application sees what it is like to lose a lock: at a renewal, by on_lost, and at the release; and that nothing
 * stays behind. Fences grow all the same. */
TEST(locks_are_lost) {
    enum { LOCKS = 300 };
    int lost = 0;
    uint64_t last = 0;
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.on_lost = count_loss;
    dlock_client *client = api_client("mem:lost?fail=0.2&timeout=20s"), *other = api_client("mem:lost");
    dlock_lock *lock = api_lock(client, "job", &options);
    for (int i = 0; i < LOCKS; i++) {
        assert_int_equal(dlock_acquire(lock, 20000, NULL), 0);
        assert_true(dlock_fence(lock) > last);
        last = dlock_fence(lock);
        int renewed = dlock_extend(lock, 0, NULL);
        assert_true(renewed == 0 || renewed == DLOCK_ELOST);
        if (renewed != 0) assert_false(dlock_held(lock));
        if (renewed != 0) assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
        if (renewed == 0) dlock_release(lock, NULL); /* which may be the first to learn that the lock was lost */
        lost += renewed != 0;
    }
    dlock_free(lock); /* which waits for the last on_lost */
    assert_in_range(lost, 1, LOCKS - 1);
    assert_in_range(atomic_load(&losses), 1, LOCKS);
    assert_int_equal(try_lock(other, "job"), 0);
    dlock_close(client);
    dlock_close(other);
}

/* No answer at all: calls end in time, and say so. */
TEST(nothing_is_answered) {
    struct dlock_error err = {0};
    dlock_client *client = api_client("mem:silent?fail=1&timeout=200ms");
    dlock_lock *lock = api_lock(client, "job", NULL);
    assert_int_equal(dlock_acquire(lock, 0, &err), DLOCK_EUNAVAILABLE);
    assert_non_null(strstr(err.message, "fail="));
    assert_int_equal(dlock_acquire(lock, 300, &err), DLOCK_EUNAVAILABLE);
    assert_false(dlock_held(lock));
    dlock_free(lock);
    dlock_close(client);
}

/* The next renewal would be three seconds later. */
TEST(a_break_reaches_a_holder_that_has_renewed_at_once) {
    struct dlock_stats stats = DLOCK_STATS_INIT;
    dlock_client *client = api_client("mem:break?lease=9s"), *operator= api_client("mem:break");
    dlock_lock *lock = api_lock(client, "n", NULL);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    while (stats.renewals == 0) {
        sleep_ms(5);
        assert_int_equal(dlock_client_stats(client, &stats, NULL), 0);
    }
    sleep_ms(100); /* the listener is brought up */
    int64_t begun = now_ms();
    assert_int_equal(dlock_break(operator, "n", NULL), 0);
    while (dlock_held(lock)) sleep_ms(5);
    assert_in_range(now_ms() - begun, 0, 1500);
    assert_int_equal(dlock_lost(lock, NULL), DLOCK_LOSS_BROKEN);
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
    dlock_free(lock);
    dlock_close(client);
    dlock_close(operator);
}

TESTS(NULL, NULL, NULL, NULL)
