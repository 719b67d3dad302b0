/* Permits: as many as there are, each with its own holder. */
#include "crowd.h"

#include <signal.h>
#include <unistd.h>

int permits_tests(void);

enum { PERMITS = 5, ROUNDS = 5 };

static void as_many_as_there_are(void **state) {
    struct world *world = *state;
    struct dlock_claim permits[PERMITS], late = permit_of("job", PERMITS);
    uint64_t last = 0;
    for (int i = 0; i < PERMITS; i++) {
        permits[i] = permit_of("job", PERMITS);
        assert_int_equal(acquire(world->conn, &permits[i]), 0);
        assert_true(permits[i].fence > last);
        last = permits[i].fence;
    }
    assert_int_equal(acquire(world->conn, &late), DLOCK_EBUSY);
    struct seen seen = inspect(world->conn, "job");
    assert_int_equal(seen.n, PERMITS);
    for (int i = 0; i < PERMITS; i++) assert_true(saw(&seen, &permits[i]));
    for (int i = 0; i < PERMITS; i++) { /* any of them makes room for one */
        struct dlock_claim more = permit_of("job", PERMITS);
        assert_int_equal(renew(world->conn, &permits[i]), 0);
        assert_int_equal(release(world->conn, &permits[i]), 0);
        assert_int_equal(acquire(world->conn, &late), 0);
        assert_true(late.fence > last);
        last = late.fence;
        assert_int_equal(acquire(world->conn, &more), DLOCK_EBUSY);
        assert_int_equal(release(world->conn, &late), 0);
        assert_int_equal(acquire(world->conn, &permits[i]), 0);
        last = permits[i].fence;
        give_up(world->conn, &more);
    }
    for (int i = 0; i < PERMITS; i++) assert_int_equal(release(world->conn, &permits[i]), 0);
    assert_int_equal(inspect(world->conn, "job").n, 0);
}

static void one_permit(void **state) {
    struct world *world = *state;
    struct dlock_claim one = permit_of("job", 1), two = permit_of("job", 1);
    assert_int_equal(acquire(world->conn, &one), 0);
    assert_int_equal(acquire(world->conn, &two), DLOCK_EBUSY);
    assert_int_equal(release(world->conn, &one), 0);
    assert_int_equal(acquire(world->conn, &two), 0);
}

static void refused(void *conn, struct dlock_claim claim, const char *word) {
    struct dlock_error err = {0, ""};
    struct dlock_claim *one = &claim;
    assert_int_equal(FILE_BACKEND->acquire(conn, &one, 1, 1000, &err), 0);
    assert_int_equal(claim.result, DLOCK_EINVAL);
    assert_int_equal(err.code, DLOCK_EINVAL);
    if (!strstr(err.message, word) || !strstr(err.message, "\"job\"")) fail_msg("%s", err.message);
    assert_int_equal(release(conn, &claim), DLOCK_ELOST); /* it left nothing */
}

static void in_one_way_at_a_time(void **state) {
    struct world *world = *state;
    struct dlock_claim permit = permit_of("job", 3), writer = claim_of("job"), reader = reader_of("job");
    assert_int_equal(acquire(world->conn, &permit), 0);
    refused(world->conn, claim_of("job"), "3 permits");
    refused(world->conn, reader_of("job"), "3 permits");
    refused(world->conn, permit_of("job", 4), "3 permits");
    refused(world->conn, permit_of("job", 2), "3 permits");
    assert_int_equal(renew(world->conn, &permit), 0);
    assert_int_equal(release(world->conn, &permit), 0);
    assert_int_equal(acquire(world->conn, &writer), 0); /* it is free: anything goes */
    refused(world->conn, permit_of("job", 3), "as a lock");
    assert_int_equal(release(world->conn, &writer), 0);
    assert_int_equal(acquire(world->conn, &reader), 0);
    refused(world->conn, permit_of("job", 3), "as a lock");
    assert_int_equal(release(world->conn, &reader), 0);
    permit.limit = 7;
    assert_int_equal(acquire(world->conn, &permit), 0);
    assert_int_equal(inspect(world->conn, "job").holders[0].limit, 7);
}

