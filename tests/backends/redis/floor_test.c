/* Fences that are raised, as a member of a quorum has to: renew with a floor. */
#include "harness.h"
#include "support/group.h"
#include "support/pair.h"

#include <stdlib.h>
#include <unistd.h>

/* In microseconds: more than an hour before the server's clock. */
#define AHEAD UINT64_C(5000000000)

static int setup(void **state) {
    ask_text(&server, "FLUSHALL");
    return group_pair(state);
}

/* A fence that is no fence is shown as unknown. */
static int see(const struct dlock_info *info, void *arg) {
    assert_string_equal(info->token, ((const struct held *)arg)->token);
    assert_int_equal(info->fence, 0);
    return 0;
}

static uint64_t stored(const char *name) {
    return strtoull(ask_text(&server, "GET {%s}:dlock:fence", name), NULL, 10);
}

static int raise_to(struct link *link, struct held *held, uint64_t floor) {
    held->claim.floor = floor;
    int result = renew(link, held);
    held->claim.floor = 0;
    return result;
}

TEST(the_next_fence_is_above_the_floor) {
    struct held held, next;
    claim_init(&held, "raised", 'a', 1);
    claim_init(&next, "raised", 'b', 1);
    assert_int_equal(acquire(&one, &held), 0);
    uint64_t floor = held.claim.fence + AHEAD;
    assert_int_equal(raise_to(&one, &held, floor), 0);
    assert_int_equal(stored("raised"), floor);
    assert_in_range(ask_number(&server, "PTTL {raised}:dlock:fence"), LIFE_MS, 3 * LIFE_MS + LEASE_MS);
    assert_int_equal(renew(&one, &held), 0); /* without a floor it stays */
    assert_int_equal(acquire(&one, &held), 0);
    assert_int_equal(held.claim.fence, floor); /* now this grant's fence */
    ask_number(&server, "PEXPIRE raised 1");   /* the lease ends; the floor does not */
    while (ask_number(&server, "EXISTS raised")) usleep(1000);
    assert_int_equal(acquire(&two, &next), 0);
    assert_int_equal(next.claim.fence, floor + 1);
}

/* A connection that counts fences up for a moment counts on from the floor. */
TEST(counted_fences_go_on_from_the_floor) {
    struct held held;
    for (int i = 0; i < 3; i++) {
        claim_init(&held, "counted", 'a', i);
        assert_int_equal(acquire(&one, &held), 0);
        uint64_t floor = held.claim.fence + AHEAD;
        assert_int_equal(raise_to(&one, &held, floor), 0);
        assert_int_equal(release(&one, &held), 0);
        claim_init(&held, "counted", 'a', 10 + i);
        assert_int_equal(acquire(&one, &held), 0);
        assert_true(held.claim.fence > floor);
        assert_int_equal(release(&one, &held), 0);
    }
}

TEST(a_floor_that_cannot_be_counted_from_is_refused) {
    struct held held;
    claim_init(&held, "huge", 'a', 1);
    assert_int_equal(acquire(&one, &held), 0);
    assert_int_equal(raise_to(&one, &held, UINT64_C(1) << 53), DLOCK_EINVAL);
    assert_int_equal(stored("huge"), held.claim.fence);
}

/* A lingering grant stays one, and what is no fence stays what it is. */
TEST(what_stands_there_is_kept) {
    struct held held;
    struct dlock_error err;
    claim_init(&held, "lingers", 'a', 1);
    assert_int_equal(held_run(backend->acquire, &one, &held, DLOCK_CLAIM_LINGER, TIMEOUT_MS, &err), 0);
    uint64_t floor = held.claim.fence + AHEAD;
    held.claim.floor = floor;
    assert_int_equal(held_run(backend->renew, &one, &held, DLOCK_CLAIM_LINGER, TIMEOUT_MS, &err), 0);
    assert_int_equal(held.claim.result, 0);
    const char *text = ask_text(&server, "GET {lingers}:dlock:fence");
    assert_int_equal(text[strlen(text) - 1], ' ');
    assert_int_equal(strtoull(text, NULL, 10), floor);

    claim_init(&held, "foreign", 'a', 1);
    assert_int_equal(acquire(&one, &held), 0);
    ask_text(&server, "SET {foreign}:dlock:fence mine");
    assert_int_equal(raise_to(&one, &held, floor), DLOCK_ELOST);
    assert_string_equal(ask_text(&server, "GET {foreign}:dlock:fence"), "mine");
}

