/* Children and the descriptors they inherit. */
#include "fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct family {
    int report;
    bool abandons;
};

/* A holder whose child lives on. Reports the child's pid, and then waits to be told to release, or killed. */
static int hold_with_child(void *arg) {
    struct family *family = arg;
    struct dlock_claim claim = claim_of("job");
    struct dlock_error err;
    int fd, ready[2];
    char byte;
    void *conn = conn_open(world->dir);
    if (acquire(conn, &claim) != 0 || FILE_BACKEND->listen(conn, &fd, 1000, &err) != 0 || pipe(ready) != 0) return 1;
    pid_t child = fork();
    if (child == 0) {
        if (family->abandons) FILE_BACKEND->abandon(conn);
        if (write(ready[1], "x", 1) != 1) _exit(1);
        for (;;) pause();
    }
    if (read(ready[0], &byte, 1) != 1 || write(family->report, &child, sizeof child) != sizeof child) return 1;
    if (family->abandons)
        for (;;) pause();
    return release(conn, &claim);
}

typedef int family_run(void *arg);

static pid_t start_family(family_run *run, bool abandons, pid_t *child) {
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    struct family family = {ends[1], abandons};
    pid_t pid = child_start(run, &family);
    assert_int_equal(read(ends[0], child, sizeof *child), sizeof *child);
    close(ends[0]);
    close(ends[1]);
    return pid;
}

/* A release ends the lock even for a child that never closed its copy. */
TEST(release_with_a_copy_in_a_child) {
    pid_t child, holder = start_family(hold_with_child, false, &child);
    assert_int_equal(child_end(holder), 0);
    assert_false(is_held(world->conn, "job"));
    assert_int_equal(kill(child, SIGKILL), 0);
}

static int count_after_abandon(void *arg) {
    return count_fds() == *(int *)arg ? 0 : 1;
}

TEST(abandon_closes_all) {
    struct dlock_claim claims[5];
    struct dlock_error err;
    int fd, before;
    conn_close(world->conn);
    before = count_fds();
    world->conn = conn_open(world->dir);
    assert_int_equal(FILE_BACKEND->listen(world->conn, &fd, 1000, &err), 0);
    for (int i = 0; i < 5; i++) {
        claims[i] = claim_of("job");
        assert_int_equal(acquire(world->conn, &claims[i]), i == 0 ? 0 : DLOCK_EBUSY);
    }
    assert_true(count_fds() > before);
    assert_int_equal(child_end(child_start(count_after_abandon, &before)), 0);
}

static int abandon_and_look(void *arg) {
    FILE_BACKEND->abandon(arg);
    return fcntl(STDIN_FILENO, F_GETFD) < 0;
}

/* A child that is forked while a connection is being closed, and another thread already has the memory of its table. */
TEST(abandoning_a_closed_one_touches_nothing) {
    struct dlock_claim claim = claim_of("job");
    void *closed = conn_open(world->dir);
    unsigned char *memory[8];
    const size_t size = (size_t)40 << 10; /* of a page of the table */
    if (fcntl(STDIN_FILENO, F_GETFD) < 0) assert_int_equal(open("/dev/null", O_RDONLY), STDIN_FILENO);
    assert_int_equal(acquire(closed, &claim), 0);
    assert_int_equal(release(closed, &claim), 0);
    FILE_BACKEND->disconnect(closed);
    for (int i = 0; i < 8; i++) {
        memory[i] = malloc(size);
        assert_non_null(memory[i]);
        memset(memory[i], 'x', size);
    }
    assert_int_equal(child_end(child_start(abandon_and_look, closed)), 0);
    for (int i = 0; i < 8; i++) free(memory[i]);
    free(closed);
}

/* Descriptors are closed by exec. */
TEST(exec_inherits_nothing) {
    struct dlock_claim claim = claim_of("job"), waiter = claim_of("job");
    struct dlock_error err;
    char script[PATH_MAX];
    int fd;
    assert_int_equal(FILE_BACKEND->listen(world->conn, &fd, 1000, &err), 0);
    assert_int_equal(acquire(world->conn, &claim), 0);
    assert_int_equal(acquire(world->conn, &waiter), DLOCK_EBUSY);
    snprintf(script, sizeof script, "! ls -l /proc/$$/fd | grep -e '%s' -e inotify", world->dir);
    const char *const look[] = {"sh", "-c", script, NULL};
    assert_int_equal(command(look), 0);
}

/* ---- copies on purpose ---- */

static int keep_copies(void *arg) {
    int report = *(int *)arg; /* the copies themselves are inherited */
    if (write(report, "x", 1) != 1) return 1;
    for (;;) pause();
}

/* A guardian's part: it has copies of what the holder names, and of nothing else, and outlives it. */
static int hold_guarded(void *arg) {
    struct family *family = arg;
    struct dlock_claim claims[2] = {claim_of("job"), reader_of("read")};
    int fds[8], ready[2];
    char byte;
    void *conn = conn_open(world->dir);
    for (int i = 0; i < 2; i++)
        if (acquire(conn, &claims[i]) != 0) return 1;
    if (FILE_BACKEND->descriptors(conn, fds, 1) != 2 || FILE_BACKEND->descriptors(conn, fds, 8) != 2) return 2;
    if (fds[0] == fds[1] || pipe(ready) != 0) return 3;
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 2; i++) fds[i] = dup(fds[i]);
        FILE_BACKEND->abandon(conn);
        _exit(keep_copies(&ready[1]));
    }
    if (read(ready[0], &byte, 1) != 1 || write(family->report, &child, sizeof child) != sizeof child) return 4;
    if (family->abandons)
        for (;;) pause();
    usleep(100000);
    for (int i = 0; i < 2; i++)
        if (release(conn, &claims[i]) != 0) return 5;
    return FILE_BACKEND->descriptors(conn, fds, 8) == 0 ? 0 : 6;
}

TEST(a_guardian_keeps_the_grants_of_the_dead) {
    pid_t child, holder = start_family(hold_guarded, true, &child);
    struct dlock_claim reader = reader_of("read"), waiter = claim_of("job");
    kill_child(holder);
    assert_true(is_held(world->conn, "job"));
    assert_true(is_held(world->conn, "read"));
    assert_int_equal(acquire(world->conn, &reader), 0);
    assert_int_equal(inspect(world->conn, "read").n, 2);
    assert_int_equal(kill(child, SIGKILL), 0); /* orphaned: not our child to wait for */
    acquire_waiting(world->conn, &waiter);
}

/* A release is one, whatever copies there are, and wakes who waits. */
TEST(a_release_under_a_guardian) {
    struct dlock_claim waiter = claim_of("job");
    listen_on(world->conn);
    pid_t child, holder = start_family(hold_guarded, false, &child);
    acquire_told(world->conn, &waiter);
    assert_int_equal(child_end(holder), 0);
    assert_false(is_held(world->conn, "read"));
    assert_int_equal(inspect(world->conn, "read").n, 0);
    assert_int_equal(kill(child, SIGKILL), 0);
}
