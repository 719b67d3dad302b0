/* Wake-ups: that they come, soon, with the right name, and not for nothing. */
#include "fixture.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROUNDS = 7 };

/* Holds the lock until 100 ms after it learned of a waiter. */
static int hold_a_moment(void *arg) {
    const int *ends = arg;
    char byte;
    struct dlock_claim claim = claim_of("job");
    void *conn = conn_open(world->dir);
    if (acquire(conn, &claim) != 0 || write(ends[1], "x", 1) != 1 || read(ends[2], &byte, 1) != 1) return 1;
    usleep(100000);
    return release(conn, &claim);
}

TEST(after_release) {
    listen_on(world->conn);
    for (int i = 0; i < ROUNDS; i++) {
        struct dlock_claim claim = claim_of("job");
        int ends[4];
        char byte;
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        assert_int_equal(pipe2(ends + 2, O_CLOEXEC), 0);
        pid_t pid = child_start(hold_a_moment, ends);
        assert_int_equal(read(ends[0], &byte, 1), 1);
        assert_int_equal(acquire(world->conn, &claim), DLOCK_EBUSY);
        assert_int_equal(write(ends[3], "x", 1), 1);
        acquire_told(world->conn, &claim);
        assert_int_equal(release(world->conn, &claim), 0);
        assert_int_equal(child_end(pid), 0);
        for (int end = 0; end < 4; end++) close(ends[end]);
    }
}

enum { HAND_OVERS = 1500, STEPS = 4000 };

struct meeting {
    _Atomic int wanted, held; /* rounds */
};

static void dawdle(int steps) {
    for (volatile int i = 0; i < steps;) i = i + 1;
}

/* Holds it once a round, and gives it back soon after it said so. */
static int hold_in_rounds(void *arg) {
    struct meeting *meeting = arg;
    struct dlock_claim claim = claim_of("job");
    void *conn = conn_open(world->dir);
    for (int i = 1; i <= HAND_OVERS; i++) {
        while (meeting->wanted < i) sched_yield();
        if (acquire(conn, &claim) != 0) return 1;
        meeting->held = i;
        dawdle(i * 7 % STEPS);
        if (release(conn, &claim) != 0) return 2;
    }
    return 0;
}

/* However a request and the only release coincide, no waiter is left waiting. */
TEST(none_is_missed) {
    struct meeting *meeting = shared_new(sizeof *meeting);
    pid_t pid = child_start(hold_in_rounds, meeting);
    for (int i = 1; i <= HAND_OVERS; i++) {
        struct dlock_claim claim = claim_of("job");
        meeting->wanted = i;
        for (int64_t start = now_ms(); meeting->held < i; sched_yield())
            if (now_ms() - start > 10000) fail_msg("the holder is gone");
        acquire_told(world->conn, &claim);
        assert_int_equal(release(world->conn, &claim), 0);
    }
    assert_int_equal(child_end(pid), 0);
    shared_end(meeting, sizeof *meeting);
}

TEST(names_are_the_locks_own) {
    static const char *const names[] = {"job", "a/b c", ".", "..", "100%", "é", "it's"};
    void *other = conn_open(world->dir);
    int fd = listen_on(world->conn);
    assert_int_equal(listen_on(world->conn), fd); /* once more is the same */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct dlock_claim claim = claim_of(names[i]), waiter = claim_of(names[i]);
        char name[256] = "?";
        assert_int_equal(acquire(other, &claim), 0);
        assert_int_equal(acquire(world->conn, &waiter), DLOCK_EBUSY);
        assert_int_equal(release(other, &claim), 0);
        assert_true(readable(fd, 1000));
        assert_int_equal(drain(world->conn, DLOCK_WAKE_LOOK, name), 1);
        assert_string_equal(name, names[i]);
        assert_false(readable(fd, 0));
    }
    conn_close(other);
}

/* A cut name cannot be told from the file's: then every waiter looks. */
TEST(long_name) {
    char raw[256], name[256] = "?";
    memset(raw, '/', 255);
    raw[255] = '\0';
    struct dlock_claim claim = claim_of(raw), waiter = claim_of(raw);
    void *other = conn_open(world->dir);
    listen_on(world->conn);
    assert_int_equal(acquire(other, &claim), 0);
    assert_int_equal(acquire(world->conn, &waiter), DLOCK_EBUSY);
    assert_int_equal(release(other, &claim), 0);
    assert_int_equal(drain(world->conn, DLOCK_WAKE_LOOK, name), 1);
    assert_string_equal(name, "");
    conn_close(other);
}

/* Losers keep their descriptors, so their tries wake no waiter; nor do releases without waiters, files that are not
 * locks, or changes of modes. */
TEST(nothing_for_nothing) {
    struct dlock_claim holder = claim_of("job"), waiters[3];
    void *other = conn_open(world->dir);
    int fd = listen_on(world->conn);
    assert_int_equal(acquire(other, &holder), 0);
    for (int i = 0; i < 3; i++) waiters[i] = claim_of("job");
    for (int round = 0; round < 20; round++)
        for (int i = 0; i < 3; i++) assert_int_equal(acquire(other, &waiters[i]), DLOCK_EBUSY);
    for (int round = 0; round < 20; round++) assert_false(is_held(other, "free"));
    drain(world->conn, DLOCK_WAKE_LOOK, NULL); /* the first one made the file */
    for (int round = 0; round < 20; round++) assert_false(is_held(other, "free"));
    assert_false(readable(fd, 20));
    assert_int_equal(chmod(path_of("job"), 0600), 0);
    file_put(path_of(".hidden"), "x", 1);
    file_put(path_of("no%lock"), "x", 1);
    assert_int_equal(drain(world->conn, DLOCK_WAKE_LOOK, NULL), 0);
    for (int i = 0; i < 3; i++) give_up(other, &waiters[i]);
    assert_int_equal(release(other, &holder), 0);
    conn_close(other);
}

