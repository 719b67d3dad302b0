/* The holders of a lock, and the list of held locks. */
#include "fixture.h"
#include "support/starve.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

/* Looking takes nothing away: the holder keeps its lock, and a free one stays free. */
TEST(disturbs_nobody) {
    struct dlock_claim claim = claim_of("job");
    assert_int_equal(acquire(world->conn, &claim), 0);
    for (int i = 0; i < 50; i++) inspect(world->conn, "job");
    assert_true(is_held(world->conn, "job"));
    assert_int_equal(release(world->conn, &claim), 0);
    inspect(world->conn, "job");
    assert_int_equal(list(world->conn, "", 0, 1000), 0);
    assert_false(is_held(world->conn, "job"));
}

TEST(holder_in_another_process) {
    uint64_t fence;
    pid_t pid = holder_start("job", &fence);
    char tail[64];
    struct seen seen = inspect(world->conn, "job");
    snprintf(tail, sizeof tail, ":%ld", (long)pid);
    assert_int_equal(seen.n, 1);
    assert_non_null(strstr(seen.holders[0].token, tail));
    assert_true(seen.holders[0].fence == fence);
    kill_child(pid);
    assert_int_equal(inspect(world->conn, "job").n, 0); /* although its token is still in the file */
}

static int show_job(const struct dlock_info *info, void *shown) {
    if (strcmp(info->name, "job") == 0) ++*(int *)shown;
    return 0;
}

static int inspects_job(void *conn, struct dlock_error *err) {
    int shown = 0, rc = FILE_BACKEND->inspect(conn, "job", show_job, &shown, 10000, err);
    if (rc == 0) assert_int_equal(shown, 1);
    return rc;
}

static int lists_job(void *conn, struct dlock_error *err) {
    char cursor[256] = "";
    int shown = 0, rc = FILE_BACKEND->list(conn, "", cursor, show_job, &shown, 10000, err);
    if (rc == 0) assert_int_equal(shown, 1);
    return rc;
}

TEST(without_descriptors_no_lock_seems_free) {
    struct dlock_error err = {0, ""};
    pid_t pid = holder_start("job", NULL);
    assert_true(starve(inspects_job, world->conn, DLOCK_ENOMEM, &err) > 0);
    assert_non_null(strstr(err.message, "raise the limit (ulimit -n)"));
    assert_true(starve(lists_job, world->conn, DLOCK_ENOMEM, &err) > 1); /* the directory needs one, a file the next */
    kill_child(pid);
}

/* flock(1) leaves no name, but the kernel knows its pid; a dead holder's token is not mistaken for it. */
TEST(foreign_holder) {
    const char *path = path_of("job");
    const char *const hold[] = {"flock", path, "sh", "-c", "echo; exec sleep 60", NULL};
    char expected[64];
    kill_child(holder_start("job", NULL));
    pid_t pid = command_start(hold);
    snprintf(expected, sizeof expected, "flock:%ld", (long)pid);
    struct seen seen = inspect(world->conn, "job");
    assert_int_equal(seen.n, 1);
    assert_string_equal(seen.holders[0].token, expected);
    assert_true(seen.holders[0].fence == 0);
    assert_int_equal(list(world->conn, "", 0, 1000), 1);
    kill_command(pid);
}

enum { MANY = 300 };

TEST(lists_in_pages) {
    static struct dlock_claim claims[MANY];
    static char names[MANY][16];
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "lock %d", i);
        claims[i] = claim_of(names[i]);
        assert_int_equal(acquire(world->conn, &claims[i]), 0);
    }
    file_put(path_of(".hidden"), "", 0);
    file_put(path_of("not%encoded"), "", 0);
    assert_int_equal(list(world->conn, "", 0, 10000), MANY);
    assert_int_equal(list(world->conn, "lock ", 0, 1), MANY); /* time for one file per page */
    assert_int_equal(list(world->conn, "lock ", 0, 3000), MANY);
}

/* There the owner of the lock cannot be determined, so the token goes with its grant; unless the file is not ours any
 * more. */
static int token_stays(void *conn) {
    struct dlock_claim claim = claim_of("erased");
    char text[1024];
    if (acquire(conn, &claim) != 0 || release(conn, &claim) != 0) return 4;
    file_get(path_of("erased"), text, sizeof text);
    if (strstr(text, claim.token) || !strstr(text, "name  erased\n")) return 5;
    if (acquire(conn, &claim) != 0) return 6;
    file_put(path_of("erased"), "mine now\n", 9);
    if (release(conn, &claim) != 0) return 7;
    file_get(path_of("erased"), text, sizeof text);
    return strcmp(text, "mine now\n") == 0 ? 0 : 8;
}

static int look_from_a_container(void) {
    void *conn = conn_open(world->dir);
    struct seen seen = inspect(conn, "job");
    if (seen.n != 1 || seen.holders[0].fence == 0 || list(conn, "", 0, 1000) != 1) return 1;
    if (inspect(conn, "free").n != 0) return 2;
    return is_held(conn, "free") ? 3 : token_stays(conn);
}