/* A shell that says 9>job on its way to flock(1) empties the file. A holder of a permit keeps it, and others still get
 * theirs; only how many there were is forgotten. */
static void emptied_while_held(void **state) {
    struct world *world = *state;
    struct dlock_claim one = permit_of("job", 2), two = permit_of("job", 2), three = permit_of("job", 2);
    assert_int_equal(acquire(world->conn, &one), 0);
    file_put(path_of(world, "job"), "", 0);
    refused(world->conn, reader_of("job"), "as permits");
    refused(world->conn, claim_of("job"), "as permits");
    assert_int_equal(renew(world->conn, &one), 0);
    assert_int_equal(acquire(world->conn, &two), 0);
    assert_true(two.fence > one.fence);
    assert_int_equal(acquire(world->conn, &three), DLOCK_EBUSY);
    struct seen seen = inspect(world->conn, "job");
    assert_int_equal(seen.n, 2);
    assert_true(saw(&seen, &two));
    assert_int_equal(release(world->conn, &one), 0);
    refused(world->conn, permit_of("job", 3), "2 permits");
    assert_int_equal(release(world->conn, &two), 0);
}

/* The purpose of a lock by flock(1) is unknown: permits wait, as flock(1) does for them. */
static void with_flock(void **state) {
    struct world *world = *state;
    const char *path = path_of(world, "job");
    const char *const keeps[] = {"flock", path, "sh", "-c", "echo; exec sleep 60", NULL};
    const char *const tries[] = {"flock", "-n", path, "true", NULL};
    struct dlock_claim permit = permit_of("job", 3);
    assert_false(is_held(world->conn, "job")); /* one of our tokens stays in the file */
    pid_t pid = command_start(keeps);
    assert_int_equal(acquire(world->conn, &permit), DLOCK_EBUSY);
    kill_command(pid);
    acquire_waiting(world->conn, &permit);
    assert_int_equal(command(tries), 1);
    assert_int_equal(release(world->conn, &permit), 0);
    assert_int_equal(command(tries), 0);
}

static void any_limit(void **state) {
    static const uint32_t limits[] = {1, 2, 31337, INT32_MAX, UINT32_MAX};
    struct world *world = *state;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct dlock_claim one = permit_of("job", limits[i]), two = permit_of("job", limits[i]);
        assert_int_equal(acquire(world->conn, &one), 0);
        assert_int_equal(acquire(world->conn, &two), i == 0 ? DLOCK_EBUSY : 0);
        struct seen seen = inspect(world->conn, "job");
        assert_true(saw(&seen, &one));
        assert_int_equal(release(world->conn, &one), 0);
        assert_int_equal(release(world->conn, &two), i == 0 ? DLOCK_ELOST : 0);
    }
}

/* ---- holders that die ---- */

static void crashes_lose_none(void **state) {
    struct world *world = *state;
    struct dlock_claim permits[3], late = permit_of("job", 3);
    uint64_t fence = 0;
    for (int round = 0; round < 3; round++) {
        pid_t pids[3];
        for (int i = 0; i < 3; i++) pids[i] = holder_start_as(world, permit_of("job", 3), &fence);
        assert_int_equal(acquire(world->conn, &late), DLOCK_EBUSY);
        assert_int_equal(inspect(world->conn, "job").n, 3);
        for (int i = 0; i < 3; i++) kill_child(pids[i]);
    }
    assert_int_equal(inspect(world->conn, "job").n, 0);
    give_up(world->conn, &late);
    for (int i = 0; i < 3; i++) {
        permits[i] = permit_of("job", 3);
        assert_int_equal(acquire(world->conn, &permits[i]), 0);
        assert_true(permits[i].fence > fence);
    }
}

static int kill_soon(const struct world *world, void *arg) {
    (void)world;
    usleep(100000);
    return kill(*(const pid_t *)arg, SIGKILL);
}

