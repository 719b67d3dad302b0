/* Holders that keep a grant for a while after their owner has released it, and want to know when another client
 * asks. */
#include "fixture.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

struct pair {
    struct world *world;
    void *other;
    int fd; /* of the world's connection */
    struct dlock_claim holder, asker;
};

/* A lingering holder on the world's connection; its own file's beginning is read away. */
static struct pair begin(struct dlock_claim asker) {
    struct pair pair = {world, conn_open(world->dir), listen_on(world->conn), claim_of(asker.name), asker};
    pair.holder.flags = DLOCK_CLAIM_LINGER;
    assert_int_equal(acquire(world->conn, &pair.holder), 0);
    drain(world->conn, DLOCK_WAKE_LOOK, NULL);
    return pair;
}

static void is_told(struct pair *pair) {
    char name[256] = "";
    assert_true(readable(pair->fd, 1000));
    assert_int_equal(drain(pair->world->conn, DLOCK_WAKE_WANTED, name), 1);
    assert_string_equal(name, pair->holder.name);
}

TEST(of_every_try) {
    struct pair pair = begin(claim_of("a job"));
    assert_false(readable(pair.fd, 20));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(acquire(pair.other, &pair.asker), DLOCK_EBUSY);
        is_told(&pair);
    }
    give_up(pair.other, &pair.asker);
    struct dlock_claim reader = reader_of("a job"), permit = permit_of("a job", 3);
    assert_int_equal(acquire(pair.other, &reader), DLOCK_EBUSY);
    is_told(&pair);
    assert_int_equal(acquire(pair.other, &permit), DLOCK_EBUSY); /* it may be free in a moment */
    is_told(&pair);
    conn_close(pair.other);
    drain(pair.world->conn, DLOCK_WAKE_LOOK, NULL);
    assert_int_equal(renew(pair.world->conn, &pair.holder), 0);
    assert_int_equal(release(pair.world->conn, &pair.holder), 0);
}

/* One that waited before the lingering one came is not overlooked. */
TEST(of_who_waits_already) {
    struct dlock_claim first = claim_of("job"), waiter = claim_of("job"), holder = claim_of("job");
    void *other = conn_open(world->dir);
    char name[256] = "";
    listen_on(other);
    listen_on(world->conn);
    holder.flags = DLOCK_CLAIM_LINGER;
    assert_int_equal(acquire(world->conn, &first), 0);
    assert_int_equal(acquire(other, &waiter), DLOCK_EBUSY);
    assert_int_equal(release(world->conn, &first), 0);
    drain(world->conn, DLOCK_WAKE_LOOK, NULL);
    assert_int_equal(acquire(world->conn, &holder), 0);
    assert_int_equal(drain(world->conn, DLOCK_WAKE_WANTED, name), 1);
    assert_string_equal(name, "job");
    assert_int_equal(release(world->conn, &holder), 0);
    acquire_told(other, &waiter);
    conn_close(other);
}

/* A holder that did not want to be told is not; nor is one that lingers on something else. */
TEST(nobody_else) {
    struct dlock_claim holder = claim_of("job"), asker = claim_of("job"), other_holder = claim_of("other");
    void *other = conn_open(world->dir);
    int fd = listen_on(world->conn), other_fd = listen_on(other);
    assert_int_equal(acquire(world->conn, &holder), 0);
    other_holder.flags = DLOCK_CLAIM_LINGER;
    assert_int_equal(acquire(other, &other_holder), 0);
    drain(world->conn, DLOCK_WAKE_LOOK, NULL);
    drain(other, DLOCK_WAKE_LOOK, NULL);
    for (int i = 0; i < 3; i++) assert_int_equal(acquire(other, &asker), DLOCK_EBUSY);
    assert_false(readable(fd, 20));
    assert_false(readable(other_fd, 0));
    conn_close(other);
}

/* Time stamps of files without a lingering holder, or whose holder lingers no longer, are ignored. */
TEST(not_after_its_end) {
    struct pair pair = begin(claim_of("job"));
    assert_int_equal(release(pair.world->conn, &pair.holder), 0);
    pair.holder.flags = 0;
    assert_int_equal(acquire(pair.world->conn, &pair.holder), 0); /* the same descriptor, perhaps */
    drain(pair.world->conn, DLOCK_WAKE_LOOK, NULL);
    assert_int_equal(acquire(pair.other, &pair.asker), DLOCK_EBUSY);
    assert_int_equal(chmod(path_of("job"), 0640), 0);
    assert_int_equal(drain(pair.world->conn, DLOCK_WAKE_WANTED, NULL), 0);
    conn_close(pair.other);
}

/* A reader does not linger: its file gets no new time stamp either. */
TEST(not_after_a_downgrade) {
    struct pair pair = begin(claim_of("job"));
    pair.holder.mode = DLOCK_SHARED;
    struct dlock_claim permit = permit_of("job", 3);
    assert_int_equal(renew(pair.world->conn, &pair.holder), 0);
    assert_int_equal(acquire(pair.other, &pair.asker), DLOCK_EBUSY);
    assert_int_equal(acquire(pair.other, &permit), DLOCK_EINVAL); /* nothing that may be over in a moment */
    drain(pair.world->conn, DLOCK_WAKE_LOOK, NULL);
    assert_int_equal(acquire(pair.other, &pair.asker), DLOCK_EBUSY);
    assert_false(readable(pair.fd, 20));
    conn_close(pair.other);
}

/* A question and a close of the same file are two things, in whatever order they come. */
TEST(beside_other_wakes) {
    struct pair pair = begin(claim_of("job"));
    struct dlock_error err;
    struct dlock_wake wake;
    int looks = 0, wanted = 0;
    for (int i = 0; i < 2; i++) {
        file_put(path_of("job"), "", 0);
        assert_int_equal(acquire(pair.other, &pair.asker), DLOCK_EBUSY);
    }
    while (FILE_BACKEND->wake(pair.world->conn, &wake, &err) == 1) {
        assert_string_equal(wake.name, "job");
        looks += wake.kind == DLOCK_WAKE_LOOK;
        wanted += wake.kind == DLOCK_WAKE_WANTED;
    }
    assert_int_equal(looks, 2);
    assert_int_equal(wanted, 2);
    conn_close(pair.other);
}
