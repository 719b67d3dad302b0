/* dlock_acquire_any. */
#include "thread.h"

#include <stdatomic.h>

enum { N = 3, SLOTS = 2, WORKERS = 4 };

static void new_locks(dlock_client *client, dlock_lock **locks, int n, const struct dlock_options *options) {
    for (int i = 0; i < n; i++) locks[i] = numbered_lock(client, i, options);
}

static void free_locks(dlock_lock **locks, int n) {
    for (int i = 0; i < n; i++) dlock_free(locks[i]);
}

static void expect_free(int i) {
    char name[DLOCK_NAME_MAX + 1];
    numbered_name(name, i);
    EXPECT_FREE(name);
}

void case_any_takes_a_free_one(void) {
    SCOPED_CLIENT *client = open_client(), *other = open_client();
    struct dlock_options options = options_with(LONG_LEASE_MS, 0);
    dlock_lock *locks[N], *foreign[N];
    size_t which = N;
    new_locks(client, locks, N, &options);
    new_locks(other, foreign, N, &options);
    EXPECT_CODE(0, dlock_acquire_any(locks, N, 0, &which, ERR));
    EXPECT(which == 0 && dlock_held(locks[0]) && !dlock_held(locks[1]) && !dlock_held(locks[2]));
    expect_free(1);
    expect_free(2);
    EXPECT_CODE(0, dlock_acquire(foreign[1], PATIENCE_MS, ERR));
    EXPECT_CODE(0, dlock_release(locks[0], ERR));
    EXPECT_CODE(0, dlock_acquire(foreign[0], PATIENCE_MS, ERR));
    EXPECT_CODE(0, dlock_acquire_any(locks, N, 0, &which, ERR));
    EXPECT(which == 2 && dlock_held(locks[2]));
    EXPECT_CODE(0, dlock_release(locks[2], ERR));
    EXPECT_CODE(0, dlock_acquire(foreign[2], PATIENCE_MS, ERR));
    EXPECT_CODE(DLOCK_EBUSY, dlock_acquire_any(locks, N, 0, &which, ERR));
    int64_t begun = now_ms();
    EXPECT_CODE(DLOCK_ETIMEDOUT, dlock_acquire_any(locks, N, MOMENT_MS, &which, ERR));
    EXPECT_BETWEEN(MOMENT_MS - 1, MOMENT_MS + SLACK_MS, now_ms() - begun);
    free_locks(locks, N);
    free_locks(foreign, N);
}

struct wait {
    dlock_lock **locks;
    size_t which;
    int code;
};

static void *wait_and_release(void *arg) {
    struct wait *wait = arg;
    wait->code = dlock_acquire_any(wait->locks, N, PATIENCE_MS, &wait->which, NULL);
    if (wait->code == 0) EXPECT_CODE(0, dlock_release(wait->locks[wait->which], ERR));
    return NULL;
}

/* The waits for the others have ended with it: nobody has them when they are released. */
void case_any_waits_for_the_first(void) {
    SCOPED_CLIENT *client = open_client(), *other = open_client();
    struct dlock_options options = options_with(LONG_LEASE_MS, 0);
    dlock_lock *locks[N], *foreign[N];
    new_locks(client, locks, N, &options);
    new_locks(other, foreign, N, &options);
    for (int i = 0; i < N; i++) EXPECT_CODE(0, dlock_acquire(foreign[i], 0, ERR));
    struct wait wait = {locks, N, 1};
    pthread_t thread = start_thread(wait_and_release, &wait);
    sleep_ms(300);
    int64_t released = now_ms();
    EXPECT_CODE(0, dlock_release(foreign[1], ERR));
    pthread_join(thread, NULL);
    EXPECT(now_ms() - released < PATIENCE_MS / 2); /* the call does not last until its timeout */
    EXPECT_CODE(0, wait.code);
    EXPECT(wait.which == 1);
    EXPECT_CODE(0, dlock_release(foreign[0], ERR));
    EXPECT_CODE(0, dlock_release(foreign[2], ERR));
    for (int i = 0; i < N; i++) expect_free(i);
    free_locks(locks, N);
    free_locks(foreign, N);
}

static atomic_int in_slot[SLOTS], turns;

static void *work(void *arg) {
    SCOPED_CLIENT *client = open_client();
    struct dlock_options options = options_with(LONG_LEASE_MS, 0);
    dlock_lock *locks[SLOTS];
    (void)arg;
    new_locks(client, locks, SLOTS, &options);
    for (int64_t until = now_ms() + RUN_MS; now_ms() < until;) {
        size_t which;
        EXPECT_CODE(0, dlock_acquire_any(locks, SLOTS, PATIENCE_MS, &which, ERR));
        EXPECT(atomic_fetch_add(&in_slot[which], 1) == 0);
        sleep_ms(1);
        atomic_fetch_sub(&in_slot[which], 1);
        EXPECT_CODE(0, dlock_release(locks[which], ERR));
        atomic_fetch_add(&turns, 1);
    }
    free_locks(locks, SLOTS);
    return NULL;
}

void case_any_of_a_few_slots(void) {
    run_threads(work, NULL, 0, WORKERS);
    EXPECT(turns >= WORKERS);
    for (int i = 0; i < SLOTS; i++) expect_free(i);
}
