/* The system calls of a cycle, counted by a tracer. */
#include "fixture.h"
#include "support/calls.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { CYCLES = 50, FREE_NAMES = 100, LISTS = 20 };

struct subject {
    const char *dir;
    enum dlock_mode mode;
};

/* Cycles between marks (getppid), in a traced child. */
static void run(const struct subject *subject) {
    void *conn = conn_open(subject->dir);
    calls_follow();
    for (int i = 0; i < CYCLES; i++) {
        struct dlock_claim claim = claim_of("job");
        claim.mode = subject->mode;
        claim.limit = subject->mode == DLOCK_PERMIT ? 3 : 0;
        calls_mark();
        if (acquire(conn, &claim) != 0 || release(conn, &claim) != 0) _exit(1);
    }
    calls_mark();
    _exit(0);
}

static int calls_of_a_cycle(enum dlock_mode mode) {
    const struct subject subject = {world->dir, mode};
    assert_false(is_held(world->conn, "job"));
    usleep(100000); /* until the directory's time stamp is old enough to be relied on */
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        FILE_BACKEND->abandon(world->conn);
        run(&subject);
    }
    int calls = calls_fewest(pid, CYCLES);
    print_message("system calls of an uncontended cycle in mode %d: %d\n", mode, calls);
    return calls;
}

/* flock, pread, pwrite, statx; statx, flock, fcntl. */
TEST(exclusive) {
    assert_in_range(calls_of_a_cycle(DLOCK_EXCLUSIVE), 4, 7);
}

TEST(shared) {
    assert_in_range(calls_of_a_cycle(DLOCK_SHARED), 4, 16);
}

TEST(permit) {
    assert_in_range(calls_of_a_cycle(DLOCK_PERMIT), 4, 16);
}

/* ---- a wait ---- */

static void try_often(void) {
    void *conn = conn_open(world->dir);
    struct dlock_claim claim = claim_of("job");
    if (acquire(conn, &claim) != DLOCK_EBUSY) _exit(1); /* opens the file */
    calls_follow();
    for (int i = 0; i < CYCLES; i++) {
        calls_mark();
        if (acquire(conn, &claim) != DLOCK_EBUSY) _exit(1);
    }
    calls_mark();
    _exit(0);
}

/* flock, fstat, fcntl. */
TEST(a_try_that_finds_the_lock_taken) {
    struct dlock_claim holder = claim_of("job");
    assert_int_equal(acquire(world->conn, &holder), 0);
    usleep(100000); /* as above */
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        FILE_BACKEND->abandon(world->conn);
        try_often();
    }
    assert_in_range(calls_fewest(pid, CYCLES), 2, 3);
}

/* ---- the list ---- */

/* True if /proc/locks shows the locks in this directory, and this process is in no container. */
static bool locks_are_listed(void) {
    struct dlock_claim claim = claim_of("shown");
    char ns[32] = "", expected[64], *line = NULL;
    size_t size = 0;
    struct stat st;
    bool found = false;
    assert_int_equal(acquire(world->conn, &claim), 0);
    assert_int_equal(stat(path_of("shown"), &st), 0);
    snprintf(expected, sizeof expected, " %02x:%02x:%llu ", major(st.st_dev), minor(st.st_dev),
             (unsigned long long)st.st_ino);
    FILE *file = fopen("/proc/locks", "re");
    while (file && getline(&line, &size, file) > 0) found = found || strstr(line, expected);
    if (file) fclose(file);
    free(line);
    assert_int_equal(release(world->conn, &claim), 0);
    return found && readlink("/proc/self/ns/pid", ns, sizeof ns - 1) > 0 && strcmp(ns, "pid:[4026531836]") == 0;
}

static void list_often(void) {
    void *conn = conn_open(world->dir);
    calls_follow();
    for (int i = 0; i < LISTS; i++) {
        calls_mark();
        if (list(conn, "", 0, 10000) != 1) _exit(1);
    }
    calls_mark();
    _exit(0);
}

/* However many they are. */
TEST(a_list_reads_no_free_name) {
    struct dlock_claim held = claim_of("held");
    if (!locks_are_listed()) skip();
    for (int i = 0; i < FREE_NAMES; i++) {
        char name[16];
        snprintf(name, sizeof name, "free %d", i);
        assert_false(is_held(world->conn, name));
    }
    assert_int_equal(acquire(world->conn, &held), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        FILE_BACKEND->abandon(world->conn);
        list_often();
    }
    int calls = calls_fewest(pid, LISTS);
    print_message("system calls of a list with %d free names: %d\n", FREE_NAMES, calls);
    assert_in_range(calls, 10, FREE_NAMES - 1);
}
