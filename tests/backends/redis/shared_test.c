/* Shared locks: their keys, which others touch, and what readers leave there. */
#include "crew.h"

#define NAME "the{book}" /* braces are encoded in keys */
#define KEY "the%%7Bbook%%7D"

static struct held reader[CREW], writer;

static int setup(void **state) {
    crew_setup(state);
    for (int i = 0; i < CREW; i++) crew_claim(&reader[i], i, NAME, DLOCK_SHARED, 0);
    crew_claim(&writer, 3, NAME, DLOCK_EXCLUSIVE, 0);
    return 0;
}

static int64_t in_queue(void) {
    return ask_number(&server, "ZCARD {" KEY "}:dlock:queue");
}

static int64_t word_ends(void) {
    return ask_number(&server, "PTTL " KEY);
}

/* Nobody would delete it otherwise. */
TEST(the_fence_of_readers_expires) {
    assert_int_equal(acquire(&asker[0], &reader[0]), 0);
    assert_int_equal(release(&asker[0], &reader[0]), 0);
    assert_int_equal(ask_number(&server, "DBSIZE"), 1);
    assert_in_range(ask_number(&server, "PTTL {" KEY "}:dlock:fence"), LIFE_MS, 3 * LIFE_MS + LEASE_MS);
}

/* Other clients see the lock until the last of the readers is gone, and not longer. */
TEST(the_word_lasts_as_long_as_the_last_reader) {
    reader[1].claim.lease_ms = 3000;
    assert_int_equal(acquire(&asker[0], &reader[0]), 0);
    assert_int_equal(acquire(&asker[1], &reader[1]), 0);
    assert_string_equal(ask_text(&server, "GET " KEY), "dlock:shared");
    assert_in_range(word_ends(), LEASE_MS - 3000, LEASE_MS);
    assert_int_equal(renew(&asker[1], &reader[1]), 0); /* extends only that one */
    assert_in_range(word_ends(), LEASE_MS - 3000, LEASE_MS);
    assert_int_equal(release(&asker[0], &reader[0]), 0);
    assert_in_range(word_ends(), 1, 3000);
    reader[1].claim.lease_ms = 60000;
    assert_int_equal(renew(&asker[1], &reader[1]), 0);
    assert_in_range(word_ends(), 50000, 60000);
    assert_true(ask_number(&server, "PTTL {" KEY "}:dlock:fence") > 60000);
    assert_int_equal(acquire(&asker[3], &writer), DLOCK_EBUSY);
}

/* Within the one call that releases: a message for each, and those behind the next writer stay. */
TEST(twenty_readers_enter_together) {
    enum { READERS = 20 };
    struct held readers[READERS], second;
    struct monitor monitor;
    uint64_t fence;
    assert_int_equal(acquire(&asker[3], &writer), 0);
    for (int i = 0; i < READERS; i++) {
        crew_claim(&readers[i], i % CREW, NAME, DLOCK_SHARED, 0);
        assert_int_equal(queue_up(&asker[i % CREW], &readers[i]), DLOCK_EBUSY);
    }
    crew_claim(&second, 3, NAME, DLOCK_EXCLUSIVE, 0);
    assert_int_equal(queue_up(&asker[3], &second), DLOCK_EBUSY);
    assert_int_equal(queue_up(&asker[0], &reader[0]), DLOCK_EBUSY);
    monitor_begin(&monitor, &server);
    assert_int_equal(release(&asker[3], &writer), 0);
    monitor_end(&monitor, &server);
    assert_int_equal(monitor.evalsha, 1);
    assert_int_equal(monitor.requests, 2); /* with a TIME, since client 3 was put into the queue itself */
    assert_int_equal(monitor.published, READERS);
    fence = writer.claim.fence;
    for (int i = 0; i < READERS; i++) {
        assert_granted(i % CREW, &readers[i], fence);
        fence = readers[i].claim.fence;
    }
    assert_int_equal(in_queue(), 2);
    for (int i = 0; i < READERS; i++) {
        assert_int_equal(renew(&asker[i % CREW], &readers[i]), 0);
        assert_int_equal(release(&asker[i % CREW], &readers[i]), 0);
    }
    assert_granted(3, &second, fence);
}