/* The answers of a container's /proc, where this user may not make a container. */
static bool in_a_container;

ssize_t __real_readlink(const char *path, char *out, size_t size);
ssize_t __wrap_readlink(const char *path, char *out, size_t size);
FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);

static int misses;     /* how many readings of /proc/locks show nothing */
static bool twice;     /* readings of it show each lock twice */
static int pid_inside; /* not 0: this process is in a container, and has this pid there */

ssize_t __wrap_readlink(const char *path, char *out, size_t size) {
    static const char other[] = "pid:[4026532999]";
    if (!in_a_container || strcmp(path, "/proc/self/ns/pid") != 0) return __real_readlink(path, out, size);
    assert_true(size >= sizeof other - 1);
    memcpy(out, other, sizeof other - 1);
    return sizeof other - 1;
}

static FILE *locks_twice(void) {
    static char text[2 * 65536];
    FILE *file = __real_fopen("/proc/locks", "re");
    assert_non_null(file);
    size_t n = fread(text, 1, sizeof text / 2, file);
    fclose(file);
    memcpy(text + n, text, n);
    return fmemopen(text, 2 * n, "r");
}

static FILE *status_inside(void) {
    static char text[64];
    snprintf(text, sizeof text, "Pid:\t%d\nNSpid:\t%d\t%d\n", (int)getpid(), (int)getpid(), pid_inside);
    return fmemopen(text, strlen(text), "r");
}

FILE *__wrap_fopen(const char *path, const char *mode) {
    bool locks = strcmp(path, "/proc/locks") == 0, missed = locks && misses > 0;
    if (missed) misses--;
    if (locks && twice) return locks_twice();
    char status[64];
    snprintf(status, sizeof status, "/proc/%d/status", (int)getpid());
    if (pid_inside && strcmp(path, status) == 0) return status_inside();
    return __real_fopen((locks && in_a_container) || missed ? "/dev/null" : path, mode);
}

/* The kernel shows the list in pieces, and a lock is not shown when earlier ones end between two of them. */
TEST(a_reading_may_miss_a_lock) {
    const char *const reads[] = {"flock", "-s", path_of("job"), "sh", "-c", "echo; exec sleep 60", NULL};
    kill_child(holder_start("job", NULL));
    pid_t pid = command_start(reads);
    misses = 2;
    assert_int_equal(inspect(world->conn, "job").n, 1);
    kill_command(pid);
}

/* It shows a lock again when others are taken between two pieces. The pid of a client in a container is not in it. */
TEST(a_reading_may_show_a_lock_twice) {
    const char *const reads[] = {"flock", "-s", path_of("job"), "sh", "-c", "echo; exec sleep 60", NULL};
    struct dlock_claim here = reader_of("job"), elsewhere = reader_of("job"), again = reader_of("job");
    elsewhere.token = "a123456789abcdef01234567.1@container:1";
    again.token = "a123456789abcdef01234567.2@container:1";
    assert_int_equal(acquire(world->conn, &elsewhere), 0);
    pid_t pid = command_start(reads);
    twice = true;
    assert_int_equal(inspect(world->conn, "job").n, 2);
    assert_int_equal(acquire(world->conn, &again), 0);
    assert_int_equal(inspect(world->conn, "job").n, 3);
    assert_int_equal(release(world->conn, &again), 0);
    assert_int_equal(release(world->conn, &elsewhere), 0);
    assert_int_equal(acquire(world->conn, &here), 0);
    assert_int_equal(inspect(world->conn, "job").n, 2);
    twice = false;
    kill_command(pid);
}

/* Its lock is its own, and not one of flock(1): a request for permits is answered as it is beside any other lock. */
TEST(a_holder_in_a_container) {
    struct dlock_claim claim = claim_of("job"), permit = permit_of("job", 2);
    claim.token = "a123456789abcdef01234567.1@container:1";
    assert_int_equal(acquire(world->conn, &claim), 0);
    pid_inside = 1;
    struct seen seen = inspect(world->conn, "job");
    int beside = acquire(world->conn, &permit);
    pid_inside = 0;
    assert_int_equal(seen.n, 1);
    assert_string_equal(seen.holders[0].token, claim.token);
    assert_true(seen.holders[0].fence == claim.fence);
    assert_int_equal(beside, DLOCK_EINVAL);
}

