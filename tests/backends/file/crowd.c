#include "crowd.h"

#include <unistd.h>

struct member {
    const struct crowd *crowd;
    uint64_t *fences; /* its own */
    int number;
};

static int take_often(void *arg) {
    const struct member *member = arg;
    const struct crowd *crowd = member->crowd;
    void *conn = conn_open(world->dir);
    for (int i = 0; i < crowd->takes; i++) {
        struct dlock_claim claim = crowd->claim(member->number, i);
        while (acquire(conn, &claim) == DLOCK_EBUSY) usleep(30);
        if (claim.result != 0) return 1;
        if (i > 0 && claim.fence <= member->fences[i - 1]) return 2;
        member->fences[i] = claim.fence;
        int wrong = crowd->visit ? crowd->visit(crowd->shared, &claim) : 0;
        if (wrong) return wrong;
        if (release(conn, &claim) != 0) return 3;
    }
    return 0;
}

void crowd_run(const struct crowd *crowd) {
    const size_t n = (size_t)crowd->members * (size_t)crowd->takes;
    uint64_t *fences = shared_new(n * sizeof *fences);
    struct member members[16];
    assert_in_range(crowd->members, 1, 16);
    for (int i = 0; i < crowd->members; i++) members[i] = (struct member){crowd, fences + i * crowd->takes, i};
    children_run(take_often, members, sizeof *members, crowd->members);
    check_fences(fences, n);
    shared_end(fences, n * sizeof *fences);
}

static int by_value(const void *a, const void *b) {
    const uint64_t *one = a, *two = b;
    return (*one > *two) - (*one < *two);
}

void check_fences(uint64_t *fences, size_t n) {
    qsort(fences, n, sizeof *fences, by_value);
    for (size_t i = 1; i < n; i++) assert_true(fences[i] > fences[i - 1]);
}
