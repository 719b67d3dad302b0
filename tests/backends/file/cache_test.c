/* Descriptors that are kept for the next acquire: later changes to their files must be noticed all the same. */
#include "fixture.h"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

time_t whole_second;

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

/* The backend makes some system calls directly, none with more than five arguments. */
long __wrap_syscall(long number, ...) {
    long args[5];
    va_list all;
    va_start(all, number);
    for (int i = 0; i < 5; i++) args[i] = va_arg(all, long);
    va_end(all);
    long rc = __real_syscall(number, args[0], args[1], args[2], args[3], args[4]);
#ifdef SYS_fstat
    struct stat *st = (void *)(uintptr_t)args[1];
    if (number == SYS_fstat && rc == 0 && whole_second && S_ISDIR(st->st_mode))
        st->st_ctim = (struct timespec){whole_second, 0};
#endif
    return rc;
}

/* Uses the lock until the directory's time stamp is old enough to be relied on. */
static void use_it_for_a_while(void) {
    for (int i = 0; i < 4; i++) {
        assert_false(is_held(world->conn, "job"));
        usleep(40000);
    }
}

/* Does what a foreign process does. */
static bool free_for_others(void) {
    int fd = open(path_of("job"), O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    bool got = flock(fd, LOCK_EX | LOCK_NB) == 0;
    close(fd);
    return got;
}

static void unlink_it(void) {
    assert_int_equal(unlink(path_of("job")), 0);
}

static void rename_it(void) {
    assert_int_equal(rename(path_of("job"), path_of("away")), 0);
}

static void replace_it(void) {
    file_put(path_of(".new"), "", 0);
    assert_int_equal(rename(path_of(".new"), path_of("job")), 0);
}

static void unlink_but_keep_it(void) {
    (void)unlink(path_of("kept"));
    assert_int_equal(link(path_of("job"), path_of("kept")), 0);
    unlink_it();
}

static void (*const changes[])(void) = {unlink_it, rename_it, replace_it, unlink_but_keep_it};
enum { CHANGES = sizeof changes / sizeof *changes };

/* The file under the name is what is locked, not one that was. */
TEST(changed_while_idle) {
    for (int i = 0; i < 2 * CHANGES; i++) {
        struct dlock_claim claim = claim_of("job");
        if (i % 2)
            use_it_for_a_while();
        else
            assert_false(is_held(world->conn, "job"));
        changes[i / 2]();
        assert_int_equal(acquire(world->conn, &claim), 0);
        assert_false(free_for_others());
        assert_int_equal(renew(world->conn, &claim), 0);
        assert_int_equal(release(world->conn, &claim), 0);
        assert_true(free_for_others());
    }
}

/* Where many changes have the same time stamp, such as on ext2. */
TEST(changed_within_a_second) {
    for (int i = 0; i < CHANGES; i++) {
        struct dlock_claim claim = claim_of("job");
        whole_second = time(NULL) - 1; /* old enough to be relied on, if it had a fraction */
        for (int cycle = 0; cycle < 2; cycle++) assert_false(is_held(world->conn, "job"));
        changes[i]();
        int rc = acquire(world->conn, &claim);
        whole_second = 0;
        assert_int_equal(rc, 0);
        assert_false(free_for_others());
        assert_int_equal(release(world->conn, &claim), 0);
    }
}

/* And a holder learns at its release that others could have taken the lock. */
TEST(changed_while_held) {
    for (int i = 0; i < 2 * CHANGES; i++) {
        struct dlock_claim claim = claim_of("job");
        if (i % 2) use_it_for_a_while();
        assert_int_equal(acquire(world->conn, &claim), 0);
        changes[i / 2]();
        assert_int_equal(release(world->conn, &claim), DLOCK_ELOST);
    }
}

TEST(changed_while_waiting) {
    void *other = conn_open(world->dir);
    for (int i = 0; i < CHANGES; i++) {
        struct dlock_claim holder = claim_of("job"), waiter = claim_of("job");
        use_it_for_a_while();
        assert_int_equal(acquire(other, &holder), 0);
        assert_int_equal(acquire(world->conn, &waiter), DLOCK_EBUSY);
        changes[i]();
        assert_int_equal(acquire(world->conn, &waiter), 0);
        assert_false(free_for_others());
        assert_int_equal(release(world->conn, &waiter), 0);
        assert_int_equal(release(other, &holder), DLOCK_ELOST);
    }
    conn_close(other);
}

/* Files of other names come and go. */
TEST(in_a_busy_directory) {
    use_it_for_a_while();
    for (int i = 0; i < 100; i++) {
        struct dlock_claim claim = claim_of("job");
        file_put(path_of("something"), "", 0);
        assert_int_equal(acquire(world->conn, &claim), 0);
        assert_int_equal(unlink(path_of("something")), 0);
        assert_false(free_for_others());
        assert_int_equal(release(world->conn, &claim), 0);
    }
}

/* Another client's grant is in the record, although our descriptor is older. */
TEST(fences_of_others_count) {
    void *other = conn_open(world->dir);
    uint64_t last = 0;
    for (int i = 0; i < 200; i++) {
        struct dlock_claim claim = claim_of("job");
        void *conn = i % 3 ? world->conn : other;
        assert_int_equal(acquire(conn, &claim), 0);
        assert_true(claim.fence > last);
        last = claim.fence;
        if (i == 50) { /* far ahead of every clock */
            char text[200];
            last = UINT64_C(1) << 54;
            snprintf(text, sizeof text, "dlock lock, format 1\nfence %llu\ntoken \nname  job\n",
                     (unsigned long long)last);
            file_put(path_of("job"), text, strlen(text));
        }
        assert_int_equal(release(conn, &claim), 0);
    }
    conn_close(other);
}

enum { NAMES = 500, AT_MOST = 64 };

TEST(a_few_only) {
    int before = count_fds();
    for (int i = 0; i < NAMES; i++) {
        char name[16];
        snprintf(name, sizeof name, "job %d", i);
        assert_false(is_held(world->conn, name));
    }
    int kept = count_fds() - before;
    assert_in_range(kept, AT_MOST / 2, AT_MOST);
    conn_close(world->conn);
    int after = count_fds();
    world->conn = conn_open(world->dir);
    assert_int_equal(after, before - 1); /* the directory's */
}

/* Before descriptors run out, unused ones are given up. */
TEST(given_up_when_short) {
    struct rlimit limit, few;
    struct dlock_claim held[3] = {claim_of("one"), claim_of("two"), claim_of("three")};
    for (int i = 0; i < 20; i++) {
        char name[16];
        snprintf(name, sizeof name, "job %d", i);
        assert_false(is_held(world->conn, name));
    }
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC); /* the lowest that is free */
    close(fd);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    few = limit;
    few.rlim_cur = (rlim_t)fd;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int i = 0; i < 3; i++) acquire(world->conn, &held[i]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int i = 0; i < 3; i++) assert_int_equal(held[i].result, 0);
}
