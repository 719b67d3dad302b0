/* Names with several holders: admission, downgrades, leases, and a writer that waits. */
#include "trio.h"

/* ---- who gets in ------------------------------------------------------------------------------------------------- */

/* Clients that do not know lists. */
TEST(others_see_a_lock) {
    READER(reader, 0, "room");
    assert_int_equal(acquire(&links[0], &reader), 0);
    assert_string_equal(ask(&server, "add room 0 10 1\r\nx"), "NOT_STORED\r\n");
    assert_int_equal(release(&links[0], &reader), 0);
    assert_true(is_free("room"));
    ask(&server, "set room 0 10 1\r\nx");
    assert_int_equal(acquire(&links[0], &reader), DLOCK_EBUSY);
}

/* Also after a renewal, when the item's id is no more the grant's, and by another process. */
TEST(a_downgrade_keeps_the_fence) {
    for (int by = 0; by < 2; by++) {
        WRITER(mine, 0, "down");
        assert_int_equal(acquire(&links[0], &mine), 0);
        assert_int_equal(renew(&links[0], &mine), 0);
        const uint64_t fence = mine.claim.fence;
        mine.claim.mode = DLOCK_SHARED;
        assert_int_equal(renew(&links[by], &mine), 0);
        assert_int_equal(acquire(&links[0], &mine), 0);
        assert_true(mine.claim.fence == fence);
        assert_int_equal(release(&links[0], &mine), 0);
        assert_true(is_free("down"));
    }
}

static void assert_in_use(struct held *held, const char *as) {
    char why[512];
    assert_int_equal(try_explained(&links[1], held, why), DLOCK_EINVAL);
    assert_non_null(strstr(why, as));
}

TEST(a_refusal_says_what_a_name_is_used_for) {
    CLAIM(permit, 0, "seats", DLOCK_PERMIT, 2);
    CLAIM(other, 1, "seats", DLOCK_PERMIT, 3);
    READER(reader, 1, "seats");
    WRITER(writer, 1, "seats");
    struct held *const refused[] = {&other, &reader, &writer}, *const locks[] = {&reader, &writer};
    assert_int_equal(acquire(&links[0], &permit), 0);
    for (int i = 0; i < 3; i++) assert_in_use(refused[i], "in use as 2 permits");
    assert_int_equal(release(&links[0], &permit), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(acquire(&links[0], locks[i]), 0);
        assert_in_use(&other, "as a lock");
        assert_int_equal(release(&links[0], locks[i]), 0);
    }
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
