/* delay= and fail=, through the table of operations: how many requests are not answered, which of those were carried out,
 * and which renewals find the lock lost. Beside them a connection of the same name without faults looks on. */
#include "support/clock.h"
#include "support/held.h"
#include "support/test.h"

#include <stdlib.h>

/* Counts are within 8 standard deviations of a fair coin's. */
enum { REQUESTS = 2000, HALF = REQUESTS / 2, SPREAD = 180 };

static struct link faulty, plain;

static void open_link(struct link *link, char letter, const char *delay, const char *fail) {
    struct uri uri;
    struct dlock_error err = {0};
    uri_init(&uri, 0);
    uri.parts.n_hosts = 0;
    uri.parts.path = "faults";
    if (delay) uri.param[uri.parts.n_params++] = (struct dlock_param){"delay", delay};
    if (fail) uri.param[uri.parts.n_params++] = (struct dlock_param){"fail", fail};
    if (link_try(link, &uri.parts, letter, 0, TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
}

static int setup(void **state) {
    (void)state;
    open_link(&plain, 'b', NULL, NULL);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    link_end(&faulty);
    link_end(&plain);
    return 0;
}

static int count_holder(const struct dlock_info *info, void *arg) {
    (void)info;
    ++*(int *)arg;
    return 0;
}

static int holders(const char *name) {
    struct dlock_error err = {0};
    int n = 0;
    if (backend->inspect(plain.conn, name, count_holder, &n, TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
    return n;
}

/* Tries an operation within timeout_ms; true: it was answered. Otherwise the error says why. */
static bool answered(dlock_batch *operation, struct held *held, int timeout_ms) {
    struct dlock_error err = {0};
    int rc = held_run(operation, &faulty, held, 0, timeout_ms, &err);
    if (rc == 0) return true;
    assert_int_equal(rc, DLOCK_EUNAVAILABLE);
    assert_int_equal(err.code, rc);
    assert_non_null(strstr(err.message, "mem: no answer"));
    return false;
}

TEST(requests_fail_in_either_way) {
    int unanswered = 0, carried_out = 0;
    struct held held;
    open_link(&faulty, 'a', NULL, "0.5");
    for (int i = 0; i < REQUESTS; i++) {
        held_new(&held, &faulty, "either-way");
        bool heard = answered(backend->acquire, &held, TIMEOUT_MS);
        int there = holders("either-way");
        if (heard) assert_int_equal(held.claim.result, 0);
        if (heard) assert_int_equal(there, 1);
        unanswered += !heard;
        carried_out += !heard && there;
        assert_int_equal(release(&plain, &held), there ? 0 : DLOCK_ELOST); /* any client may, by token */
    }
    assert_in_range(unanswered, HALF - SPREAD, HALF + SPREAD);
    assert_in_range(carried_out, unanswered / 2 - SPREAD, unanswered / 2 + SPREAD);
}

TEST(everything_fails) {
    struct dlock_error err = {0};
    struct held held;
    char cursor[256] = "";
    int n = 0, broken = 0;
    open_link(&faulty, 'a', NULL, "1");
    held_new(&held, &faulty, "all");
    for (int i = 0; i < 50; i++) {
        assert_false(answered(backend->acquire, &held, TIMEOUT_MS));
        assert_false(answered(backend->renew, &held, TIMEOUT_MS));
        assert_false(answered(backend->release, &held, TIMEOUT_MS));
        assert_int_equal(backend->inspect(faulty.conn, "all", count_holder, &n, TIMEOUT_MS, &err), DLOCK_EUNAVAILABLE);
        assert_int_equal(backend->list(faulty.conn, "", cursor, count_holder, &n, TIMEOUT_MS, &err),
                         DLOCK_EUNAVAILABLE);
        held_new(&held, &plain, "broken");
        assert_int_equal(acquire(&plain, &held), 0);
        assert_int_equal(backend->break_lock(faulty.conn, "broken", TIMEOUT_MS, &err), DLOCK_EUNAVAILABLE);
        broken += release(&plain, &held) == DLOCK_ELOST;
        held_new(&held, &faulty, "all");
    }
    assert_int_equal(n, 0);
    assert_in_range(broken, 1, 49); /* carried out, or not */
}

TEST(nothing_fails) {
    struct held held;
    open_link(&faulty, 'a', "0", "0.0");
    for (int i = 0; i < REQUESTS; i++) {
        held_new(&held, &faulty, "none");
        assert_int_equal(acquire(&faulty, &held), 0);
        assert_int_equal(renew(&faulty, &held), 0);
        assert_int_equal(release(&faulty, &held), 0);
    }
}

/* A renewal finds its lock gone with the same probability, and the next in line has it then. */
TEST(renewals_lose_locks) {
    int heard = 0, lost = 0, handed_on = 0;
    struct held held, waiting;
    struct dlock_wake wake;
    open_link(&faulty, 'a', NULL, "0.5");
    link_listen(&plain);
    for (int i = 0; i < REQUESTS; i++) {
        held_new(&held, &faulty, "renewed");
        held_new(&waiting, &plain, "renewed");
        assert_int_equal(acquire(&plain, &held), 0);
        assert_int_equal(queue_up(&plain, &waiting), DLOCK_EBUSY);
        if (answered(backend->renew, &held, TIMEOUT_MS)) {
            heard++;
            lost += held.claim.result == DLOCK_ELOST;
            if (held.claim.result != DLOCK_ELOST) assert_int_equal(held.claim.result, 0);
            if (held.claim.result == DLOCK_ELOST) {
                assert_true(wake_within(&plain, &wake, TIMEOUT_MS));
                assert_int_equal(wake.kind, DLOCK_WAKE_GRANTED);
                assert_string_equal(wake.token, waiting.token);
                assert_true(wake.fence > held.claim.fence);
                handed_on++;
            }
        }
        release(&plain, &held);
        release(&plain, &waiting);
        while (wake_within(&plain, &wake, 0)) continue;
    }
    assert_in_range(heard, HALF - SPREAD, HALF + SPREAD);
    assert_in_range(lost, heard / 2 - SPREAD, heard / 2 + SPREAD);
    assert_int_equal(handed_on, lost);
}

/* Whatever takes longer than the caller waits for is carried out, and its answer is late. */
TEST(slow_requests) {
    enum { DELAY_MS = 30, N = 5 };
    struct held held[N], late;
    open_link(&faulty, 'a', "30ms", NULL);
    int64_t begun = now_ms();
    for (int i = 0; i < N; i++) {
        char name[16];
        snprintf(name, sizeof name, "slow-%d", i);
        held_new(&held[i], &faulty, name);
        assert_int_equal(acquire(&faulty, &held[i]), 0);
    }
    assert_true(now_ms() - begun >= N * DELAY_MS);
    begun = now_ms();
    held_new(&late, &faulty, "late");
    assert_false(answered(backend->acquire, &late, DELAY_MS / 3));
    assert_true(now_ms() - begun >= DELAY_MS / 3);
    assert_int_equal(holders("late"), 1);
}

/* Many locks at once are one request: one delay, one fate. */
TEST(a_batch_is_one_request) {
    enum { N = 100 };
    struct held held[N];
    struct dlock_claim *claims[N];
    char names[N][16];
    open_link(&faulty, 'a', NULL, "0.5");
    for (int round = 0; round < 20; round++) {
        struct dlock_error err = {0};
        int carried_out = 0;
        for (int i = 0; i < N; i++) {
            snprintf(names[i], sizeof names[i], "batch-%03d", i);
            held_new(&held[i], &faulty, names[i]);
            claims[i] = &held[i].claim;
        }
        int rc = backend->acquire(faulty.conn, claims, N, TIMEOUT_MS, &err);
        for (int i = 0; i < N; i++) carried_out += holders(names[i]);
        if (rc == 0) assert_int_equal(carried_out, N);
        assert_true(carried_out == 0 || carried_out == N);
        for (int i = 0; i < N; i++) release(&plain, &held[i]);
    }
}

/* Long before its next renewal. */
TEST(a_broken_grant_is_reported) {
    struct held held;
    struct dlock_wake wake;
    open_link(&faulty, 'a', NULL, NULL);
    link_listen(&faulty);
    claim_init(&held, "broken", 'a', 1);
    assert_int_equal(acquire(&faulty, &held), 0);
    assert_int_equal(backend->break_lock(plain.conn, "broken", TIMEOUT_MS, NULL), 0);
    assert_true(wake_within(&faulty, &wake, 1000));
    assert_int_equal(wake.kind, DLOCK_WAKE_LOST);
    assert_string_equal(wake.token, held.token);
}

TESTS(setup, teardown, backend_load, NULL)
