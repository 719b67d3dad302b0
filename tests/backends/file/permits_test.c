/* Permits: their seats in the file, beside flock(1), and holders that die. */
#include "fixture.h"

#include <signal.h>
#include <unistd.h>

enum { ROUNDS = 5 };

static void refused(void *conn, struct dlock_claim claim, const char *word) {
    struct dlock_error err = {0, ""};
    struct dlock_claim *one = &claim;
    assert_int_equal(FILE_BACKEND->acquire(conn, &one, 1, 1000, &err), 0);
    assert_int_equal(claim.result, DLOCK_EINVAL);
    assert_int_equal(err.code, DLOCK_EINVAL);
    if (!strstr(err.message, word) || !strstr(err.message, "\"job\"")) fail_msg("%s", err.message);
    assert_int_equal(release(conn, &claim), DLOCK_ELOST); /* it left nothing */
}

/* A shell that says 9>job on its way to flock(1) empties the file. A holder of a permit keeps it, and others still get
 * theirs; only how many there were is forgotten. */
TEST(emptied_while_held) {
    struct dlock_claim one = permit_of("job", 2), two = permit_of("job", 2), three = permit_of("job", 2);
    assert_int_equal(acquire(world->conn, &one), 0);
    file_put(path_of("job"), "", 0);
    refused(world->conn, reader_of("job"), "as permits");
    refused(world->conn, claim_of("job"), "as permits");
    assert_int_equal(renew(world->conn, &one), 0);
    assert_int_equal(acquire(world->conn, &two), 0);
    assert_true(two.fence > one.fence);
    assert_int_equal(acquire(world->conn, &three), DLOCK_EBUSY);
    struct seen seen = inspect(world->conn, "job");
    assert_int_equal(seen.n, 2);
    assert_true(saw(&seen, &two));
    assert_int_equal(release(world->conn, &one), 0);
    refused(world->conn, permit_of("job", 3), "2 permits");
    assert_int_equal(release(world->conn, &two), 0);
}

/* The purpose of a lock by flock(1) is unknown: permits wait, as flock(1) does for them. */
TEST(with_flock) {
    const char *path = path_of("job");
    const char *const keeps[] = {"flock", path, "sh", "-c", "echo; exec sleep 60", NULL};
    const char *const tries[] = {"flock", "-n", path, "true", NULL};
    struct dlock_claim permit = permit_of("job", 3);
    assert_false(is_held(world->conn, "job")); /* one of our tokens stays in the file */
    pid_t pid = command_start(keeps);
    assert_int_equal(acquire(world->conn, &permit), DLOCK_EBUSY);
    kill_command(pid);
    acquire_waiting(world->conn, &permit);
    assert_int_equal(command(tries), 1);
    assert_int_equal(release(world->conn, &permit), 0);
    assert_int_equal(command(tries), 0);
}

TEST(any_limit) {
    static const uint32_t limits[] = {1, 2, 31337, INT32_MAX, UINT32_MAX};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct dlock_claim one = permit_of("job", limits[i]), two = permit_of("job", limits[i]);
        assert_int_equal(acquire(world->conn, &one), 0);
        assert_int_equal(acquire(world->conn, &two), i == 0 ? DLOCK_EBUSY : 0);
        struct seen seen = inspect(world->conn, "job");
        assert_true(saw(&seen, &one));
        assert_int_equal(release(world->conn, &one), 0);
        assert_int_equal(release(world->conn, &two), i == 0 ? DLOCK_ELOST : 0);
    }
}

/* ---- holders that die ---- */

static int kill_soon(void *arg) {
    usleep(100000);
    return kill(*(const pid_t *)arg, SIGKILL);
}

TEST(waiters_follow_the_dead) {
    struct dlock_claim other = permit_of("job", 2);
    assert_int_equal(acquire(world->conn, &other), 0);
    listen_on(world->conn);
    for (int i = 0; i < ROUNDS; i++) {
        struct dlock_claim claim = permit_of("job", 2);
        pid_t holder = holder_start_as(permit_of("job", 2), NULL);
        assert_int_equal(acquire(world->conn, &claim), DLOCK_EBUSY);
        pid_t killer = child_start(kill_soon, &holder);
        acquire_waiting(world->conn, &claim);
        assert_int_equal(release(world->conn, &claim), 0);
        assert_int_equal(child_end(killer), 0);
        child_end(holder);
    }
}

enum { MANY = 300 };

/* Every seat is found, in whatever order they become free. */
TEST(many) {
    static struct dlock_claim permits[MANY];
    static char tokens[MANY][64];
    struct dlock_claim late = permit_of("job", MANY);
    for (int i = 0; i < MANY; i++) {
        permits[i] = permit_of("job", MANY);
        snprintf(tokens[i], sizeof tokens[i], "0123456789abcdef01234567.p%d@test:%ld", i, (long)getpid());
        permits[i].token = tokens[i];
        assert_int_equal(acquire(world->conn, &permits[i]), 0);
    }
    for (int i = 0; i < MANY; i += 7) {
        assert_int_equal(acquire(world->conn, &late), DLOCK_EBUSY);
        assert_int_equal(release(world->conn, &permits[i]), 0);
        assert_int_equal(inspect(world->conn, "job").n, MANY - 1);
        assert_int_equal(acquire(world->conn, &permits[i]), 0);
    }
}
