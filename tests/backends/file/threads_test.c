/* Many threads on one connection. */
#include "fixture.h"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

enum { THREADS = 8, NAMES = 3, ROUNDS = 150 };

static const char *const names[NAMES] = {"one", "two", "three"};

struct crowd {
    void *conn;
    _Atomic int inside[NAMES], failures, done;
    _Atomic uint64_t last[NAMES]; /* fences */
    int wake_fd;
};

static void visit(struct crowd *crowd, int which, struct dlock_claim *claim) {
    if (crowd->inside[which]++ != 0) crowd->failures++;
    if (claim->fence <= crowd->last[which]) crowd->failures++;
    crowd->last[which] = claim->fence;
    if (renew(crowd->conn, claim) != 0) crowd->failures++;
    crowd->inside[which]--;
}

static void *work(void *arg) {
    struct crowd *crowd = arg;
    char token[64];
    snprintf(token, sizeof token, "0123456789abcdef01234567.%lx", (unsigned long)pthread_self());
    for (int i = 0; i < ROUNDS; i++) {
        struct dlock_claim claim = {.name = names[i % NAMES], .token = token, .lease_ms = 10000};
        for (int tries = 0; acquire(crowd->conn, &claim) == DLOCK_EBUSY; tries++) {
            if (tries % 50 == 49 && release(crowd->conn, &claim) != DLOCK_ELOST)
                crowd->failures++; /* gives up and starts again */
            usleep(50);
        }
        if (claim.result != 0) {
            crowd->failures++;
            break;
        }
        visit(crowd, i % NAMES, &claim);
        if (release(crowd->conn, &claim) != 0) crowd->failures++;
    }
    crowd->done++;
    return NULL;
}

static int ignore(const struct dlock_info *info, void *arg) {
    (void)info;
    (void)arg;
    return 0;
}

/* The keeper's part: reads the wakes; and an operator who looks. */
static void *watch(void *arg) {
    struct crowd *crowd = arg;
    struct dlock_error err;
    struct dlock_wake wake;
    while (crowd->done < THREADS) {
        struct pollfd readable = {crowd->wake_fd, POLLIN, 0};
        char cursor[256] = "";
        poll(&readable, 1, 20);
        while (FILE_BACKEND->wake(crowd->conn, &wake, &err) == 1)
            if (wake.kind != DLOCK_WAKE_LOOK) crowd->failures++;
        if (FILE_BACKEND->list(crowd->conn, "", cursor, ignore, NULL, 1000, &err) < 0) crowd->failures++; /* 1: more */
    }
    return NULL;
}

TEST(share_a_connection) {
    struct crowd crowd = {.conn = world->conn};
    struct dlock_error err;
    pthread_t threads[THREADS + 1];
    assert_int_equal(FILE_BACKEND->listen(world->conn, &crowd.wake_fd, 1000, &err), 0);
    assert_int_equal(pthread_create(&threads[THREADS], NULL, watch, &crowd), 0);
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, work, &crowd), 0);
    for (int i = 0; i <= THREADS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(crowd.failures, 0);
    for (int i = 0; i < NAMES; i++) assert_false(is_held(world->conn, names[i]));
}

struct pair {
    void *conn;
    struct dlock_claim claim;
    pthread_barrier_t start;
};

static void *renew_copy(void *arg) {
    struct pair *pair = arg;
    struct dlock_claim copy = pair->claim;
    pthread_barrier_wait(&pair->start);
    renew(pair->conn, &copy);
    return NULL;
}

/* The keeper may renew a claim while its owner releases it and its file is gone: only one of them may close. */
TEST(renewal_meets_release) {
    struct dlock_claim bystander = claim_of("bystander");
    assert_int_equal(acquire(world->conn, &bystander), 0);
    assert_false(is_held(world->conn, "job"));
    assert_false(is_held(world->conn, "other"));
    int before = count_fds();
    for (int i = 0; i < 300; i++) {
        struct pair pair = {.conn = world->conn, .claim = claim_of("job")};
        struct dlock_claim other = claim_of("other");
        pthread_t thread;
        assert_int_equal(acquire(world->conn, &pair.claim), 0);
        if (i & 1) assert_int_equal(unlink(path_of("job")), 0);
        struct dlock_claim mine = pair.claim;
        assert_int_equal(pthread_barrier_init(&pair.start, NULL, 2), 0);
        assert_int_equal(pthread_create(&thread, NULL, renew_copy, &pair), 0);
        pthread_barrier_wait(&pair.start);
        int result = release(world->conn, &mine);
        assert_int_equal(result, i & 1 ? DLOCK_ELOST : 0);
        assert_int_equal(acquire(world->conn, &other), 0);
        pthread_join(thread, NULL);
        pthread_barrier_destroy(&pair.start);
        assert_int_equal(renew(world->conn, &other), 0);
        assert_true(is_held(world->conn, "other"));
        assert_int_equal(release(world->conn, &other), 0);
    }
    assert_int_equal(count_fds(), before);
    assert_true(is_held(world->conn, "bystander"));
}
