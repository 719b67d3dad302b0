/* The system calls of a cycle, counted by a tracer. */
#include "fixture.h"
#include "support/calls.h"

#include <unistd.h>

enum { CYCLES = 50 };

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
