/* Readers: together, apart from writers, and each with its own grant. */
#include "crowd.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

int shared_tests(void);

enum { READERS = 20, ROUNDS = 5 };

static void together(void **state) {
    struct world *world = *state;
    struct dlock_claim readers[READERS], writer = claim_of("job");
    uint64_t last = 0;
    for (int i = 0; i < READERS; i++) {
        readers[i] = reader_of("job");
        assert_int_equal(acquire(world->conn, &readers[i]), 0);
        assert_true(readers[i].fence > last);
        assert_true(readers[i].kept_ms == DLOCK_FOREVER);
        last = readers[i].fence;
    }
    struct seen seen = inspect(world->conn, "job");
    assert_int_equal(seen.n, READERS);
    for (int i = 0; i < READERS; i++) {
        assert_true(saw(&seen, &readers[i]));
        assert_int_equal(renew(world->conn, &readers[i]), 0);
        uint64_t fence = readers[i].fence;
        assert_int_equal(acquire(world->conn, &readers[i]), 0); /* again is the same */
        assert_true(readers[i].fence == fence);
    }
    assert_int_equal(list(world->conn, "", 0, 1000), READERS);
    assert_int_equal(list(world->conn, "", 3, 1000), 3);
    for (int i = 0; i < READERS; i++) {
        assert_int_equal(acquire(world->conn, &writer), DLOCK_EBUSY);
        give_up(world->conn, &writer);
        assert_int_equal(release(world->conn, &readers[i]), 0);
        assert_int_equal(release(world->conn, &readers[i]), DLOCK_ELOST);
        assert_int_equal(inspect(world->conn, "job").n, READERS - 1 - i);
    }
    assert_int_equal(acquire(world->conn, &writer), 0);
    assert_true(writer.fence > last);
    assert_int_equal(acquire(world->conn, &readers[0]), DLOCK_EBUSY);
    give_up(world->conn, &readers[0]);
    assert_int_equal(release(world->conn, &writer), 0);
}

/* Readers that come and go do not make the file longer and longer. */
static void seats_are_used_again(void **state) {
    struct world *world = *state;
    struct dlock_claim stays = reader_of("job"), readers[2] = {reader_of("job"), reader_of("job")};
    char text[10000];
    assert_int_equal(acquire(world->conn, &stays), 0);
    assert_int_equal(acquire(world->conn, &readers[0]), 0);
    for (int i = 1; i < 200; i++) { /* one overlaps the next */
        assert_int_equal(acquire(world->conn, &readers[i % 2]), 0);
        assert_int_equal(release(world->conn, &readers[(i + 1) % 2]), 0);
    }
    assert_true(file_get(path_of(world, "job"), text, sizeof text) < 5000);
    assert_int_equal(inspect(world->conn, "job").n, 2);
}

static void dies_with_its_process(void **state) {
    struct world *world = *state;
    struct dlock_claim writer = claim_of("job");
    uint64_t fence;
    pid_t pid = holder_start_as(world, reader_of("job"), &fence);
    assert_int_equal(acquire(world->conn, &writer), DLOCK_EBUSY);
    struct seen seen = inspect(world->conn, "job");
    assert_int_equal(seen.n, 1);
    assert_true(seen.holders[0].fence == fence && seen.holders[0].mode == DLOCK_SHARED);
    kill_child(pid);
    assert_int_equal(inspect(world->conn, "job").n, 0);
    acquire_waiting(world->conn, &writer);
    assert_true(writer.fence > fence);
}

/* ---- flock(1) ---- */