static void waiters_follow_the_dead(void **state) {
    struct world *world = *state;
    struct dlock_claim other = permit_of("job", 2);
    assert_int_equal(acquire(world->conn, &other), 0);
    listen_on(world->conn);
    for (int i = 0; i < ROUNDS; i++) {
        struct dlock_claim claim = permit_of("job", 2);
        pid_t holder = holder_start_as(world, permit_of("job", 2), NULL);
        assert_int_equal(acquire(world->conn, &claim), DLOCK_EBUSY);
        pid_t killer = child_start(kill_soon, world, &holder);
        acquire_waiting(world->conn, &claim);
        assert_int_equal(release(world->conn, &claim), 0);
        assert_int_equal(child_end(killer), 0);
        child_end(holder);
    }
}

/* A release is told at once to who waits. */
static void a_release_wakes(void **state) {
    struct world *world = *state;
    struct dlock_claim held[2] = {permit_of("job", 2), permit_of("job", 2)}, waiter = permit_of("job", 2);
    void *other = conn_open(world->dir);
    char name[256] = "";
    listen_on(world->conn);
    for (int i = 0; i < 2; i++) assert_int_equal(acquire(other, &held[i]), 0);
    assert_int_equal(acquire(world->conn, &waiter), DLOCK_EBUSY);
    assert_int_equal(drain(world->conn, DLOCK_WAKE_LOOK, NULL), 0);
    assert_int_equal(release(other, &held[0]), 0);
    assert_int_equal(drain(world->conn, DLOCK_WAKE_LOOK, name), 1);
    assert_string_equal(name, "job");
    assert_int_equal(acquire(world->conn, &waiter), 0);
    assert_int_equal(release(other, &held[1]), 0); /* no waiter is left */
    assert_int_equal(release(world->conn, &waiter), 0);
    assert_int_equal(drain(world->conn, DLOCK_WAKE_LOOK, NULL), 0);
    conn_close(other);
}

/* ---- all at once ---- */

enum { LIMIT = 3 };

struct room {
    _Atomic int inside, most;
    int64_t until_ms;
};

static struct dlock_claim permit_for(int member, int take) {
    (void)member;
    (void)take;
    return permit_of("job", LIMIT);
}

static int stay(void *arg, const struct dlock_claim *claim) {
    struct room *room = arg;
    (void)claim;
    int inside = ++room->inside;
    if (inside > LIMIT) return 10;
    if (inside > room->most) room->most = inside;
    do { /* the first one in waits for another */
        usleep(50);
    } while (room->most == 1 && now_ms() < room->until_ms);
    room->inside--;
    return 0;
}

static void storm(void **state) {
    struct room *room = shared_new(sizeof *room);
    const struct crowd crowd = {5, 200, permit_for, stay, room};
    room->until_ms = now_ms() + 20000;
    crowd_run(*state, &crowd);
    assert_true(room->most > 1);
    shared_end(room, sizeof *room);
}

enum { MANY = 300 };

/* Every seat is found, in whatever order they become free. */
static void many(void **state) {
    struct world *world = *state;
    static struct dlock_claim permits[MANY];
    static char tokens[MANY][64];
    struct dlock_claim late = permit_of("job", MANY);
    for (int i = 0; i < MANY; i++) {
        permits[i] = permit_of("job", MANY);
        snprintf(tokens[i], sizeof tokens[i], "0123456789abcdef01234567.p%d@test:%ld", i, (long)getpid());
        permits[i].token = tokens[i];
        assert_int_equal(acquire(world->conn, &permits[i]), 0);
    }
    for (int i = 0; i < MANY; i += 7) {
        assert_int_equal(acquire(world->conn, &late), DLOCK_EBUSY);
        assert_int_equal(release(world->conn, &permits[i]), 0);
        assert_int_equal(inspect(world->conn, "job").n, MANY - 1);
        assert_int_equal(acquire(world->conn, &permits[i]), 0);
    }
}

int permits_tests(void) {
    const struct CMUnitTest tests[] = {
        WORLD_TEST(as_many_as_there_are),
        WORLD_TEST(one_permit),
        WORLD_TEST(in_one_way_at_a_time),
        WORLD_TEST(emptied_while_held),
        WORLD_TEST(with_flock),
        WORLD_TEST(any_limit),
        WORLD_TEST(crashes_lose_none),
        WORLD_TEST(waiters_follow_the_dead),
        WORLD_TEST(a_release_wakes),
        WORLD_TEST(storm),
        WORLD_TEST(many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
