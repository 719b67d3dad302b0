/* Acquiring and releasing a lock; trying, waiting with a timeout, waiting without one. */
#include "actor.h"

#include <string.h>

static void expect_held(dlock_lock *lock, int64_t lease_ms) {
    EXPECT(dlock_held(lock));
    EXPECT(dlock_fence(lock) > 0);
    int64_t remaining = dlock_remaining_ms(lock);
    EXPECT(remaining > 0);
    if (remaining != DLOCK_FOREVER) EXPECT_BETWEEN(1, lease_ms, remaining);
}

static void expect_not_held(dlock_lock *lock) {
    char token[DLOCK_TOKEN_MAX + 1] = "untouched";
    EXPECT(!dlock_held(lock));
    EXPECT(dlock_remaining_ms(lock) == 0);
    EXPECT(dlock_fence(lock) == 0);
    EXPECT_CODE(DLOCK_EOWNER, dlock_token(lock, token, sizeof token, ERR));
    EXPECT(strcmp(token, "untouched") == 0);
}

void case_acquire_release(void) {
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:@-";
    SCOPED_CLIENT *client = open_client();
    struct dlock_options options = options_with(LONG_LEASE_MS, 0);
    SCOPED_LOCK *lock = new_lock(client, suite.name, &options);
    expect_not_held(lock);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    expect_held(lock, LONG_LEASE_MS);
    char token[DLOCK_TOKEN_MAX + 1];
    EXPECT_CODE(0, dlock_token(lock, token, sizeof token, ERR));
    EXPECT(token[0] != '\0' && token[strspn(token, allowed)] == '\0');
    EXPECT_CODE(DLOCK_EINVAL, dlock_token(lock, token, 4, ERR));
    EXPECT_TAKEN(suite.name);
    EXPECT_CODE(0, dlock_release(lock, ERR));
    expect_not_held(lock);
    EXPECT_FREE(suite.name);
}

void case_try_is_busy(void) {
    SCOPED_CLIENT *holder = open_client(), *other = open_client();
    SCOPED_LOCK *held = new_lock(holder, suite.name, NULL), *wanted = new_lock(other, suite.name, NULL);
    EXPECT_CODE(0, dlock_acquire(held, 0, ERR));
    int64_t begun = now_ms();
    EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(wanted, 0, ERR));
    EXPECT_BETWEEN(0, SLACK_MS, now_ms() - begun);
    expect_not_held(wanted);
    EXPECT(dlock_held(held));
    EXPECT_CODE(0, dlock_release(held, ERR));
    /* The try has left nothing behind: no queue entry that would now get the lock. */
    EXPECT_CODE(0, dlock_acquire(held, 0, ERR));
    EXPECT_CODE(0, dlock_release(held, ERR));
    EXPECT_CODE(0, dlock_acquire(wanted, 0, ERR));
}

void case_timed_acquire_times_out(void) {
    SCOPED_CLIENT *holder = open_client(), *other = open_client();
    SCOPED_LOCK *held = new_lock(holder, suite.name, NULL), *wanted = new_lock(other, suite.name, NULL);
    EXPECT_CODE(0, dlock_acquire(held, 0, ERR));
    const int64_t timeouts[] = {MOMENT_MS, MOMENT_MS * 2};
    for (size_t i = 0; i < sizeof timeouts / sizeof timeouts[0]; i++) {
        int64_t begun = now_ms();
        EXPECT_CODE(DLOCK_ETIMEDOUT, dlock_acquire(wanted, timeouts[i], ERR));
        EXPECT_BETWEEN(timeouts[i] - 1, timeouts[i] + SLACK_MS, now_ms() - begun);
        expect_not_held(wanted);
    }
    EXPECT_CODE(0, dlock_release(held, ERR));
    EXPECT_FREE(suite.name);
}

/* One actor holds the lock for a while; a second one that waits with `timeout_ms` gets it soon after the release. */
static void granted_after_release(int64_t timeout_ms) {
    struct dlock_options options = options_with(LONG_LEASE_MS, 0);
    SCOPED_ACTOR holder, waiter;
    actor_start(&holder, suite.name, &options);
    actor_start(&waiter, suite.name, &options);
    struct actor_report first = ACTOR_DO(0, &holder, ACTOR_ACQUIRE, 0), early;
    actor_begin(&waiter, ACTOR_ACQUIRE, timeout_ms);
    EXPECT(!actor_poll(&waiter, 400, &early));
    struct actor_report released = ACTOR_DO(0, &holder, ACTOR_RELEASE, 0);
    struct actor_report second = ACTOR_FINISH(0, &waiter);
    EXPECT(second.held && second.remaining_ms > 0);
    EXPECT(second.fence > first.fence);
    EXPECT_BETWEEN(-SLACK_MS, SLACK_MS, (second.at_us - released.at_us) / 1000);
    ACTOR_DO(0, &waiter, ACTOR_RELEASE, 0);
}