/* A reader that does not confirm its hand-over loses it after 3 s, and its client its places in the queue. */
TEST(a_stopped_reader_costs_three_seconds) {
    struct held second, third;
    int64_t begin, released;
    crew_claim(&second, 0, NAME, DLOCK_EXCLUSIVE, 0);
    crew_claim(&third, 0, NAME, DLOCK_EXCLUSIVE, 0);
    assert_int_equal(acquire(&asker[3], &writer), 0);
    assert_int_equal(queue_up(&asker[0], &reader[0]), DLOCK_EBUSY);
    assert_int_equal(queue_up(&asker[1], &reader[1]), DLOCK_EBUSY);
    assert_int_equal(queue_up(&asker[0], &second), DLOCK_EBUSY);
    assert_int_equal(queue_up(&asker[0], &third), DLOCK_EBUSY);
    assert_int_equal(queue_up(&asker[2], &reader[2]), DLOCK_EBUSY);
    begin = now_ms();
    assert_int_equal(release(&asker[3], &writer), 0);
    released = now_ms();
    assert_granted(0, &reader[0], writer.claim.fence);
    assert_granted(1, &reader[1], reader[0].claim.fence);
    assert_int_equal(renew(&asker[1], &reader[1]), 0);
    while (queue_up(&asker[2], &reader[2]) == DLOCK_EBUSY) {
        assert_true(now_ms() - begin < 6000);
        sleep_ms(20);
    }
    assert_true(now_ms() - begin >= 2900);
    assert_int_equal(reader[2].claim.result, 0);
    /* The places that it has taken before the release end a moment earlier than what the release has given it. */
    while (now_ms() <= released + DLOCK_HAND_OVER_MS) sleep_ms(1);
    assert_int_equal(renew(&asker[0], &reader[0]), DLOCK_ELOST);
    assert_int_equal(renew(&asker[1], &reader[1]), 0);
    assert_int_equal(in_queue(), 0);
    /* It repeats its request, and so stays alive. */
    assert_int_equal(queue_up(&asker[0], &second), DLOCK_EBUSY);
    assert_int_equal(release(&asker[1], &reader[1]), 0);
    assert_int_equal(release(&asker[2], &reader[2]), 0);
    assert_granted(0, &second, reader[2].claim.fence);
}

/* ---- keys that others touch -------------------------------------------------------------------------------------- */

/* A reader that held before a writer did never holds again. */
TEST(readers_of_before_never_come_back) {
    assert_int_equal(acquire(&asker[0], &reader[0]), 0);
    ask_number(&server, "DEL " KEY);
    assert_string_equal(ask_text(&server, "SET " KEY " foreign NX PX 5000"), "OK");
    assert_int_equal(renew(&asker[0], &reader[0]), DLOCK_ELOST);
    assert_int_equal(release(&asker[0], &reader[0]), DLOCK_ELOST);
    assert_string_equal(ask_text(&server, "GET " KEY), "foreign");
    ask_number(&server, "DEL " KEY);
    assert_int_equal(acquire(&asker[1], &reader[1]), 0);
    assert_int_equal(renew(&asker[0], &reader[0]), DLOCK_ELOST);
    assert_int_equal(ask_number(&server, "ZCARD {" KEY "}:dlock:holders"), 1);
    ask_number(&server, "DEL " KEY);
    assert_int_equal(acquire(&asker[3], &writer), 0);
    writer.claim.mode = DLOCK_SHARED;
    assert_int_equal(renew(&asker[3], &writer), 0);
    assert_int_equal(renew(&asker[1], &reader[1]), DLOCK_ELOST);
    assert_int_equal(release(&asker[1], &reader[1]), DLOCK_ELOST);
    assert_int_equal(renew(&asker[3], &writer), 0);
}

/* All readers crash: the lock's key expires, and their other traces do no harm. */
TEST(what_crashed_readers_leave_is_swept_up) {
    for (int i = 0; i < 3; i++) {
        reader[i].claim.lease_ms = 200;
        assert_int_equal(acquire(&asker[i], &reader[i]), 0);
    }
    sleep_ms(300);
    assert_int_equal(ask_number(&server, "EXISTS " KEY), 0);
    reader[0].claim.lease_ms = LEASE_MS;
    assert_int_equal(acquire(&asker[0], &reader[0]), 0);
    assert_int_equal(ask_number(&server, "ZCARD {" KEY "}:dlock:holders"), 1);
    assert_int_equal(ask_number(&server, "HLEN {" KEY "}:dlock:grants"), 1);
    assert_int_equal(renew(&asker[1], &reader[1]), DLOCK_ELOST);
}

