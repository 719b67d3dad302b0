/* An exclusive grant becomes a shared one: no other client gets in between. */
#include "crew.h"

static struct held owner, writer, reader[CREW];

static int setup(void **state) {
    crew_setup(state);
    crew_claim(&owner, 3, "page", DLOCK_EXCLUSIVE, 0);
    crew_claim(&writer, 2, "page", DLOCK_EXCLUSIVE, 0);
    for (int i = 0; i < CREW; i++) crew_claim(&reader[i], i, "page", DLOCK_SHARED, 0);
    assert_int_equal(acquire(&asker[3], &owner), 0);
    return 0;
}

static void downgrade(void) {
    owner.claim.mode = DLOCK_SHARED;
    owner.claim.lease_ms = 60000;
    assert_int_equal(renew(&asker[3], &owner), 0);
    assert_int_equal(owner.claim.kept_ms, 60000);
    assert_true(owner.claim.server_us > 0);
}

TEST(readers_who_are_first_join_and_writers_wait) {
    struct monitor monitor;
    assert_int_equal(queue_up(&asker[0], &reader[0]), DLOCK_EBUSY);
    assert_int_equal(queue_up(&asker[1], &reader[1]), DLOCK_EBUSY);
    assert_int_equal(queue_up(&asker[2], &writer), DLOCK_EBUSY);
    assert_int_equal(queue_up(&asker[0], &reader[2]), DLOCK_EBUSY);
    owner.claim.lease_ms = 60000;
    assert_int_equal(renew(&asker[3], &owner), 0); /* now the server has the script */
    monitor_begin(&monitor, &server);
    downgrade();
    monitor_end(&monitor, &server);
    assert_int_equal(monitor.requests, 1);
    assert_string_equal(ask_text(&server, "GET page"), "dlock:shared");
    assert_in_range(ask_number(&server, "PTTL page"), 50000, 60000);
    assert_granted(0, &reader[0], owner.claim.fence);
    assert_granted(1, &reader[1], reader[0].claim.fence);
    assert_quiet(2);
    assert_quiet(0);
    /* The answer was lost: the same again changes nothing. */
    downgrade();
    assert_int_equal(ask_number(&server, "ZCARD {page}:dlock:holders"), 3);
    assert_int_equal(release(&asker[3], &owner), 0);
    assert_int_equal(release(&asker[0], &reader[0]), 0);
    assert_quiet(2);
    assert_int_equal(release(&asker[1], &reader[1]), 0);
    assert_granted(2, &writer, reader[1].claim.fence);
}

TEST(a_writer_who_is_first_keeps_readers_out) {
    assert_int_equal(queue_up(&asker[2], &writer), DLOCK_EBUSY);
    assert_int_equal(queue_up(&asker[0], &reader[0]), DLOCK_EBUSY);
    downgrade();
    assert_quiet(0);
    assert_quiet(2);
    assert_int_equal(acquire(&asker[1], &reader[1]), DLOCK_EBUSY);
    assert_int_equal(release(&asker[3], &owner), 0);
    assert_granted(2, &writer, owner.claim.fence);
}

TEST(the_fence_stays) {
    uint64_t fence = owner.claim.fence;
    downgrade();
    assert_int_equal(acquire(&asker[3], &owner), 0);
    assert_int_equal(owner.claim.fence, fence);
    assert_int_equal(acquire(&asker[0], &reader[0]), 0);
    assert_true(reader[0].claim.fence > fence);
    assert_int_equal(acquire(&asker[2], &writer), DLOCK_EBUSY);
    owner.claim.mode = DLOCK_EXCLUSIVE;
    assert_int_equal(renew(&asker[3], &owner), DLOCK_ELOST);
}

TEST(it_never_creates_anything) {
    assert_int_equal(release(&asker[3], &owner), 0);
    owner.claim.mode = DLOCK_SHARED;
    assert_int_equal(renew(&asker[3], &owner), DLOCK_ELOST);
    assert_int_equal(ask_number(&server, "EXISTS page"), 0);
    assert_string_equal(ask_text(&server, "SET page foreign NX PX 5000"), "OK");
    assert_int_equal(renew(&asker[3], &owner), DLOCK_ELOST);
    assert_string_equal(ask_text(&server, "GET page"), "foreign");
}

/* It never arrived, and is given up. */
TEST(a_shared_release_ends_an_exclusive_grant) {
    assert_int_equal(queue_up(&asker[0], &reader[0]), DLOCK_EBUSY);
    owner.claim.mode = DLOCK_SHARED;
    assert_int_equal(release(&asker[3], &owner), 0);
    assert_granted(0, &reader[0], owner.claim.fence);
    assert_int_equal(release(&asker[3], &owner), DLOCK_ELOST);
}

/* It confirms a hand-over, like any renewal: the client is not considered stopped. */
TEST(it_confirms_a_hand_over) {
    struct held second;
    crew_claim(&second, 2, "page", DLOCK_EXCLUSIVE, 0);
    assert_int_equal(queue_up(&asker[2], &writer), DLOCK_EBUSY);
    assert_int_equal(queue_up(&asker[2], &second), DLOCK_EBUSY);
    assert_int_equal(queue_up(&asker[0], &reader[0]), DLOCK_EBUSY);
    assert_int_equal(release(&asker[3], &owner), 0);
    assert_granted(2, &writer, owner.claim.fence);
    writer.claim.mode = DLOCK_SHARED;
    assert_int_equal(renew(&asker[2], &writer), 0);
    ask_number(&server, "DEL page");
    assert_int_equal(queue_up(&asker[0], &reader[0]), DLOCK_EBUSY);
    assert_granted(2, &second, writer.claim.fence);
}

TEST(it_works_without_memory) {
    assert_int_equal(queue_up(&asker[0], &reader[0]), DLOCK_EBUSY);
    ask_text(&server, "CONFIG SET maxmemory 1");
    downgrade();
    assert_granted(0, &reader[0], owner.claim.fence);
    assert_string_equal(ask_text(&server, "GET page"), "dlock:shared");
    assert_int_equal(release(&asker[3], &owner), 0);
    assert_int_equal(renew(&asker[0], &reader[0]), 0);
}

TESTS(setup, crew_teardown, group_begin, group_end)