/* A release says whether it had a waiter to wake. */
TEST(releases_say_whom_they_wake) {
    void *other = conn_open(world->dir);
    listen_on(world->conn);
    for (int waits = 0; waits < 2; waits++) {
        struct dlock_claim holder = claim_of("job"), waiter = claim_of("job");
        assert_int_equal(acquire(other, &holder), 0);
        if (waits) assert_int_equal(acquire(world->conn, &waiter), DLOCK_EBUSY);
        holder.retry_ms = -1;
        assert_int_equal(release(other, &holder), 0);
        assert_int_equal(holder.retry_ms, waits ? -1 : 0);
        give_up(world->conn, &waiter);
    }
    conn_close(other);
}

/* The sum of the successive pauses after which a claim that is still busy would look again, until they are as long as
 * they get. */
static int64_t looks_for(void *conn, struct dlock_claim *claim) {
    int64_t sum = 0;
    for (int64_t last = 0;; last = claim->retry_ms) {
        assert_int_equal(acquire(conn, claim), DLOCK_EBUSY);
        if (last == 0) assert_in_range(claim->retry_ms, 1, 20);
        if (claim->retry_ms == last) return sum - last;
        assert_in_range(claim->retry_ms, last + 1, last == 0 ? 20 : 3 * last);
        sum += claim->retry_ms;
    }
}

/* Several looks, ever later, when a wait begins and after each wake, because the kernel announces a close before it
 * unlocks; then only now and then. */
TEST(retries) {
    struct dlock_claim holder = claim_of("job"), waiter = claim_of("job");
    listen_on(world->conn);
    assert_int_equal(acquire(world->conn, &holder), 0);
    for (int wakes = 0; wakes < 2; wakes++) {
        assert_int_equal(drain(world->conn, DLOCK_WAKE_LOOK, NULL), wakes);
        assert_in_range(looks_for(world->conn, &waiter), 500, 2000);
        assert_int_equal(waiter.retry_ms, 1000);
        close(open(path_of("job"), O_RDONLY | O_CLOEXEC));
    }
    give_up(world->conn, &waiter);
    assert_int_equal(release(world->conn, &holder), 0);
}

/* Several closes of one file in a row, of either kind, are one wake. */
TEST(closes_in_a_row) {
    static const int flags[] = {O_RDWR, O_RDONLY, O_RDWR, O_RDONLY};
    file_put(path_of("job"), "", 0);
    listen_on(world->conn);
    for (int i = 0; i < 4; i++) close(open(path_of("job"), flags[i] | O_CLOEXEC));
    assert_int_equal(drain(world->conn, DLOCK_WAKE_LOOK, NULL), 1);
}

static void vanishing_wakes(int (*vanish)(void)) {
    struct dlock_claim holder = claim_of("job"), waiter = claim_of("job");
    char name[256] = "?";
    listen_on(world->conn);
    assert_int_equal(acquire(world->conn, &holder), 0);
    assert_int_equal(acquire(world->conn, &waiter), DLOCK_EBUSY);
    assert_int_equal(vanish(), 0);
    assert_int_equal(drain(world->conn, DLOCK_WAKE_LOOK, name), 1);
    assert_string_equal(name, "job");
    assert_int_equal(acquire(world->conn, &waiter), 0);
}

static int unlink_it(void) {
    return unlink(path_of("job"));
}

static int rename_it(void) {
    return rename(path_of("job"), path_of(".old"));
}

TEST(unlink_wakes) {
    vanishing_wakes(unlink_it);
}

TEST(rename_wakes) {
    vanishing_wakes(rename_it);
}

/* More events than the kernel keeps: every waiter looks. */
TEST(overflow) {
    struct dlock_error err = {0, ""};
    struct dlock_wake wake;
    bool any = false;
    listen_on(world->conn);
    for (int i = 0; i < 20000; i++) { /* the default limit is 16384 */
        int fd = open(path_of(i & 1 ? "one" : "two"), O_RDONLY | O_CREAT | O_CLOEXEC, 0666);
        assert_true(fd >= 0);
        close(fd);
    }
    while (FILE_BACKEND->wake(world->conn, &wake, &err) == 1) any = any || !wake.name;
    assert_true(any);
}

TEST(polls_without_inotify) {
    struct dlock_claim holder = claim_of("job"), waiter = claim_of("job");
    char away[PATH_MAX];
    assert_int_equal(acquire(world->conn, &holder), 0);
    snprintf(away, sizeof away, "%s-away", world->dir);
    assert_int_equal(rename(world->dir, away), 0);
    int fd = listen_on(world->conn); /* nothing to watch under that path */
    assert_int_equal(rename(away, world->dir), 0);
    assert_non_null(strstr(last_log, "polling"));
    assert_false(readable(fd, 0));
    assert_int_equal(drain(world->conn, DLOCK_WAKE_LOOK, NULL), 0);
    assert_int_equal(acquire(world->conn, &waiter), DLOCK_EBUSY);
    assert_int_equal(waiter.retry_ms, -1);
}