static void with_flock(void **state) {
    struct world *world = *state;
    const char *path = path_of(world, "job");
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
static void with_a_pid_from_elsewhere(void **state) {
    struct world *world = *state;
    const char *const keeps[] = {"flock", "-s", path_of(world, "job"), "sh", "-c", "echo; exec sleep 60", NULL};
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

static void a_waiting_writer_keeps_readers_out(void **state) {
    struct world *world = *state;
    struct dlock_claim first = reader_of("job"), late = reader_of("job"), writer = claim_of("job"),
                       other = claim_of("job");
    assert_int_equal(acquire(world->conn, &first), 0);
    assert_int_equal(acquire(world->conn, &writer), DLOCK_EBUSY);
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

/* A single try leaves nothing behind, and no client waits at a gate for other writers. */
static void a_try_keeps_nobody_out(void **state) {
    struct world *world = *state;
    struct dlock_claim first = reader_of("job"), second = reader_of("job"), writer = claim_of("job");
    assert_int_equal(acquire(world->conn, &first), 0);
    assert_int_equal(acquire(world->conn, &writer), DLOCK_EBUSY);
    assert_int_equal(acquire(world->conn, &second), 0);
    give_up(world->conn, &writer);
    assert_int_equal(release(world->conn, &first), 0);
    assert_int_equal(release(world->conn, &second), 0);
    struct dlock_claim holder = claim_of("job");
    assert_int_equal(acquire(world->conn, &holder), 0);
    for (int i = 0; i < 3; i++) assert_int_equal(acquire(world->conn, &writer), DLOCK_EBUSY);
    assert_int_equal(release(world->conn, &holder), 0);
    assert_int_equal(acquire(world->conn, &first), 0);
}

/* A listening writer is told to retry soon, and then shuts the gate. */
static void the_gate_shuts_soon(void **state) {
    struct world *world = *state;
    struct dlock_claim reader = reader_of("job"), late = reader_of("job"), writer = claim_of("job");
    listen_on(world->conn);
    assert_int_equal(acquire(world->conn, &reader), 0);
    assert_int_equal(acquire(world->conn, &writer), DLOCK_EBUSY);
    assert_in_range(writer.retry_ms, 1, 20);
    assert_int_equal(acquire(world->conn, &writer), DLOCK_EBUSY);
    assert_int_equal(acquire(world->conn, &late), DLOCK_EBUSY);
}

static void the_gate_opens_when_the_writer_gives_up(void **state) {
    struct world *world = *state;
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

static int wait_as_writer(const struct world *world, void *arg) {
    struct dlock_claim writer = claim_of("job");
    void *conn = conn_open(world->dir);
    if (acquire(conn, &writer) != DLOCK_EBUSY || acquire(conn, &writer) != DLOCK_EBUSY) return 1;
    if (write(*(int *)arg, "x", 1) != 1) return 1;
    for (;;) pause();
}

static void the_gate_opens_when_the_writer_dies(void **state) {
    struct world *world = *state;
    struct dlock_claim reader = reader_of("job"), late = reader_of("job");
    int ends[2];
    char byte;
    assert_int_equal(acquire(world->conn, &reader), 0);
    assert_int_equal(pipe(ends), 0);
    pid_t pid = child_start(wait_as_writer, world, &ends[1]);
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

static void downgrades(void **state) {
    struct world *world = *state;
    struct dlock_claim holder = claim_of("job"), reader = reader_of("job"), writer = claim_of("job");
    assert_int_equal(acquire(world->conn, &holder), 0);
    uint64_t fence = holder.fence;
    assert_int_equal(acquire(world->conn, &reader), DLOCK_EBUSY);
    assert_int_equal(downgrade(world->conn, &holder), 0);
    assert_int_equal(downgrade(world->conn, &holder), 0); /* once more changes nothing */
    assert_true(holder.fence == fence && holder.kept_ms == DLOCK_FOREVER);
    assert_int_equal(acquire(world->conn, &reader), 0);
    assert_true(reader.fence > fence);
    assert_int_equal(acquire(world->conn, &writer), DLOCK_EBUSY);
    struct seen seen = inspect(world->conn, "job");
    assert_int_equal(seen.n, 2);
    assert_true(saw(&seen, &holder) && saw(&seen, &reader));
    assert_int_equal(release(world->conn, &holder), 0);
    assert_int_equal(acquire(world->conn, &writer), DLOCK_EBUSY);
    assert_int_equal(release(world->conn, &reader), 0);
    assert_int_equal(acquire(world->conn, &writer), 0);
    assert_true(writer.fence > reader.fence);
}

/* The answer to a downgrade was lost: the release says SHARED all the same. */
static void released_as_a_reader(void **state) {
    struct world *world = *state;
    struct dlock_claim holder = claim_of("job");
    assert_int_equal(acquire(world->conn, &holder), 0);
    holder.mode = DLOCK_SHARED;
    assert_int_equal(release(world->conn, &holder), 0);
    assert_false(is_held(world->conn, "job"));
}

static void lost_before_its_downgrade(void **state) {
    struct world *world = *state;
    struct dlock_claim holder = claim_of("job"), never = claim_of("other");
    assert_int_equal(acquire(world->conn, &holder), 0);
    assert_int_equal(unlink(path_of(world, "job")), 0);
    assert_int_equal(downgrade(world->conn, &holder), DLOCK_ELOST);
    assert_int_equal(downgrade(world->conn, &never), DLOCK_ELOST);
    assert_int_equal(access(path_of(world, "other"), F_OK), -1); /* a renewal makes nothing */
}

static void a_downgrade_wakes_readers(void **state) {
    struct world *world = *state;
    struct dlock_claim holder = claim_of("job"), reader = reader_of("job");
    void *other = conn_open(world->dir);
    char name[256] = "";
    listen_on(world->conn);
    assert_int_equal(acquire(other, &holder), 0);
    assert_int_equal(acquire(world->conn, &reader), DLOCK_EBUSY);
    assert_int_equal(drain(world->conn, DLOCK_WAKE_LOOK, NULL), 0);
    assert_int_equal(downgrade(other, &holder), 0);
    assert_int_equal(drain(world->conn, DLOCK_WAKE_LOOK, name), 1);
    assert_string_equal(name, "job");
    assert_int_equal(acquire(world->conn, &reader), 0);
    conn_close(other);
}

struct grab {
    _Atomic int stop, held; /* held: since before the downgrade */
    _Atomic int grabbers;   /* who had it once */
};

static int grab_often(const struct world *world, void *arg) {
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
static void nobody_slips_in(void **state) {
    struct world *world = *state;
    struct grab *grab = shared_new(sizeof *grab);
    pid_t pids[2];
    for (int i = 0; i < 2; i++) pids[i] = child_start(grab_often, world, grab);
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

struct room {
    _Atomic int readers, writers, overlaps; /* inside; readers that met others */
};

static struct dlock_claim now_and_then_a_writer(int member, int take) {
    return take % 4 == member % 4 ? claim_of("job") : reader_of("job");
}

static int stay(void *arg, const struct dlock_claim *claim) {
    struct room *room = arg;
    if (claim->mode == DLOCK_SHARED) {
        if (room->readers++ > 0) room->overlaps++;
        if (room->writers != 0) return 10;
        usleep(50);
        if (room->writers != 0) return 11;
        room->readers--;
        return 0;
    }
    if (room->writers++ != 0 || room->readers != 0) return 12;
    usleep(20);
    if (room->writers-- != 1 || room->readers != 0) return 13;
    return 0;
}

static void storm(void **state) {
    struct room *room = shared_new(sizeof *room);
    const struct crowd crowd = {CROWD, 250, now_and_then_a_writer, stay, room};
    crowd_run(*state, &crowd);
    assert_true(room->overlaps > 0);
    shared_end(room, sizeof *room);
}

static struct dlock_claim reader_for(int member, int take) {
    (void)member;
    (void)take;
    return reader_of("job");
}

/* Readers that come at the same moment have a fence each. */
static void fences_of_a_crowd(void **state) {
    const struct crowd crowd = {CROWD, 1500, reader_for, NULL, NULL};
    crowd_run(*state, &crowd);
}

/* ---- a stream of readers ---- */

enum { STREAM = 3 };

struct stream {
    _Atomic int reads, stop;
};

static int read_often(const struct world *world, void *arg) {
    struct stream *stream = arg;
    void *conn = conn_open(world->dir);
    while (stream->stop == 0) {
        struct dlock_claim reader = reader_of("job");
        while (acquire(conn, &reader) == DLOCK_EBUSY) usleep(200);
        if (reader.result != 0) return 1;
        stream->reads++;
        usleep(20000);
        if (release(conn, &reader) != 0) return 2;
    }
    return 0;
}

/* Readers that overlap all the time; once a writer waits, which a single try does not, none of them gets in
 * again before it. */
static void writers_do_not_starve(void **state) {
    struct world *world = *state;
    struct stream *stream = shared_new(sizeof *stream);
    pid_t pids[STREAM];
    int waits = 0;
    for (int i = 0; i < STREAM; i++) {
        pids[i] = child_start(read_often, world, stream);
        usleep(7000);
    }
    for (int i = 0; i < ROUNDS || waits == 0; i++) {
        struct dlock_claim writer = claim_of("job");
        if (acquire(world->conn, &writer) == DLOCK_EBUSY && acquire(world->conn, &writer) == DLOCK_EBUSY) {
            int reads = stream->reads;
            waits++;
            acquire_waiting(world->conn, &writer);
            assert_in_range(stream->reads - reads, 0, STREAM); /* that were granted before, and counted now */
        }
        assert_int_equal(release(world->conn, &writer), 0);
        usleep(30000);
    }
    stream->stop = 1;
    for (int i = 0; i < STREAM; i++) assert_int_equal(child_end(pids[i]), 0);
    shared_end(stream, sizeof *stream);
}

static int break_lock(void *conn, const char *name) {
    struct dlock_error err = {0, ""};
    return FILE_BACKEND->break_lock(conn, name, 3000, &err);
}

static void a_break_takes_them_all(void **state) {
    struct world *world = *state;
    struct dlock_claim one = reader_of("job"), two = reader_of("job"), writer = claim_of("job");
    assert_int_equal(acquire(world->conn, &one), 0);
    assert_int_equal(acquire(world->conn, &two), 0);
    assert_int_equal(break_lock(world->conn, "job"), 0);
    assert_int_equal(acquire(world->conn, &writer), 0);
    assert_true(writer.fence > two.fence);
    assert_int_equal(renew(world->conn, &one), DLOCK_ELOST);
    assert_int_equal(release(world->conn, &two), DLOCK_ELOST);
    struct seen seen = inspect(world->conn, "job");
    assert_int_equal(seen.n, 1);
    assert_true(saw(&seen, &writer));
}

int shared_tests(void) {
    const struct CMUnitTest tests[] = {
        WORLD_TEST(together),
        WORLD_TEST(seats_are_used_again),
        WORLD_TEST(dies_with_its_process),
        WORLD_TEST(with_flock),
        WORLD_TEST(with_a_pid_from_elsewhere),
        WORLD_TEST(a_waiting_writer_keeps_readers_out),
        WORLD_TEST(a_try_keeps_nobody_out),
        WORLD_TEST(the_gate_shuts_soon),
        WORLD_TEST(the_gate_opens_when_the_writer_gives_up),
        WORLD_TEST(the_gate_opens_when_the_writer_dies),
        WORLD_TEST(downgrades),
        WORLD_TEST(released_as_a_reader),
        WORLD_TEST(lost_before_its_downgrade),
        WORLD_TEST(a_downgrade_wakes_readers),
        WORLD_TEST(nobody_slips_in),
        WORLD_TEST(storm),
        WORLD_TEST(fences_of_a_crowd),
        WORLD_TEST(writers_do_not_starve),
        WORLD_TEST(a_break_takes_them_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
