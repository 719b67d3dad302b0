/* flock(1) of util-linux on the same file: it excludes us, and we it. */
#include "fixture.h"

#include <signal.h>
#include <unistd.h>

int flock_tests(void);

enum { ROUNDS = 5 };

static void excluded_by_flock(void **state) {
    struct world *world = *state;
    struct dlock_claim claim = claim_of("nightly report");
    const char *const hold[] = {"flock", path_of(world, "nightly report"), "sh", "-c", "echo; exec sleep 60", NULL};
    pid_t pid = command_start(hold); /* makes the file, empty */
    assert_int_equal(acquire(world->conn, &claim), DLOCK_EBUSY);
    assert_int_equal(kill(pid, SIGKILL), 0); /* its child still has the lock, as flock(1) wants it */
    assert_int_equal(acquire(world->conn, &claim), DLOCK_EBUSY);
    kill_command(pid);
    acquire_waiting(world->conn, &claim);
    assert_int_equal(release(world->conn, &claim), 0);
}

static void follows_flock_soon(void **state) {
    struct world *world = *state;
    int64_t delays[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        struct dlock_claim claim = claim_of("job");
        const char *const hold[] = {"flock", path_of(world, "job"), "sh", "-c", "echo; exec sleep 0.2", NULL};
        pid_t pid = command_start(hold);
        assert_int_equal(acquire(world->conn, &claim), DLOCK_EBUSY);
        delays[i] = acquire_waiting(world->conn, &claim) - 200;
        assert_int_equal(release(world->conn, &claim), 0);
        assert_int_equal(child_end(pid), 0);
    }
    check_delays("lock after the end of flock(1)", delays, ROUNDS, 100);
}

static void excludes_flock(void **state) {
    struct world *world = *state;
    const char *path = path_of(world, "job");
    const char *const try_it[] = {"flock", "-n", path, "true", NULL};
    struct dlock_claim claim = claim_of("job");
    assert_int_equal(acquire(world->conn, &claim), 0);
    assert_int_equal(command(try_it), 1);
    assert_int_equal(release(world->conn, &claim), 0);
    assert_int_equal(command(try_it), 0);
    assert_int_equal(acquire(world->conn, &claim), 0); /* and the record is still good */
    assert_int_equal(release(world->conn, &claim), 0);
}

static void flock_waits_for_us(void **state) {
    struct world *world = *state;
    const char *const wait_for_it[] = {"flock", "-w", "10", path_of(world, "job"), "true", NULL};
    struct dlock_claim claim = claim_of("job");
    assert_int_equal(acquire(world->conn, &claim), 0);
    pid_t pid = fork();
    if (pid == 0) {
        FILE_BACKEND->abandon(world->conn);
        _exit(command(wait_for_it));
    }
    usleep(100000);
    int64_t start = now_ms();
    assert_int_equal(release(world->conn, &claim), 0);
    assert_int_equal(child_end(pid), 0);
    assert_true(now_ms() - start < 5000);
}

int flock_tests(void) {
    const struct CMUnitTest tests[] = {
        WORLD_TEST(excluded_by_flock),
        WORLD_TEST(follows_flock_soon),
        WORLD_TEST(excludes_flock),
        WORLD_TEST(flock_waits_for_us),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
