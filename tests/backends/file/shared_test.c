/* Readers: their seats in the file, beside flock(1), and the gate that a waiting writer shuts. */
#include "crowd.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

/* Readers that come and go do not make the file longer and longer. */
TEST(seats_are_used_again) {
    struct dlock_claim stays = reader_of("job"), readers[2] = {reader_of("job"), reader_of("job")};
    char text[10000];
    assert_int_equal(acquire(world->conn, &stays), 0);
    assert_int_equal(acquire(world->conn, &readers[0]), 0);
    for (int i = 1; i < 200; i++) { /* one overlaps the next */
        assert_int_equal(acquire(world->conn, &readers[i % 2]), 0);
        assert_int_equal(release(world->conn, &readers[(i + 1) % 2]), 0);
    }
    assert_true(file_get(path_of("job"), text, sizeof text) < 5000);
    assert_int_equal(inspect(world->conn, "job").n, 2);
}

/* ---- flock(1) ---- */

TEST(with_flock) {
    const char *path = path_of("job");
    const char *const reads[] = {"flock", "-n", "-s", path, "true", NULL}, *const writes[] = {"flock", "-n", path,
                                                                                              "true", NULL};
    const char *const keeps_reading[] = {"flock", "-s", path, "sh", "-c", "echo; exec sleep 60", NULL};
    const char *const keeps_writing[] = {"flock", path, "sh", "-c", "echo; exec sleep 60", NULL};
    struct dlock_claim reader = reader_of("job"), writer = claim_of("job");
    assert_int_equal(acquire(world->conn, &reader), 0);
    assert_int_equal(command(reads), 0);
    assert_int_equal(command(writes), 1);
    pid_t pid = command_start(keeps_reading);
    struct seen seen = inspect(world->conn, "job");
    assert_int_equal(seen.n, 2);
    assert_true(saw(&seen, &reader));
    assert_non_null(strstr(seen.holders[1].token, "flock:"));
    assert_int_equal(seen.holders[1].mode, DLOCK_SHARED);
    assert_int_equal(release(world->conn, &reader), 0);
    assert_int_equal(acquire(world->conn, &writer), DLOCK_EBUSY);
    assert_int_equal(acquire(world->conn, &reader), 0);
    assert_int_equal(release(world->conn, &reader), 0);
    seen = inspect(world->conn, "job");
    assert_int_equal(seen.n, 1);
    assert_int_equal(seen.holders[0].mode, DLOCK_SHARED);
    kill_command(pid);
    acquire_waiting(world->conn, &writer);
    assert_int_equal(release(world->conn, &writer), 0);
    pid = command_start(keeps_writing);
    assert_int_equal(acquire(world->conn, &reader), DLOCK_EBUSY);
    kill_command(pid);
    acquire_waiting(world->conn, &reader);
}

/* A token from a container contains a pid that does not exist here: its holder is not shown twice. */
TEST(with_a_pid_from_elsewhere) {
    const char *const keeps[] = {"flock", "-s", path_of("job"), "sh", "-c", "echo; exec sleep 60", NULL};
    struct dlock_claim reader = reader_of("job");
    reader.token = "0123456789abcdef01234567.1@container:1";
    assert_int_equal(acquire(world->conn, &reader), 0);
    struct seen seen = inspect(world->conn, "job");
    assert_int_equal(seen.n, 1);
    assert_true(saw(&seen, &reader));
    pid_t pid = command_start(keeps);
    assert_int_equal(inspect(world->conn, "job").n, 2);
    kill_command(pid);
}

/* ---- the gate ---- */

TEST(a_waiting_writer_keeps_readers_out) {
    struct dlock_claim first = reader_of("job"), late = reader_of("job"), writer = claim_of("job"),
                       other = claim_of("job");
    listen_on(world->conn);
    assert_int_equal(acquire(world->conn, &first), 0);
    assert_int_equal(acquire(world->conn, &writer), DLOCK_EBUSY);
    assert_in_range(writer.retry_ms, 1, 20);                      /* although it listens */
    assert_int_equal(acquire(world->conn, &writer), DLOCK_EBUSY); /* it repeats its request: it waits */
    assert_int_equal(acquire(world->conn, &late), DLOCK_EBUSY);
    assert_int_equal(acquire(world->conn, &other), DLOCK_EBUSY);
    assert_int_equal(acquire(world->conn, &other), DLOCK_EBUSY);
    assert_int_equal(renew(world->conn, &first), 0);
    assert_int_equal(release(world->conn, &first), 0);
    assert_int_equal(acquire(world->conn, &late), DLOCK_EBUSY); /* although it is free */
    assert_int_equal(acquire(world->conn, &writer), 0);
    assert_int_equal(release(world->conn, &writer), 0);
    assert_int_equal(acquire(world->conn, &late), 0);
    assert_int_equal(acquire(world->conn, &other), DLOCK_EBUSY);
    give_up(world->conn, &other); /* the gate opens when it gives up */
    assert_int_equal(acquire(world->conn, &first), 0);
}