/* Redis' scripts count exactly up to 2^53. A greater number was written by another program, and is left as it is: a fence
 * after it would not be greater. */
TEST(what_cannot_be_counted_from_is_no_fence) {
    static const char *const values[] = {"9007199254740992", "9007199254740993", "99999999999999999999"};
    struct held held;
    struct dlock_error err;
    char name[16];
    for (int i = 0; i < 6; i++) {
        const char *value = values[i / 2];
        snprintf(name, sizeof name, "far-%d", i);
        held_new(&held, &one, name);
        held.claim.mode = i % 2 ? DLOCK_SHARED : DLOCK_EXCLUSIVE;
        ask_text(&server, "SET {%s}:dlock:fence %s", name, value);
        assert_int_equal(acquire(&one, &held), DLOCK_EINVAL);
        assert_int_equal(ask_number(&server, "EXISTS %s", name), 0);
        assert_string_equal(ask_text(&server, "GET {%s}:dlock:fence", name), value);

        held.claim.mode = DLOCK_EXCLUSIVE;
        ask_number(&server, "DEL {%s}:dlock:fence", name);
        assert_int_equal(acquire(&one, &held), 0);
        ask_text(&server, "SET {%s}:dlock:fence %s", name, value);
        assert_int_equal(backend->inspect(one.conn, name, see, &held, TIMEOUT_MS, &err), 0);
        assert_int_equal(raise_to(&one, &held, held.claim.fence), DLOCK_ELOST);
        assert_string_equal(ask_text(&server, "GET {%s}:dlock:fence", name), value);
        assert_int_equal(release(&one, &held), 0);
    }
}

TEST(no_fence_comes_twice_at_the_end) {
    const uint64_t last = (UINT64_C(1) << 53) - 1;
    struct held held;
    held_new(&held, &one, "end");
    assert_int_equal(acquire(&one, &held), 0);
    assert_int_equal(raise_to(&one, &held, last), 0);
    assert_int_equal(release(&one, &held), 0);
    uint64_t fence = last;
    for (int i = 0; i < 3; i++) {
        held_new(&held, &one, "end");
        if (acquire(&one, &held) != 0) break;
        assert_true(held.claim.fence > fence);
        fence = held.claim.fence;
        assert_int_equal(release(&one, &held), 0);
    }
    assert_int_equal(held.claim.result, DLOCK_EINVAL);
}

TEST(each_of_a_batch_has_its_own) {
    enum { N = 3 };
    static char names[N][16];
    struct held held[N];
    struct dlock_claim *claims[N];
    uint64_t floors[N];
    struct dlock_error err;
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "batch-%d", i);
        claim_init(&held[i], names[i], 'a', i);
        claims[i] = &held[i].claim;
        assert_int_equal(acquire(&one, &held[i]), 0);
        floors[i] = i == 1 ? 0 : held[i].claim.fence + AHEAD + (uint64_t)i;
        claims[i]->floor = floors[i];
    }
    assert_int_equal(backend->renew(one.conn, claims, N, TIMEOUT_MS, &err), 0);
    for (int i = 0; i < N; i++) {
        assert_int_equal(claims[i]->result, 0);
        assert_int_equal(stored(names[i]), floors[i] ? floors[i] : held[i].claim.fence);
    }
}

TESTS(setup, pair_end, group_begin, group_end)