void case_timed_acquire_is_granted(void) {
    granted_after_release(PATIENCE_MS);
}

void case_blocking_acquire_is_granted(void) {
    granted_after_release(-1);
    granted_after_release(DLOCK_FOREVER);
}

/* A wait of `timeout_ms` for a lock that is freed `left_ms` before its end, repeated until one is granted: a machine
 * that hangs for a moment may be late many times, also with the answer to the first question of a short wait. */
static void granted_before_the_end(int64_t timeout_ms, int64_t left_ms) {
    struct dlock_options options = options_with(LONG_LEASE_MS, 0);
    SCOPED_ACTOR holder, waiter;
    struct actor_report report = {.code = DLOCK_ETIMEDOUT};
    actor_start(&holder, suite.name, &options);
    actor_start(&waiter, suite.name, &options);
    for (int i = 0; report.code != 0; i++) {
        EXPECT(i < 100);
        ACTOR_DO(0, &holder, ACTOR_ACQUIRE, PATIENCE_MS);
        int64_t free_us = now_us() + (timeout_ms - left_ms) * 1000;
        actor_begin(&waiter, ACTOR_ACQUIRE, timeout_ms);
        while (now_us() < free_us) sleep_ms(1);
        ACTOR_DO(0, &holder, ACTOR_RELEASE, 0);
        EXPECT(actor_poll(&waiter, PATIENCE_MS, &report));
        EXPECT(report.code == 0 || report.code == DLOCK_ETIMEDOUT || report.code == DLOCK_EUNAVAILABLE);
    }
    ACTOR_DO(0, &waiter, ACTOR_RELEASE, 0);
}

void case_granted_just_before_the_deadline(void) {
    granted_before_the_end(200, 14);
    granted_before_the_end(16, 12);
}

/* Neither a release too many, nor one by another client, frees anything. */
void case_double_release(void) {
    SCOPED_CLIENT *client = open_client(), *other = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, NULL), *next = new_lock(other, suite.name, NULL);
    EXPECT_CODE(DLOCK_EOWNER, dlock_release(lock, ERR));
    EXPECT_CODE(DLOCK_EOWNER, dlock_release(lock, NULL));
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    EXPECT_CODE(DLOCK_EOWNER, dlock_release(next, ERR));
    EXPECT(dlock_held(lock) && !dlock_held(next));
    EXPECT_TAKEN(suite.name);
    EXPECT_CODE(0, dlock_release(lock, ERR));
    EXPECT_CODE(DLOCK_EOWNER, dlock_release(lock, ERR));
    EXPECT_CODE(0, dlock_acquire(next, 0, ERR));
    EXPECT_CODE(DLOCK_EOWNER, dlock_release(lock, ERR));
    EXPECT_TAKEN(suite.name);
    EXPECT_CODE(0, dlock_release(next, ERR));
}

/* Outputs are untouched on failure, errors may be NULL, destructors take NULL. */
void case_errors_and_outputs(void) {
    dlock_client *client = open_client(), *untouched_client = client;
    EXPECT(dlock_open("", NULL, &untouched_client, NULL) != 0);
    EXPECT(untouched_client == client);
    dlock_lock *lock = new_lock(client, suite.name, NULL), *untouched_lock = lock;
    EXPECT_CODE(DLOCK_EINVAL, dlock_new(client, "", NULL, &untouched_lock, NULL));
    EXPECT(untouched_lock == lock);
    EXPECT_CODE(0, dlock_acquire(lock, 0, NULL));
    dlock_client *other = open_client();
    dlock_lock *wanted = new_lock(other, suite.name, NULL);
    EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(wanted, 0, NULL));
    EXPECT_CODE(DLOCK_ETIMEDOUT, dlock_acquire(wanted, MOMENT_MS, NULL));
    EXPECT_CODE(0, dlock_release(lock, NULL));
    dlock_free(wanted);
    dlock_close(other);
    const struct dlock_backend_info *info = dlock_client_backend(client);
    EXPECT(info && strcmp(info->name, suite.backend) == 0 && info->schemes && info->schemes[0] && !info->error);
    dlock_free(lock);
    dlock_close(client);
    dlock_free(NULL);
    dlock_close(NULL);
}
