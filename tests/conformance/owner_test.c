/* Owners: threads that own across handles, and handles that own across threads. */
#include "thread.h"

/* Each handle has its own share of the count. */
void case_reentry_counts(void) {
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *one = new_lock(client, suite.name, NULL), *two = new_lock(client, suite.name, NULL);
    EXPECT(!dlock_held(one));
    EXPECT_CODE(0, dlock_acquire(one, 0, ERR)); /* 1 */
    uint64_t fence = dlock_fence(one);
    EXPECT_CODE(0, dlock_acquire(one, DLOCK_FOREVER, ERR)); /* 2 */
    EXPECT_CODE(0, dlock_acquire(two, 0, ERR));             /* 3 */
    EXPECT(dlock_held(one) && dlock_held(two));
    EXPECT(dlock_fence(one) == fence && dlock_fence(two) == fence);
    EXPECT_TAKEN(suite.name);
    EXPECT_CODE(0, dlock_release(one, ERR)); /* 2 */
    EXPECT(dlock_held(one) && dlock_fence(one) == fence);
    EXPECT_CODE(0, dlock_release(one, ERR)); /* 1 */
    EXPECT(dlock_held(two));
    EXPECT_TAKEN(suite.name);
    EXPECT_CODE(0, dlock_release(two, ERR)); /* 0 */
    EXPECT(!dlock_held(one) && !dlock_held(two));
    EXPECT_FREE(suite.name);
    EXPECT_CODE(DLOCK_EOWNER, dlock_release(one, ERR));
    EXPECT_CODE(DLOCK_EOWNER, dlock_release(two, ERR));
}

void case_no_reentry(void) {
    SCOPED_CLIENT *client = open_client();
    struct dlock_options options = options_with(0, DLOCK_NO_REENTRY);
    SCOPED_LOCK *lock = new_lock(client, suite.name, &options), *plain = new_lock(client, suite.name, NULL);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    EXPECT_CODE(DLOCK_EDEADLK, dlock_acquire(lock, 0, ERR));
    EXPECT_CODE(DLOCK_EDEADLK, dlock_acquire(lock, DLOCK_FOREVER, ERR));
    EXPECT_CODE(DLOCK_EDEADLK, dlock_acquire(plain, 0, ERR)); /* through any handle */
    EXPECT(dlock_held(lock));
    EXPECT_CODE(0, dlock_release(lock, ERR));
    EXPECT_CODE(DLOCK_EOWNER, dlock_release(lock, ERR));
    EXPECT_FREE(suite.name);
}

static struct dlock_options handle_owned(void) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.owner = DLOCK_OWNER_HANDLE;
    return options;
}

void case_handle_owner_any_thread_releases(void) {
    SCOPED_CLIENT *client = open_client();
    struct dlock_options options = handle_owned();
    SCOPED_LOCK *lock = new_lock(client, suite.name, &options);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    struct call call = in_thread(release_here, lock, 0);
    EXPECT(call.held);
    EXPECT_CODE(0, call.code);
    EXPECT_FREE(suite.name);
    call = in_thread(acquire_and_keep, lock, 0);
    EXPECT_CODE(0, call.code);
    EXPECT(dlock_held(lock) && dlock_fence(lock) > 0);
    EXPECT_CODE(0, dlock_release(lock, ERR));
    EXPECT_CODE(DLOCK_EOWNER, dlock_release(lock, ERR));
}

void case_handle_owner_second_acquire(void) {
    SCOPED_CLIENT *client = open_client();
    struct dlock_options options = handle_owned();
    SCOPED_LOCK *lock = new_lock(client, suite.name, &options), *other = new_lock(client, suite.name, &options);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    EXPECT_CODE(DLOCK_EDEADLK, dlock_acquire(lock, DLOCK_FOREVER, ERR));
    EXPECT_CODE(DLOCK_EDEADLK, in_thread(acquire_here, lock, 0).code);
    /* Another handle is another owner, even in the same thread. */
    EXPECT(!dlock_held(other));
    EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(other, 0, ERR));
    EXPECT_CODE(DLOCK_ETIMEDOUT, dlock_acquire(other, MOMENT_MS, ERR));
    EXPECT_CODE(DLOCK_EOWNER, dlock_release(other, ERR));
    EXPECT_CODE(0, dlock_release(lock, ERR));
    EXPECT_CODE(0, dlock_acquire(other, PATIENCE_MS, ERR));
    EXPECT_CODE(0, dlock_release(other, ERR));
}

void case_thread_owner_excludes_threads(void) {
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, NULL);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    struct call call = in_thread(acquire_here, lock, 0);
    EXPECT_CODE(DLOCK_EBUSY, call.code);
    EXPECT(!call.held);
    int64_t begun = now_ms();
    EXPECT_CODE(DLOCK_ETIMEDOUT, in_thread(acquire_here, lock, MOMENT_MS).code);
    EXPECT_BETWEEN(MOMENT_MS - 1, MOMENT_MS + SLACK_MS, now_ms() - begun);
    EXPECT(dlock_held(lock));
    EXPECT_CODE(0, dlock_release(lock, ERR));
    call = in_thread(acquire_here, lock, PATIENCE_MS);
    EXPECT_CODE(0, call.code);
    EXPECT(call.held);
    EXPECT_FREE(suite.name);
}

void case_release_by_other_thread(void) {
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, NULL);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    struct call call = in_thread(release_here, lock, 0);
    EXPECT(!call.held);
    EXPECT_CODE(DLOCK_EOWNER, call.code);
    EXPECT(dlock_held(lock));
    EXPECT_TAKEN(suite.name);
    EXPECT_CODE(0, dlock_release(lock, ERR));
}
