/* Names with several holders: admission, downgrades, leases, and a writer that waits. */
#include "trio.h"

/* ---- who gets in ------------------------------------------------------------------------------------------------- */

TEST(readers_keep_writers_out) {
    READER(first, 0, "room");
    READER(second, 1, "room");
    WRITER(writer, 2, "room");
    WRITER(hasty, 2, "room"); /* one that asked for long would leave word */
    WRITER(late, 2, "room");
    assert_int_equal(acquire(&links[0], &first), 0);
    assert_int_equal(acquire(&links[2], &hasty), DLOCK_EBUSY);
    assert_int_equal(acquire(&links[1], &second), 0);
    assert_true(second.claim.fence > first.claim.fence);
    assert_int_equal(acquire(&links[2], &late), DLOCK_EBUSY);
    assert_string_equal(ask(&server, "add room 0 10 1\r\nx"), "NOT_STORED\r\n"); /* a client that does not know lists */
    assert_int_equal(release(&links[0], &first), 0);
    assert_int_equal(release(&links[0], &first), DLOCK_ELOST);
    assert_int_equal(acquire(&links[2], &writer), DLOCK_EBUSY);
    assert_int_equal(renew(&links[1], &second), 0);
    assert_int_equal(release(&links[1], &second), 0);
    assert_true(is_free("room"));
    assert_int_equal(acquire(&links[2], &writer), 0);
    assert_true(writer.claim.fence > second.claim.fence);
    assert_int_equal(acquire(&links[0], &first), DLOCK_EBUSY);
    ask(&server, "set room 0 10 1\r\nx"); /* a stranger's lock */
    assert_int_equal(acquire(&links[0], &first), DLOCK_EBUSY);
}

TEST(a_downgrade_keeps_the_fence) {
    for (int round = 0; round < 3; round++) {
        WRITER(mine, 0, "down");
        READER(reader, 1, "down");
        WRITER(writer, 2, "down");
        uint64_t fence;
        assert_int_equal(acquire(&links[0], &mine), 0);
        if (round == 1) assert_int_equal(renew(&links[0], &mine), 0); /* the item's id is no more the grant's */
        fence = mine.claim.fence;
        assert_int_equal(acquire(&links[1], &reader), DLOCK_EBUSY);
        mine.claim.mode = DLOCK_SHARED;
        assert_int_equal(renew(&links[round == 2 ? 2 : 0], &mine), 0); /* also by another process */
        assert_int_equal(acquire(&links[2], &writer), DLOCK_EBUSY);
        assert_int_equal(acquire(&links[1], &reader), 0);
        assert_true(reader.claim.fence > fence);
        assert_int_equal(acquire(&links[0], &mine), 0);
        assert_true(mine.claim.fence == fence);
        assert_int_equal(release(&links[0], &mine), 0);
        assert_int_equal(release(&links[1], &reader), 0);
        assert_true(is_free("down"));
    }
}

TEST(permits_are_counted) {
    CLAIM(first, 0, "seats", DLOCK_PERMIT, 2);
    CLAIM(second, 1, "seats", DLOCK_PERMIT, 2);
    CLAIM(third, 2, "seats", DLOCK_PERMIT, 2);
    CLAIM(other, 2, "seats", DLOCK_PERMIT, 3);
    READER(reader, 2, "seats");
    WRITER(writer, 2, "seats");
    char why[512];
    assert_int_equal(acquire(&links[0], &first), 0);
    assert_int_equal(try_explained(&links[2], &other, why), DLOCK_EINVAL);
    assert_non_null(strstr(why, "in use as 2 permits"));
    assert_int_equal(try_explained(&links[2], &reader, why), DLOCK_EINVAL);
    assert_non_null(strstr(why, "in use as 2 permits"));
    assert_int_equal(try_explained(&links[2], &writer, why), DLOCK_EINVAL);
    assert_non_null(strstr(why, "in use as 2 permits"));
    assert_int_equal(acquire(&links[1], &second), 0);
    assert_int_equal(acquire(&links[2], &third), DLOCK_EBUSY);
    assert_int_equal(renew(&links[0], &first), 0);
    assert_int_equal(release(&links[0], &first), 0);
    assert_int_equal(acquire(&links[2], &third), 0);
    assert_true(third.claim.fence > second.claim.fence && second.claim.fence > first.claim.fence);
    assert_int_equal(release(&links[1], &second), 0);
    assert_int_equal(release(&links[2], &third), 0);
    assert_int_equal(acquire(&links[2], &writer), 0);
    assert_int_equal(try_explained(&links[0], &first, why), DLOCK_EINVAL);
    assert_non_null(strstr(why, "as a lock"));
    assert_int_equal(release(&links[2], &writer), 0);
    assert_int_equal(acquire(&links[2], &reader), 0);
    assert_int_equal(try_explained(&links[0], &first, why), DLOCK_EINVAL);
    assert_non_null(strstr(why, "as a lock"));
}

