/* Acquire, renew, release: their promises to the core. */
#include "fixture.h"

#include <sys/stat.h>
#include <unistd.h>

int locks_tests(void);

static void grants_and_releases(void **state) {
    struct world *world = *state;
    struct dlock_claim claim = claim_of("job");
    char text[512];
    assert_int_equal(acquire(world->conn, &claim), 0);
    assert_true(claim.fence > 0 && claim.fence < UINT64_C(1) << 55);
    assert_true(claim.kept_ms == DLOCK_FOREVER);
    assert_int_equal(claim.server_us, 0);
    file_get(path_of(world, "job"), text, sizeof text);
    assert_non_null(strstr(text, claim.token));
    assert_non_null(strstr(text, "name  job\n"));
    assert_int_equal(renew(world->conn, &claim), 0);
    assert_true(claim.kept_ms == DLOCK_FOREVER);
    struct dlock_claim copy = claim;
    assert_int_equal(release(world->conn, &claim), 0);
    assert_int_equal(release(world->conn, &claim), DLOCK_ELOST);
    assert_int_equal(renew(world->conn, &claim), DLOCK_ELOST);
    assert_int_equal(release(world->conn, &copy), DLOCK_ELOST);
}

/* A dead process's state is not ours to free, whatever its numbers: the kernel has done it. */
static void of_the_dead(void **state) {
    struct world *world = *state;
    struct dlock_claim held = claim_of("job");
    assert_int_equal(acquire(world->conn, &held), 0);
    struct dlock_claim dead = held;
    dead.flags = DLOCK_CLAIM_DEAD;
    assert_int_equal(release(world->conn, &dead), 0);
    assert_true(is_held(world->conn, "job"));
    assert_int_equal(release(world->conn, &held), 0);
}

static void excludes(void **state) {
    struct world *world = *state;
    struct dlock_claim first = claim_of("job"), second = claim_of("job"), third = claim_of("job");
    void *other = conn_open(world->dir);
    assert_int_equal(acquire(world->conn, &first), 0);
    assert_int_equal(acquire(world->conn, &second), DLOCK_EBUSY);
    assert_int_equal(second.retry_ms, -1); /* no listener: the core polls */
    assert_int_equal(acquire(other, &third), DLOCK_EBUSY);
    assert_int_equal(renew(world->conn, &second), DLOCK_ELOST);
    assert_int_equal(release(world->conn, &first), 0);
    assert_int_equal(acquire(other, &third), 0);
    assert_true(third.fence > first.fence);
    assert_int_equal(acquire(world->conn, &second), DLOCK_EBUSY);
    give_up(world->conn, &second);
    assert_int_equal(release(world->conn, &second), DLOCK_ELOST);
    conn_close(other); /* ends its locks */
    assert_false(is_held(world->conn, "job"));
}

static void same_token_same_grant(void **state) {
    struct world *world = *state;
    struct dlock_claim claim = claim_of("job");
    assert_int_equal(acquire(world->conn, &claim), 0);
    uint64_t fence = claim.fence;
    claim.fence = 0;
    assert_int_equal(acquire(world->conn, &claim), 0);
    assert_true(claim.fence == fence);
    assert_int_equal(release(world->conn, &claim), 0);
    assert_false(is_held(world->conn, "job"));
}

static void same_token_after_a_loss(void **state) {
    struct world *world = *state;
    struct dlock_claim claim = claim_of("job");
    assert_int_equal(acquire(world->conn, &claim), 0);
    uint64_t fence = claim.fence;
    assert_int_equal(unlink(path_of(world, "job")), 0);
    assert_int_equal(acquire(world->conn, &claim), 0);
    assert_true(claim.fence > fence);
    assert_true(is_held(world->conn, "job"));
    assert_int_equal(release(world->conn, &claim), 0);
}