/* They are one process, beside which a user of flock(1) is seen. */
TEST(two_clients_of_a_process_in_a_container) {
    const char *const reads[] = {"flock", "-s", path_of("job"), "sh", "-c", "echo; exec sleep 60", NULL};
    struct dlock_claim one = reader_of("job"), two = reader_of("job");
    char expected[64];
    one.token = "a123456789abcdef01234567.1@container:1";
    two.token = "b123456789abcdef01234567.1@container:1";
    assert_int_equal(acquire(world->conn, &one), 0);
    assert_int_equal(acquire(world->conn, &two), 0);
    pid_t pid = command_start(reads);
    snprintf(expected, sizeof expected, "flock:%ld", (long)pid);
    pid_inside = 1;
    struct seen seen = inspect(world->conn, "job");
    pid_inside = 0;
    assert_int_equal(seen.n, 3);
    assert_string_equal(seen.holders[2].token, expected);
    kill_command(pid);
    assert_int_equal(inspect(world->conn, "job").n, 2);
}

/* Readers whose tokens are not written yet are not mistaken for users of flock(1). */
TEST(seats_without_tokens) {
    const char *path = path_of("job"), *end;
    struct dlock_claim claim = reader_of("job");
    char text[1024];
    assert_int_equal(acquire(world->conn, &claim), 0);
    pid_t pid = holder_start_as(reader_of("job"), NULL);
    file_get(path, text, sizeof text);
    end = strstr(text, "name  job\n");
    assert_non_null(end);
    assert_int_equal(truncate(path, end + strlen("name  job\n") - text), 0);
    struct seen seen = inspect(world->conn, "job");
    assert_int_equal(seen.n, 2);
    assert_string_equal(seen.holders[0].token, "");
    assert_string_equal(seen.holders[1].token, "");
    kill_child(pid);
}

/* Where /proc/locks says nothing about processes outside. */
static int in_pid_namespace(void *arg) {
    (void)arg;
    in_a_container = unshare(CLONE_NEWPID | CLONE_NEWNS) != 0;
    pid_t pid = fork();
    if (pid == 0) {
        if (!in_a_container &&
            (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 || mount("proc", "/proc", "proc", 0, NULL) != 0))
            in_a_container = true;
        _exit(look_from_a_container());
    }
    return child_end(pid);
}

TEST(from_a_container) {
    struct dlock_claim claim = claim_of("job");
    assert_int_equal(acquire(world->conn, &claim), 0);
    assert_false(is_held(world->conn, "free"));
    assert_int_equal(child_end(child_start(in_pid_namespace, NULL)), 0);
}

#define SEATS \
    (INT64_C(1) << 32) /* of each kind; the readers' begin behind the first 2^60 bytes, see backends/file/file.h */
#define READERS ((INT64_C(1) << 60) + SEATS)
#define PERMITS (READERS + SEATS)

/* Locks `length` bytes of the file from `at` on, as every reader of the file may; returns the descriptor. */
static int bytes_lock(const char *path, off_t at, off_t length) {
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = length};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &lock), 0);
    return fd;
}

/* A lock on all seats at once is counted as one of each kind. The same holds for one to the end of all files. */
TEST(a_long_byte_lock) {
    struct dlock_claim free_one = claim_of("free"), reader = reader_of("job"), other = claim_of("other");
    assert_int_equal(acquire(world->conn, &free_one), 0);
    assert_int_equal(release(world->conn, &free_one), 0);
    assert_int_equal(acquire(world->conn, &reader), 0);
    assert_int_equal(acquire(world->conn, &other), 0);
    int all = bytes_lock(path_of("free"), READERS, 2 * SEATS);
    int behind = bytes_lock(path_of("job"), READERS + 7, 0);
    assert_int_equal(list(world->conn, "free", 100, 10000), 2);
    assert_int_equal(list(world->conn, "job", 100, 10000), 3);
    assert_int_equal(list(world->conn, "", 100, 10000), 6);
    assert_int_equal(inspect(world->conn, "free").n, 2);
    close(all);
    close(behind);
    assert_int_equal(list(world->conn, "", 100, 10000), 2);
}

static int see_slowly(const struct dlock_info *info, void *arg) {
    const struct timespec pause = {0, 20000000};
    (void)info;
    ++*(int *)arg;
    nanosleep(&pause, NULL);
    return 0;
}

/* Too many single bytes for the time, here because of a slow caller: the error names the file. */
TEST(too_many_byte_locks) {
    struct dlock_claim claim = claim_of("job");
    struct dlock_error err = {0, ""};
    char cursor[256] = "";
    int fds[100], n = 0;
    assert_int_equal(acquire(world->conn, &claim), 0);
    assert_int_equal(release(world->conn, &claim), 0);
    for (int i = 0; i < 100; i++) fds[i] = bytes_lock(path_of("job"), PERMITS + 3 * i, 1);
    assert_int_equal(FILE_BACKEND->inspect(world->conn, "job", see_slowly, &n, 300, &err), DLOCK_EUNAVAILABLE);
    assert_true(n < 100);
    assert_non_null(strstr(err.message, path_of("job")));
    assert_int_equal(FILE_BACKEND->list(world->conn, "", cursor, see_slowly, &n, 300, &err), DLOCK_EUNAVAILABLE);
    for (int i = 0; i < 100; i++) close(fds[i]);
    assert_int_equal(inspect(world->conn, "job").n, 0);
}