TEST(odd_claims_are_refused) {
    CLAIM(no_limit, 0, "claims", DLOCK_PERMIT, 0);
    CLAIM(limit, 0, "claims", DLOCK_SHARED, 3);
    CLAIM(unknown, 0, "claims", (enum dlock_mode)3, 0);
    assert_int_equal(acquire(&links[0], &no_limit), DLOCK_EINVAL);
    assert_int_equal(acquire(&links[0], &limit), DLOCK_EINVAL);
    assert_int_equal(acquire(&links[0], &unknown), DLOCK_ENOTSUP);
}

/* ---- leases ------------------------------------------------------------------------------------------------------ */

TEST(a_dead_reader_ends_alone) {
    READER(dead, 0, "grave");
    READER(alive, 1, "grave");
    WRITER(writer, 2, "grave");
    dead.claim.lease_ms = 700;
    assert_int_equal(acquire(&links[0], &dead), 0);
    assert_int_equal(acquire(&links[1], &alive), 0);
    assert_false(poll_for(&links[2], &writer, 1500));
    assert_int_equal(release(&links[1], &alive), 0); /* drops the dead one, or leaves it to the writer */
    assert_true(poll_for(&links[2], &writer, 5000));
    assert_int_equal(renew(&links[0], &dead), DLOCK_ELOST);
}

/* Each renewal changes a reader's lease, including the first one. */
TEST(renewed_readers_are_not_taken_for_dead) {
    READER(reader, 0, "alive");
    WRITER(writer, 1, "alive");
    reader.claim.lease_ms = 2000;
    assert_int_equal(acquire(&links[0], &reader), 0);
    assert_int_equal(acquire(&links[1], &writer), DLOCK_EBUSY);
    for (int i = 0; i < 2; i++) {
        sleep_ms(1050);
        assert_int_equal(renew(&links[0], &reader), 0);
        sleep_ms(1050);
        assert_int_equal(acquire(&links[1], &writer), DLOCK_EBUSY);
        assert_int_equal(renew(&links[0], &reader), 0);
    }
}

TEST(a_reader_that_was_added_again_is_not_either) {
    READER(reader, 0, "again");
    WRITER(writer, 1, "again");
    reader.claim.lease_ms = 2000;
    assert_int_equal(acquire(&links[0], &reader), 0);
    assert_int_equal(acquire(&links[1], &writer), DLOCK_EBUSY);
    sleep_ms(1100);
    ask(&server, "delete again");
    assert_int_equal(acquire(&links[0], &reader), 0); /* the same token, once more by `add` */
    assert_false(poll_for(&links[1], &writer, 1100));
    assert_int_equal(renew(&links[0], &reader), 0);
}

/* ---- a writer that waits ----------------------------------------------------------------------------------------- */

TEST(a_waiting_writer_is_let_in) {
    READER(old, 0, "turn");
    READER(new, 1, "turn");
    WRITER(writer, 2, "turn");
    assert_int_equal(acquire(&links[0], &old), 0);
    assert_int_equal(acquire(&links[2], &writer), DLOCK_EBUSY);
    assert_int_equal(acquire(&links[1], &new), 0); /* one try blocks no other */
    assert_int_equal(release(&links[1], &new), 0);
    assert_false(poll_for(&links[2], &writer, 600));
    assert_int_equal(acquire(&links[1], &new), DLOCK_EBUSY);
    assert_int_equal(renew(&links[0], &old), 0);
    assert_int_equal(acquire(&links[0], &old), 0); /* repeated */
    assert_int_equal(release(&links[0], &old), 0);
    assert_int_equal(acquire(&links[1], &new), DLOCK_EBUSY); /* it is the writer's turn, although the name is free */
    assert_int_equal(acquire(&links[2], &writer), 0);
    assert_int_equal(release(&links[2], &writer), 0);
    assert_true(is_free("turn"));
}

TEST(a_writer_that_gives_up_is_forgotten) {
    READER(old, 0, "gone");
    READER(new, 1, "gone");
    WRITER(writer, 2, "gone");
    for (int round = 0; round < 2; round++) {
        assert_int_equal(acquire(&links[0], &old), 0);
        assert_false(poll_for(&links[2], &writer, 600));
        if (round) assert_int_equal(release(&links[0], &old), 0);
        assert_int_equal(acquire(&links[1], &new), DLOCK_EBUSY);
        assert_true(poll_for(&links[1], &new, 4000));
        assert_int_equal(release(&links[1], &new), 0);
        if (!round) assert_int_equal(release(&links[0], &old), 0);
        assert_true(is_free("gone"));
        writer = claim_of(2, "gone", DLOCK_EXCLUSIVE, 0);
        own(&writer);
    }
}

TESTS(trio_begin, trio_end, group_begin, group_end)