/* The core may use the state of a claim that another thread has just released. */
static void stale_state_touches_nobody(void **state) {
    struct world *world = *state;
    struct dlock_claim first = claim_of("job"), second = claim_of("other");
    assert_int_equal(acquire(world->conn, &first), 0);
    struct dlock_claim stale = first;
    assert_int_equal(release(world->conn, &first), 0);
    assert_int_equal(acquire(world->conn, &second), 0); /* gets the same descriptor number */
    assert_int_equal(release(world->conn, &stale), DLOCK_ELOST);
    assert_int_equal(unlink(path_of(world, "job")), 0);
    assert_int_equal(renew(world->conn, &stale), DLOCK_ELOST);
    assert_true(is_held(world->conn, "other"));
    assert_int_equal(renew(world->conn, &second), 0);
    assert_int_equal(release(world->conn, &second), 0);
}

/* Unlinked: another process can create and lock a new file, so the holder holds nothing any more. */
static void unlinked_is_lost(void **state) {
    struct world *world = *state;
    struct dlock_claim holder = claim_of("job"), waiter = claim_of("job"), late = claim_of("job");
    assert_int_equal(acquire(world->conn, &holder), 0);
    assert_int_equal(acquire(world->conn, &waiter), DLOCK_EBUSY);
    assert_int_equal(unlink(path_of(world, "job")), 0);
    assert_int_equal(acquire(world->conn, &waiter), 0); /* though it waited for the old file */
    assert_true(waiter.fence > holder.fence);
    struct dlock_claim copy = holder;
    assert_int_equal(renew(world->conn, &holder), DLOCK_ELOST);
    assert_int_equal(release(world->conn, &copy), DLOCK_ELOST);
    assert_int_equal(acquire(world->conn, &late), DLOCK_EBUSY);
    assert_int_equal(renew(world->conn, &waiter), 0);
    assert_int_equal(release(world->conn, &waiter), 0);
    give_up(world->conn, &late);
}

static void renamed_is_lost(void **state) {
    struct world *world = *state;
    struct dlock_claim holder = claim_of("job"), next = claim_of("job");
    assert_int_equal(acquire(world->conn, &holder), 0);
    assert_int_equal(rename(path_of(world, "job"), path_of(world, "away")), 0);
    assert_int_equal(acquire(world->conn, &next), 0);
    assert_int_equal(release(world->conn, &holder), DLOCK_ELOST);
    assert_int_equal(renew(world->conn, &next), 0);
    assert_int_equal(release(world->conn, &next), 0);
}

static void batches_answer_each(void **state) {
    struct world *world = *state;
    struct dlock_error err = {0, ""};
    struct dlock_claim held = claim_of("b");
    struct dlock_claim one = claim_of("a"), two = claim_of("b"), three = claim_of("c"), four = claim_of("d");
    struct dlock_claim *all[] = {&one, &two, &three, &four};
    void *other = conn_open(world->dir);
    assert_int_equal(acquire(other, &held), 0);
    assert_int_equal(mkdir(path_of(world, "c"), 0777), 0); /* which cannot be locked */
    assert_int_equal(FILE_BACKEND->acquire(world->conn, all, 4, 1000, &err), 0);
    assert_int_equal(one.result, 0);
    assert_int_equal(two.result, DLOCK_EBUSY);
    assert_int_equal(three.result, DLOCK_EINVAL);
    assert_int_equal(err.code, DLOCK_EINVAL);
    assert_int_equal(four.result, 0);
    assert_int_equal(FILE_BACKEND->renew(world->conn, all, 4, 1000, &err), 0);
    assert_int_equal(one.result, 0);
    assert_int_equal(two.result, DLOCK_ELOST);
    assert_int_equal(FILE_BACKEND->release(world->conn, all, 4, 1000, &err), 0);
    assert_int_equal(one.result, 0);
    assert_int_equal(two.result, DLOCK_ELOST); /* it only waited */
    assert_int_equal(three.result, DLOCK_ELOST);
    conn_close(other);
}

