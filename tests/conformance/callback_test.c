/* on_lost: the calls that it may make, which grant it shows, and that it never runs after the release of that grant, nor
 * after the end of the handle or the client. */
#include "suite.h"

#include <stdatomic.h>
#include <string.h>

struct story {
    atomic_int begun, ended;
    int64_t takes_ms;
    bool free_inside;
};

static void reacquire(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    struct story *story = arg;
    EXPECT(err && err->code == DLOCK_ELOST);
    if (atomic_fetch_add(&story->begun, 1) > 0) FAIL("on_lost came twice");
    EXPECT(!dlock_held(lock) && dlock_remaining_ms(lock) == 0);
    EXPECT_CODE(DLOCK_ELOST, dlock_release(lock, ERR)); /* the handle owns, so any thread may */
    EXPECT_CODE(0, dlock_acquire(lock, SLACK_MS, ERR));
    EXPECT(dlock_held(lock));
    EXPECT_CODE(0, dlock_release(lock, ERR));
    if (story->free_inside) dlock_free(lock);
    atomic_fetch_add(&story->ended, 1);
}

static void linger(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    struct story *story = arg;
    (void)lock, (void)err;
    atomic_fetch_add(&story->begun, 1);
    sleep_ms(story->takes_ms);
    atomic_fetch_add(&story->ended, 1);
}

static void await(atomic_int *counter) {
    int64_t until = now_ms() + LEASE_MS + SLACK_MS;
    while (atomic_load(counter) == 0) {
        if (now_ms() > until) FAIL("on_lost does not come");
        sleep_ms(2);
    }
}

/* Makes a handle that holds the lock with a fixed lease that ends soon. */
static dlock_lock *soon_lost(dlock_client *client, dlock_callback on_lost, struct story *story) {
    struct dlock_options options = options_with(LEASE_MS / 2, DLOCK_FIXED_LEASE);
    options.owner = DLOCK_OWNER_HANDLE;
    options.on_lost = on_lost;
    options.on_lost_arg = story;
    dlock_lock *lock = new_lock(client, suite.name, &options);
    EXPECT_CODE(0, dlock_acquire(lock, SLACK_MS, ERR));
    return lock;
}

void case_on_lost_may_call_the_library(void) {
    struct story story = {0};
    dlock_client *client = open_client();
    dlock_lock *lock = soon_lost(client, reacquire, &story);
    await(&story.ended);
    EXPECT_CODE(DLOCK_EOWNER, dlock_release(lock, ERR));
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    EXPECT_CODE(0, dlock_release(lock, ERR));
    dlock_free(lock);
    dlock_close(client);
    EXPECT(atomic_load(&story.begun) == 1);
}

void case_on_lost_may_free_its_handle(void) {
    struct story story = {.free_inside = true};
    dlock_client *client = open_client();
    soon_lost(client, reacquire, &story);
    await(&story.ended);
    EXPECT_FREE(suite.name);
    dlock_close(client);
    EXPECT(atomic_load(&story.begun) == 1);
}

void case_free_waits_for_on_lost(void) {
    struct story story = {.takes_ms = 400};
    SCOPED_CLIENT *client = open_client();
    dlock_lock *lock = soon_lost(client, linger, &story);
    await(&story.begun);
    dlock_free(lock);
    EXPECT(atomic_load(&story.ended) == 1);
    /* Freed before the loss: no call at all. */
    struct story untold = {0};
    lock = soon_lost(client, linger, &untold);
    dlock_free(lock);
    sleep_ms(LEASE_MS);
    EXPECT(atomic_load(&untold.begun) == 0);
}

void case_close_waits_for_on_lost(void) {
    struct story story = {.takes_ms = 400};
    dlock_client *client = open_client();
    SCOPED_LOCK *lock = soon_lost(client, linger, &story);
    await(&story.begun);
    dlock_close(client);
    EXPECT(atomic_load(&story.ended) == 1);
}

struct grant_shown {
    atomic_int calls;
    uint64_t fence;
    char token[DLOCK_TOKEN_MAX + 1];
};

static void note_grant(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    struct grant_shown *shown = arg;
    (void)err;
    shown->fence = dlock_fence(lock);
    EXPECT_CODE(0, dlock_token(lock, shown->token, sizeof shown->token, ERR));
    atomic_fetch_add(&shown->calls, 1);
}

/* Its thread is not the owner. */
void case_on_lost_shows_the_lost_grant(void) {
    struct grant_shown shown = {0};
    char token[DLOCK_TOKEN_MAX + 1];
    struct dlock_options options = options_with(LEASE_MS / 2, DLOCK_FIXED_LEASE);
    options.on_lost = note_grant;
    options.on_lost_arg = &shown;
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, &options);
    EXPECT_CODE(0, dlock_acquire(lock, SLACK_MS, ERR));
    uint64_t fence = dlock_fence(lock);
    EXPECT_CODE(0, dlock_token(lock, token, sizeof token, ERR));
    await(&shown.calls);
    EXPECT(shown.fence == fence && strcmp(shown.token, token) == 0);
    EXPECT_CODE(DLOCK_ELOST, dlock_release(lock, ERR));
}

/* The on_lost of another lock runs when the grant ends, so its own waits. */
void case_release_takes_on_lost_back(void) {
    struct story slow = {.takes_ms = LEASE_MS}, untold = {0};
    SCOPED_CLIENT *client = open_client();
    char name[DLOCK_NAME_MAX + 1];
    tagged_name(name, "slow");
    struct dlock_options options = options_with(LEASE_MS / 2, DLOCK_FIXED_LEASE);
    options.owner = DLOCK_OWNER_HANDLE;
    options.on_lost = linger;
    options.on_lost_arg = &slow;
    SCOPED_LOCK *other = new_lock(client, name, &options);
    EXPECT_CODE(0, dlock_acquire(other, SLACK_MS, ERR));
    SCOPED_LOCK *lock = soon_lost(client, linger, &untold);
    await(&slow.begun);
    while (dlock_held(lock)) sleep_ms(2);
    EXPECT_CODE(DLOCK_ELOST, dlock_release(lock, ERR));
    int told = atomic_load(&untold.begun);
    if (atomic_load(&slow.ended) == 0) EXPECT(told == 0);
    EXPECT(told == atomic_load(&untold.ended));
    await(&slow.ended);
    sleep_ms(100);
    EXPECT(atomic_load(&untold.begun) == told);
}
