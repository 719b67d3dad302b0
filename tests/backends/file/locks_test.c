/* Grants whose file was removed, renamed or closed; and descriptors, of which none stays. */
#include "fixture.h"

#include <sys/stat.h>
#include <unistd.h>

/* A dead process's state is not ours to free, whatever its numbers: the kernel has done it. */
TEST(of_the_dead) {
    struct dlock_claim held = claim_of("job");
    assert_int_equal(acquire(world->conn, &held), 0);
    struct dlock_claim dead = held;
    dead.flags = DLOCK_CLAIM_DEAD;
    assert_int_equal(release(world->conn, &dead), 0);
    assert_true(is_held(world->conn, "job"));
    assert_int_equal(release(world->conn, &held), 0);
}

TEST(same_token_after_a_loss) {
    struct dlock_claim claim = claim_of("job");
    assert_int_equal(acquire(world->conn, &claim), 0);
    uint64_t fence = claim.fence;
    assert_int_equal(unlink(path_of("job")), 0);
    assert_int_equal(acquire(world->conn, &claim), 0);
    assert_true(claim.fence > fence);
    assert_true(is_held(world->conn, "job"));
    assert_int_equal(release(world->conn, &claim), 0);
}

/* The core may use the state of a claim that another thread has just released. */
TEST(stale_state_touches_nobody) {
    struct dlock_claim first = claim_of("job"), second = claim_of("other");
    assert_int_equal(acquire(world->conn, &first), 0);
    struct dlock_claim stale = first;
    assert_int_equal(release(world->conn, &first), 0);
    assert_int_equal(acquire(world->conn, &second), 0); /* gets the same descriptor number */
    assert_int_equal(release(world->conn, &stale), DLOCK_ELOST);
    assert_int_equal(unlink(path_of("job")), 0);
    assert_int_equal(renew(world->conn, &stale), DLOCK_ELOST);
    assert_true(is_held(world->conn, "other"));
    assert_int_equal(renew(world->conn, &second), 0);
    assert_int_equal(release(world->conn, &second), 0);
}

/* Unlinked: another process can create and lock a new file, so the holder holds nothing any more. */
TEST(unlinked_is_lost) {
    struct dlock_claim holder = claim_of("job"), waiter = claim_of("job"), late = claim_of("job");
    assert_int_equal(acquire(world->conn, &holder), 0);
    assert_int_equal(acquire(world->conn, &waiter), DLOCK_EBUSY);
    assert_int_equal(unlink(path_of("job")), 0);
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

/* A descriptor that is kept for the next acquire is kept once. */
TEST(leaves_no_descriptors) {
    struct dlock_claim held = claim_of("held");
    int before = 0;
    listen_on(world->conn);
    assert_int_equal(acquire(world->conn, &held), 0);
    assert_int_equal(mkdir(path_of("folder"), 0777), 0);
    for (int i = 0; i < 1000; i++) {
        struct dlock_claim claim = claim_of("job"), busy = claim_of("held"), bad = claim_of("folder"),
                           lost = claim_of("lost");
        assert_int_equal(acquire(world->conn, &claim), 0);
        assert_int_equal(acquire(world->conn, &busy), DLOCK_EBUSY);
        assert_int_equal(acquire(world->conn, &bad), DLOCK_EINVAL);
        assert_int_equal(acquire(world->conn, &lost), 0);
        assert_int_equal(unlink(path_of("lost")), 0);
        assert_int_equal(renew(world->conn, &lost), DLOCK_ELOST);
        give_up(world->conn, &busy);
        assert_int_equal(release(world->conn, &claim), 0);
        if (i == 0) before = count_fds();
    }
    assert_int_equal(count_fds(), before);
    assert_int_equal(release(world->conn, &held), 0);
}

TEST(connections_leave_no_descriptors) {
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