TEST(the_gate_opens_when_the_writer_gives_up) {
    struct dlock_claim reader = reader_of("job"), late = reader_of("job"), writer = claim_of("job");
    void *other = conn_open(world->dir);
    char name[256] = "";
    listen_on(world->conn);
    assert_int_equal(acquire(other, &reader), 0);
    for (int i = 0; i < 2; i++) assert_int_equal(acquire(other, &writer), DLOCK_EBUSY);
    assert_int_equal(acquire(world->conn, &late), DLOCK_EBUSY);
    assert_int_equal(drain(world->conn, DLOCK_WAKE_LOOK, NULL), 0);
    give_up(other, &writer);
    assert_int_equal(drain(world->conn, DLOCK_WAKE_LOOK, name), 1);
    assert_string_equal(name, "job");
    assert_int_equal(acquire(world->conn, &late), 0);
    conn_close(other);
}

static int wait_as_writer(void *arg) {
    struct dlock_claim writer = claim_of("job");
    void *conn = conn_open(world->dir);
    if (acquire(conn, &writer) != DLOCK_EBUSY || acquire(conn, &writer) != DLOCK_EBUSY) return 1;
    if (write(*(int *)arg, "x", 1) != 1) return 1;
    for (;;) pause();
}

TEST(the_gate_opens_when_the_writer_dies) {
    struct dlock_claim reader = reader_of("job"), late = reader_of("job");
    int ends[2];
    char byte;
    assert_int_equal(acquire(world->conn, &reader), 0);
    assert_int_equal(pipe(ends), 0);
    pid_t pid = child_start(wait_as_writer, &ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    listen_on(world->conn);
    assert_int_equal(acquire(world->conn, &late), DLOCK_EBUSY);
    assert_int_equal(kill(pid, SIGKILL), 0);
    acquire_waiting(world->conn, &late);
    child_end(pid);
    close(ends[0]);
    close(ends[1]);
}

/* ---- from writer to reader ---- */

static int downgrade(void *conn, struct dlock_claim *claim) {
    claim->mode = DLOCK_SHARED;
    return renew(conn, claim);
}

struct grab {
    _Atomic int stop, held; /* held: since before the downgrade */
    _Atomic int grabbers;   /* who had it once */
};

static int grab_often(void *arg) {
    struct grab *grab = arg;
    int taken = 0, fd = -1;
    while (grab->stop == 0) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/job", world->dir);
        if (fd < 0) fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
            if (grab->stop == 0 && grab->held != 0) return 1; /* slipped in */
            if (taken++ == 0) grab->grabbers++;
            flock(fd, LOCK_UN);
        }
    }
    return 0;
}

/* Neither ours nor flock(1) gets in between, however often it tries. */
TEST(nobody_slips_in) {
    struct grab *grab = shared_new(sizeof *grab);
    pid_t pids[2];
    for (int i = 0; i < 2; i++) pids[i] = child_start(grab_often, grab);
    int64_t start = now_ms();
    for (int i = 0; i < 3000 || (grab->grabbers < 2 && now_ms() - start < 20000); i++) {
        struct dlock_claim holder = claim_of("job");
        while (acquire(world->conn, &holder) == DLOCK_EBUSY) usleep(10);
        assert_int_equal(holder.result, 0);
        grab->held = 1;
        assert_int_equal(downgrade(world->conn, &holder), 0);
        for (volatile int j = 0; j < 200;) j = j + 1;
        grab->held = 0;
        assert_int_equal(release(world->conn, &holder), 0);
    }
    grab->stop = 1;
    for (int i = 0; i < 2; i++) assert_int_equal(child_end(pids[i]), 0);
    assert_int_equal(grab->grabbers, 2);
    shared_end(grab, sizeof *grab);
}

/* ---- all at once ---- */

enum { CROWD = 4 };

static struct dlock_claim reader_for(int member, int take) {
    (void)member;
    (void)take;
    return reader_of("job");
}

/* Readers that come at the same moment have a fence each. */
TEST(fences_of_a_crowd) {
    const struct crowd crowd = {CROWD, 1500, reader_for, NULL, NULL};
    crowd_run(&crowd);
}
