/* flock(1) of util-linux on the same file: it excludes us, and we it. */
#include "fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

enum { ROUNDS = 5 };

TEST(excluded_by_flock) {
    struct dlock_claim claim = claim_of("nightly report");
    const char *const hold[] = {"flock", path_of("nightly report"), "sh", "-c", "echo; exec sleep 60", NULL};
    pid_t pid = command_start(hold); /* makes the file, empty */
    assert_int_equal(acquire(world->conn, &claim), DLOCK_EBUSY);
    assert_int_equal(kill(pid, SIGKILL), 0); /* its child still has the lock, as flock(1) wants it */
    assert_int_equal(acquire(world->conn, &claim), DLOCK_EBUSY);
    kill_command(pid);
    acquire_waiting(world->conn, &claim);
    assert_int_equal(release(world->conn, &claim), 0);
}

/* Unlocks 40 ms after the event for a close, and no event follows: a kernel that closes a file sends the event first
 * and unlocks afterwards, and may not get a processor in between. */
static int unlock_late(void *arg) {
    const int *ends = arg;
    char byte;
    int fd = open(path_of("job"), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (flock(fd, LOCK_EX) != 0 || write(ends[1], "x", 1) != 1 || read(ends[2], &byte, 1) != 1) return 1;
    close(open(path_of("job"), O_RDONLY | O_CLOEXEC));
    usleep(40000);
    if (flock(fd, LOCK_UN) != 0) return 2;
    return read(ends[2], &byte, 1) == 1 ? 0 : 3;
}

TEST(told_before_its_end) {
    struct dlock_claim claim = claim_of("job");
    int ends[4];
    char byte;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(pipe2(ends + 2, O_CLOEXEC), 0);
    pid_t pid = child_start(unlock_late, ends);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    int fd = listen_on(world->conn);
    assert_int_equal(write(ends[3], "x", 1), 1);
    assert_true(readable(fd, 10000));
    acquire_waiting(world->conn, &claim);
    assert_int_equal(write(ends[3], "x", 1), 1);
    assert_int_equal(child_end(pid), 0);
    assert_int_equal(release(world->conn, &claim), 0);
    for (int end = 0; end < 4; end++) close(ends[end]);
}

/* As `flock -u FD` in a shell: unlocks, and keeps the file open. */
static int unlock_without_close(void *arg) {
    const int *ends = arg;
    char byte;
    int fd = open(path_of("job"), O_RDONLY | O_CREAT | O_CLOEXEC, 0666);
    if (flock(fd, LOCK_EX) != 0 || write(ends[1], "x", 1) != 1 || read(ends[2], &byte, 1) != 1) return 1;
    usleep(700000); /* until waiters no longer look often because they have just come */
    if (flock(fd, LOCK_UN) != 0) return 2;
    return read(ends[2], &byte, 1) == 1 ? 0 : 3;
}

TEST(unlocked_and_kept_open) {
    int fd = listen_on(world->conn), ends[4];
    char byte;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(pipe2(ends + 2, O_CLOEXEC), 0);
    for (int i = 0; i < ROUNDS; i++) {
        struct dlock_claim claim = claim_of("job");
        pid_t pid = child_start(unlock_without_close, ends);
        assert_int_equal(read(ends[0], &byte, 1), 1);
        assert_int_equal(write(ends[3], "x", 1), 1);
        while (acquire(world->conn, &claim) == DLOCK_EBUSY) { /* looks often all the time: no event announces this
                                                                 end */
            assert_in_range(claim.retry_ms, 1, 100);
            (void)readable(fd, (int)claim.retry_ms);
            drain(world->conn, DLOCK_WAKE_LOOK, NULL);
        }
        assert_int_equal(claim.result, 0);
        assert_int_equal(release(world->conn, &claim), 0);
        assert_int_equal(write(ends[3], "x", 1), 1);
        assert_int_equal(child_end(pid), 0);
    }
    for (int end = 0; end < 4; end++) close(ends[end]);
}

/* Behind one of our holders, whose end causes an event, a waiter does not look that often. */
TEST(rests_behind_one_of_ours) {
    struct dlock_claim claim = claim_of("job");
    pid_t pid = holder_start("job", NULL);
    int fd = listen_on(world->conn), looks = 0;
    while (acquire(world->conn, &claim) == DLOCK_EBUSY && claim.retry_ms < 1000 && ++looks < 100) {
        (void)readable(fd, (int)claim.retry_ms);
        drain(world->conn, DLOCK_WAKE_LOOK, NULL);
    }
    assert_int_equal(claim.result, DLOCK_EBUSY);
    assert_int_equal(claim.retry_ms, 1000);
    give_up(world->conn, &claim);
    kill_child(pid);
}

TEST(flock_waits_for_us) {
    const char *const wait_for_it[] = {"flock", "-w", "10", path_of("job"), "true", NULL};
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