TEST(lost_records_end_grants_and_stop_nothing) {
    uint64_t fence;
    assert_int_equal(acquire(&asker[0], &reader[0]), 0);
    fence = reader[0].claim.fence;
    ask_number(&server, "DEL {" KEY "}:dlock:grants");
    assert_int_equal(renew(&asker[0], &reader[0]), 0);
    ask_number(&server, "DEL {" KEY "}:dlock:grants");
    assert_int_equal(acquire(&asker[0], &reader[0]), 0);
    assert_true(reader[0].claim.fence > fence);
    ask_number(&server, "DEL {" KEY "}:dlock:holders");
    assert_int_equal(renew(&asker[0], &reader[0]), DLOCK_ELOST);
    assert_int_equal(acquire(&asker[1], &reader[1]), 0);
    assert_int_equal(release(&asker[0], &reader[0]), DLOCK_ELOST);
    assert_int_equal(release(&asker[1], &reader[1]), 0);
    assert_int_equal(ask_number(&server, "EXISTS " KEY), 0);
}

TEST(readers_wait_for_foreign_holders) {
    assert_int_equal(acquire(&asker[0], &reader[0]), 0);
    assert_string_equal(ask_text(&server, "SET " KEY " foreign NX PX 5000"), "");
    assert_int_equal(release(&asker[0], &reader[0]), 0);
    assert_string_equal(ask_text(&server, "SET " KEY " foreign NX PX 5000"), "OK");
    assert_int_equal(queue_up(&asker[0], &reader[0]), DLOCK_EBUSY);
    assert_int_equal(reader[0].claim.retry_ms, -1);
    assert_int_equal(queue_up(&asker[1], &reader[1]), DLOCK_EBUSY);
    ask_number(&server, "DEL " KEY);
    assert_int_equal(queue_up(&asker[0], &reader[0]), 0);
    assert_granted(1, &reader[1], reader[0].claim.fence);
}

/* A full server accepts no new readers, and lets existing ones continue and leave. */
TEST(without_memory_readers_go_on) {
    struct dlock_claim *claim = &reader[1].claim;
    struct dlock_error err = {0};
    assert_int_equal(acquire(&asker[0], &reader[0]), 0);
    assert_int_equal(acquire(&asker[2], &reader[2]), 0);
    assert_int_equal(queue_up(&asker[3], &writer), DLOCK_EBUSY);
    ask_text(&server, "CONFIG SET maxmemory 1");
    assert_int_equal(acquire(&asker[1], &reader[1]), DLOCK_EBUSY);
    assert_int_equal(renew(&asker[0], &reader[0]), 0);
    assert_int_equal(release(&asker[3], &writer), DLOCK_ELOST);
    assert_int_equal(backend->acquire(asker[1].conn, &claim, 1, TIMEOUT_MS, &err), DLOCK_EUNAVAILABLE);
    assert_non_null(strstr(err.message, "OOM"));
    assert_int_equal(ask_number(&server, "ZCARD {" KEY "}:dlock:holders"), 2);
    assert_int_equal(release(&asker[0], &reader[0]), 0);
    assert_int_equal(release(&asker[2], &reader[2]), 0);
    assert_int_equal(backend->acquire(asker[1].conn, &claim, 1, TIMEOUT_MS, &err), DLOCK_EUNAVAILABLE);
    assert_int_equal(ask_number(&server, "DBSIZE"), 1);
}

TEST(a_downgrade_works_without_memory) {
    assert_int_equal(acquire(&asker[3], &writer), 0);
    assert_int_equal(queue_up(&asker[0], &reader[0]), DLOCK_EBUSY);
    ask_text(&server, "CONFIG SET maxmemory 1");
    writer.claim.mode = DLOCK_SHARED;
    assert_int_equal(renew(&asker[3], &writer), 0);
    assert_granted(0, &reader[0], writer.claim.fence);
    assert_string_equal(ask_text(&server, "GET " KEY), "dlock:shared");
    assert_int_equal(release(&asker[3], &writer), 0);
    assert_int_equal(renew(&asker[0], &reader[0]), 0);
}

TESTS(setup, crew_teardown, group_begin, group_end)
