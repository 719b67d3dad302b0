/* Permits: when waiters ask again; and names that are in use in another mode. */
#include "crew.h"

enum { LIMIT = 3, MANY = 8 };
static struct held permit[MANY];

static struct link *asks(int i) {
    return &asker[i % CREW];
}

static int setup(void **state) {
    crew_setup(state);
    for (int i = 0; i < MANY; i++) crew_claim(&permit[i], i % CREW, "seats", DLOCK_PERMIT, LIMIT);
    return 0;
}

static void take_all(void) {
    for (int i = 0; i < LIMIT; i++) {
        assert_int_equal(acquire(asks(i), &permit[i]), 0);
        assert_true(permit[i].claim.fence > (i ? permit[i - 1].claim.fence : 0));
    }
}

/* One crash loses one permit, for one lease; the first waiter retries when that is over. */
TEST(a_crashed_holder_loses_only_its_own) {
    permit[1].claim.lease_ms = 1000;
    permit[2].claim.lease_ms = 2900;
    take_all();
    for (int i = LIMIT; i < LIMIT + 4; i++) assert_int_equal(queue_up(asks(i), &permit[i]), DLOCK_EBUSY);
    assert_in_range(permit[3].claim.retry_ms, 1, 1001);
    assert_in_range(permit[4].claim.retry_ms, 1800, 2901); /* the next to end is for the next in line */
    assert_int_equal(permit[5].claim.retry_ms, 2250);      /* that might be one whose receiver is stopped */
    assert_int_equal(permit[6].claim.retry_ms, 2250);
    sleep_ms((int)permit[3].claim.retry_ms + 50);
    assert_int_equal(queue_up(asks(3), &permit[3]), 0);
    assert_int_equal(renew(asks(1), &permit[1]), DLOCK_ELOST);
    assert_int_equal(renew(asks(0), &permit[0]), 0);
    assert_int_equal(renew(asks(2), &permit[2]), 0);
    assert_int_equal(release(asks(1), &permit[1]), DLOCK_ELOST);
    assert_int_equal(queue_up(asks(4), &permit[4]), DLOCK_EBUSY);
}

/* The permit's lease ends, by the server's clock. */
static void end_lease(const struct held *held) {
    assert_int_equal(ask_number(&server, "ZADD {seats}:dlock:holders XX CH 1 %s", held->claim.token), 1);
}

/* ---- in use as something else ------------------------------------------------------------------------------------ */

static void assert_in_use(struct held *held, const char *as, const char *asked) {
    static const uint32_t ways[] = {0, DLOCK_CLAIM_QUEUE};
    char used[64], wanted[64];
    snprintf(used, sizeof used, "\"seats\" is in use as %s;", as);
    snprintf(wanted, sizeof wanted, "asked for as %s", asked);
    for (int i = 0; i < 2; i++) {
        struct dlock_error err = {0};
        assert_int_equal(held_run(backend->acquire, asks(3), held, ways[i], TIMEOUT_MS, &err), 0);
        assert_int_equal(held->claim.result, DLOCK_EINVAL);
        assert_int_equal(err.code, DLOCK_EINVAL);
        assert_non_null(strstr(err.message, used));
        assert_non_null(strstr(err.message, wanted));
    }
}

/* Waiters that live determine the use of the name; dead ones do not. */
TEST(waiters_count_as_users) {
    struct held writer;
    crew_claim(&writer, 3, "seats", DLOCK_EXCLUSIVE, 0);
    take_all();
    assert_int_equal(queue_up(asks(4), &permit[4]), DLOCK_EBUSY);
    for (int i = 0; i < LIMIT; i++) end_lease(&permit[i]);
    assert_int_equal(ask_number(&server, "PEXPIRE seats 1"), 1);
    sleep_ms(50);
    assert_in_use(&writer, "3 permits", "a lock");
    crew_deaf(4 % CREW);
    assert_int_equal(acquire(asks(3), &writer), 0);
    assert_int_equal(ask_number(&server, "EXISTS {seats}:dlock:queue"), 0);
}

/* The waiters' record was deleted: they repeat the same requests. */
TEST(waiters_without_a_record_ask_again) {
    take_all();
    for (int i = LIMIT; i < LIMIT + 3; i++) assert_int_equal(queue_up(asks(i), &permit[i]), DLOCK_EBUSY);
    ask_number(&server, "DEL {seats}:dlock:waiters");
    assert_int_equal(queue_up(asks(4), &permit[4]), DLOCK_EBUSY);
    for (int i = 0; i < LIMIT; i++) assert_int_equal(release(asks(i), &permit[i]), 0);
    assert_granted(4 % CREW, &permit[4], permit[2].claim.fence);
    assert_int_equal(queue_up(asks(5), &permit[5]), 0);
    assert_int_equal(queue_up(asks(3), &permit[3]), 0);
    assert_int_equal(queue_up(asks(6), &permit[6]), DLOCK_EBUSY);
    assert_int_equal(queue_up(asks(7), &permit[7]), DLOCK_EBUSY);
    ask_number(&server, "DEL {seats}:dlock:waiters seats");
    assert_int_equal(queue_up(asks(7), &permit[7]), 0);
    assert_int_equal(ask_number(&server, "EXISTS {seats}:dlock:queue"), 0);
}

/* Such a lock has no mode: it is waited for like any other, and what waits has to agree. */
TEST(a_foreign_lock_is_waited_for) {
    struct held writer;
    crew_claim(&writer, 3, "seats", DLOCK_EXCLUSIVE, 0);
    assert_string_equal(ask_text(&server, "SET seats foreign NX PX 5000"), "OK");
    assert_int_equal(queue_up(asks(0), &permit[0]), DLOCK_EBUSY);
    assert_int_equal(permit[0].claim.retry_ms, -1);
    assert_int_equal(queue_up(asks(1), &permit[1]), DLOCK_EBUSY);
    assert_in_use(&writer, "3 permits", "a lock");
    ask_number(&server, "DEL seats");
    assert_int_equal(queue_up(asks(1), &permit[1]), 0);
    assert_granted(0, &permit[0], 0);
}

TESTS(setup, crew_teardown, group_begin, group_end)
