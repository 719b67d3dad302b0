/* Taking a lock away from its holder. */
#include "crowd.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* The number of files, with those that begin with a dot. */
static int files_in(const char *dir) {
    DIR *list = opendir(dir);
    int n = -2; /* . and .. */
    assert_non_null(list);
    while (readdir(list)) n++;
    closedir(list);
    return n;
}

static int break_lock(void *conn, const char *name) {
    struct dlock_error err = {0, ""};
    return FILE_BACKEND->break_lock(conn, name, 3000, &err);
}

/* The holder's release may come first, before any renewal. */
TEST(release_after_a_break) {
    struct dlock_claim holder = claim_of("job"), next = claim_of("job");
    assert_int_equal(acquire(world->conn, &holder), 0);
    assert_int_equal(break_lock(world->conn, "job"), 0);
    assert_int_equal(acquire(world->conn, &next), 0);
    assert_int_equal(release(world->conn, &holder), DLOCK_ELOST);
    assert_true(is_held(world->conn, "job"));
    assert_int_equal(release(world->conn, &next), 0);
}

TEST(a_stopped_holder) {
    uint64_t fence;
    struct dlock_claim next = claim_of("job");
    pid_t pid = holder_start("job", &fence);
    kill(pid, SIGSTOP);
    assert_int_equal(break_lock(world->conn, "job"), 0);
    assert_int_equal(acquire(world->conn, &next), 0);
    assert_true(next.fence > fence);
    assert_int_equal(break_lock(world->conn, "job"), 0);
    assert_int_equal(break_lock(world->conn, "job"), DLOCK_ELOST);
    kill_child(pid);
}

/* Far ahead of the clock, so that nothing but the file can carry it. */
static void put_fence(uint64_t fence) {
    char text[200];
    snprintf(text, sizeof text, "dlock lock, format 1\nfence %llu\ntoken \nname  job\n", (unsigned long long)fence);
    file_put(path_of("job"), text, strlen(text));
}

static const uint64_t far_fence = UINT64_C(1) << 54;

TEST(fence_goes_over) {
    struct dlock_claim holder = claim_of("job"), next = claim_of("job");
    put_fence(far_fence);
    assert_int_equal(acquire(world->conn, &holder), 0);
    assert_int_equal(break_lock(world->conn, "job"), 0);
    assert_int_equal(acquire(world->conn, &next), 0);
    assert_true(holder.fence == far_fence + 1);
    assert_true(next.fence == far_fence + 2);
}

TEST(rights_go_over) {
    struct dlock_claim holder = claim_of("job");
    struct stat st;
    assert_int_equal(acquire(world->conn, &holder), 0);
    assert_int_equal(chmod(path_of("job"), 0664), 0);
    if (geteuid() == 0) assert_int_equal(chown(path_of("job"), 1234, 4321), 0);
    assert_int_equal(break_lock(world->conn, "job"), 0);
    assert_int_equal(stat(path_of("job"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0664);
    if (geteuid() == 0) assert_true(st.st_uid == 1234 && st.st_gid == 4321);
}

TEST(foreign_file_is_left_alone) {
    const char *path = path_of("job");
    const char *const hold[] = {"flock", path, "sh", "-c", "echo; exec sleep 60", NULL};
    char text[32];
    file_put(path, "somebody's data\n", 16);
    pid_t pid = command_start(hold);
    assert_int_equal(break_lock(world->conn, "job"), DLOCK_EINVAL);
    file_get(path, text, sizeof text);
    assert_string_equal(text, "somebody's data\n");
    assert_int_equal(files_in(world->dir), 1);
    kill_command(pid);
}

/* A stranger's file in a sticky directory cannot be deleted, as a folder cannot be unlinked: neither stops a break,
 * which leaves nothing behind itself. */
TEST(among_what_strangers_left) {
    struct dlock_claim holder = claim_of("job"), next = claim_of("job");
    assert_int_equal(mkdir(path_of(".break"), 0700), 0);
    assert_int_equal(mkdir(path_of(".break.new"), 0700), 0);
    assert_int_equal(acquire(world->conn, &holder), 0);
    assert_int_equal(break_lock(world->conn, "job"), 0);
    assert_int_equal(acquire(world->conn, &next), 0);
    assert_true(next.fence > holder.fence);
    assert_int_equal(rmdir(path_of(".break")), 0);
    assert_int_equal(rmdir(path_of(".break.new")), 0);
    assert_int_equal(files_in(world->dir), 1);
}

/* Another break of this lock is stopped: that ends in time. A break of another lock does not wait for it. */
TEST(ends_in_time) {
    struct dlock_claim holder = claim_of("job"), other = claim_of("other");
    struct flock turn = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (INT64_C(1) << 60) + 4, .l_len = 1};
    struct dlock_error err = {0, ""};
    assert_int_equal(acquire(world->conn, &holder), 0);
    assert_int_equal(acquire(world->conn, &other), 0);
    int fd = open(path_of("job"), O_RDWR | O_CLOEXEC);
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &turn), 0);
    int64_t start = now_ms();
    assert_int_equal(FILE_BACKEND->break_lock(world->conn, "job", 100, &err), DLOCK_EBUSY);
    assert_in_range(now_ms() - start, 100, 10000);
    assert_int_equal(break_lock(world->conn, "other"), 0);
    close(fd);
    assert_int_equal(renew(world->conn, &holder), 0);
    assert_int_equal(break_lock(world->conn, "job"), 0);
}