/* A descriptor that is kept for the next acquire is kept once. */
static void leaves_no_descriptors(void **state) {
    struct world *world = *state;
    struct dlock_claim held = claim_of("held");
    int before = 0;
    listen_on(world->conn);
    assert_int_equal(acquire(world->conn, &held), 0);
    assert_int_equal(mkdir(path_of(world, "folder"), 0777), 0);
    for (int i = 0; i < 1000; i++) {
        struct dlock_claim claim = claim_of("job"), busy = claim_of("held"), bad = claim_of("folder"),
                           lost = claim_of("lost");
        assert_int_equal(acquire(world->conn, &claim), 0);
        assert_int_equal(acquire(world->conn, &busy), DLOCK_EBUSY);
        assert_int_equal(acquire(world->conn, &bad), DLOCK_EINVAL);
        assert_int_equal(acquire(world->conn, &lost), 0);
        assert_int_equal(unlink(path_of(world, "lost")), 0);
        assert_int_equal(renew(world->conn, &lost), DLOCK_ELOST);
        give_up(world->conn, &busy);
        assert_int_equal(release(world->conn, &claim), 0);
        if (i == 0) before = count_fds();
    }
    assert_int_equal(count_fds(), before);
    assert_int_equal(release(world->conn, &held), 0);
}

static void connections_leave_no_descriptors(void **state) {
    struct world *world = *state;
    struct dlock_error err;
    int fd, before = count_fds();
    for (int i = 0; i < 20; i++) {
        void *conn = conn_open(world->dir);
        struct dlock_claim one = claim_of("one"), two = claim_of("one");
        assert_int_equal(FILE_BACKEND->listen(conn, &fd, 1000, &err), 0);
        assert_int_equal(acquire(conn, &one), 0);
        assert_int_equal(acquire(conn, &two), DLOCK_EBUSY);
        conn_close(conn);
        void *none = NULL;
        assert_int_equal(conn_try("/dev/null/x", &none, &err), DLOCK_EINVAL);
    }
    assert_int_equal(count_fds(), before);
}

/* ---- several processes ---- */

enum { PROCESSES = 4, ROUNDS = 300 };

struct shared {
    _Atomic int inside;
    int n; /* guarded by the lock */
    uint64_t fences[PROCESSES * ROUNDS];
};

static int count_under_lock(const struct world *world, void *arg) {
    struct shared *shared = arg;
    void *conn = conn_open(world->dir);
    for (int i = 0; i < ROUNDS; i++) {
        struct dlock_claim claim = claim_of("job");
        while (acquire(conn, &claim) == DLOCK_EBUSY) usleep(50);
        if (claim.result != 0 || shared->inside++ != 0) return 1;
        int n = shared->n;
        if (i % 16 == 0) usleep(100);
        shared->fences[n] = claim.fence;
        shared->n = n + 1;
        shared->inside--;
        if (release(conn, &claim) != 0) return 2;
    }
    return 0;
}

static void processes_exclude_each_other(void **state) {
    struct shared *shared = shared_new(sizeof *shared);
    children_run(count_under_lock, *state, shared, 0, PROCESSES);
    assert_int_equal(shared->n, PROCESSES * ROUNDS);
    for (int i = 1; i < shared->n; i++) assert_true(shared->fences[i] > shared->fences[i - 1]);
    shared_end(shared, sizeof *shared);
}

int locks_tests(void) {
    const struct CMUnitTest tests[] = {
        WORLD_TEST(grants_and_releases),
        WORLD_TEST(excludes),
        WORLD_TEST(of_the_dead),
        WORLD_TEST(same_token_same_grant),
        WORLD_TEST(same_token_after_a_loss),
        WORLD_TEST(stale_state_touches_nobody),
        WORLD_TEST(unlinked_is_lost),
        WORLD_TEST(renamed_is_lost),
        WORLD_TEST(batches_answer_each),
        WORLD_TEST(leaves_no_descriptors),
        WORLD_TEST(connections_leave_no_descriptors),
        WORLD_TEST(processes_exclude_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