/* ---- all at once ---- */

enum { TAKERS = 3, BREAKERS = 2, TAKES = 400 };

struct shared {
    _Atomic int arrived, takers; /* still at work */
    uint64_t fences[TAKERS * TAKES];
};

struct taker {
    struct shared *shared;
    uint64_t *fences;
};

static int take_often(void *arg) {
    struct taker *taker = arg;
    void *conn = conn_open(world->dir);
    meet(&taker->shared->arrived, TAKERS + BREAKERS);
    for (int i = 0; i < TAKES; i++) {
        struct dlock_claim claim = claim_of("job");
        while (acquire(conn, &claim) == DLOCK_EBUSY) usleep(20);
        if (claim.result != 0 || (i > 0 && claim.fence <= taker->fences[i - 1])) return 1;
        taker->fences[i] = claim.fence;
        usleep(50);
        if (renew(conn, &claim) == 0) usleep(20);
        release(conn, &claim);
    }
    taker->shared->takers--;
    return 0;
}

static int break_often(void *arg) {
    struct shared *shared = arg;
    void *conn = conn_open(world->dir);
    int broken = 0;
    meet(&shared->arrived, TAKERS + BREAKERS);
    while (shared->takers > 0) {
        int rc = break_lock(conn, "job");
        if (rc != 0 && rc != DLOCK_ELOST) return 1;
        broken += rc == 0;
        usleep(100);
    }
    return broken > 0 ? 0 : 2;
}

/* No fence is ever given twice, however breaks and grants fall together. */
TEST(storm) {
    struct shared *shared = shared_new(sizeof *shared);
    struct taker takers[TAKERS];
    pid_t pids[TAKERS + BREAKERS];
    put_fence(far_fence);
    shared->takers = TAKERS;
    for (int i = 0; i < TAKERS; i++) {
        takers[i] = (struct taker){shared, shared->fences + i * TAKES};
        pids[i] = child_start(take_often, &takers[i]);
    }
    for (int i = 0; i < BREAKERS; i++) pids[TAKERS + i] = child_start(break_often, shared);
    for (int i = 0; i < TAKERS; i++) {
        int status = child_end(pids[i]);
        if (status != 0) shared->takers = 0; /* otherwise the breakers would never end */
        assert_int_equal(status, 0);
    }
    for (int i = 0; i < BREAKERS; i++) assert_int_equal(child_end(pids[TAKERS + i]), 0);
    check_fences(shared->fences, TAKERS * TAKES);
    assert_true(shared->fences[0] > far_fence);
    shared_end(shared, sizeof *shared);
}
