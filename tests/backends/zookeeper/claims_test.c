/* One claim at a time: its node on the server, which claims may have the lock, and how a grant ends. */
#include "pair.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- the layout -------------------------------------------------------------------------------------------------- */

/* A claim that may wait, or is granted after it has waited; a try says in its name that it is one. */
TEST(node_is_curators) {
    char path[512], data[256];
    int size = sizeof data;
    struct Stat stat;
    CLAIM_INIT(held, "layout", 'a', 1);
    assert_int_equal(acquire(&one, &held), 0);
    plain_only(BASE "/layout", path, sizeof path);
    assert_int_equal(strlen(path), strlen(BASE "/layout/_c_-try-lock-") + 36 + 10);
    assert_non_null(strstr(path, "-try-lock-"));
    assert_int_equal(release(&one, &held), 0);
    assert_int_equal(queue_up(&one, &held), 0);
    plain_only(BASE "/layout", path, sizeof path);
    unsigned part[5];
    int sequence = -1, end = 0;
    assert_int_equal(sscanf(path, BASE "/layout/_c_%8x-%4x-%4x-%4x-%12x-lock-%10d%n", &part[0], &part[1], &part[2],
                            &part[3], &part[4], &sequence, &end),
                     6);
    assert_int_equal(path[end], '\0');
    assert_int_equal(strlen(path), strlen(BASE "/layout/_c_-lock-") + 36 + 10);
    assert_int_equal(zoo_get(plain(), path, 0, data, &size, &stat), ZOK);
    assert_int_equal(size, strlen(held.token));
    assert_memory_equal(data, held.token, strlen(held.token));
    assert_int_equal(stat.ephemeralOwner, held.claim.state[0]);
    assert_int_equal(held.claim.fence, stat.czxid);
    assert_int_equal(release(&one, &held), 0);
    assert_int_equal(plain_count(BASE "/layout"), 0);
}

/* The server removes an empty container when it likes. */
TEST(vanished_container_is_made_anew) {
    struct held held;
    for (int i = 0; i < 3; i++) {
        claim_init(&held, "vanishing", 'a', i);
        assert_int_equal(acquire(&one, &held), 0);
        assert_int_equal(release(&one, &held), 0);
        plain_delete(BASE "/vanishing");
    }
}

/* ---- grants ------------------------------------------------------------------------------------------------------ */

/* Counted from the last sign of life of which the leader is sure to know: at first the beginning of the session, later
 * a request that was answered 1.5 s before. */
TEST(kept_from_a_sign_of_life_on) {
    sleep_ms(500);
    CLAIM_INIT(held, "kept", 'a', 1);
    int64_t asked = now_ms();
    assert_int_equal(acquire(&one, &held), 0);
    int64_t answered = now_ms();
    assert_in_range(held.claim.kept_ms, 1, 10000 - 500);
    sleep_ms(300);
    assert_int_equal(renew(&one, &held), 0);
    /* The claim is granted, but not for as long as it asked; unless the machine was busy. */
    if (now_ms() - asked < 1500) assert_in_range(held.claim.kept_ms, 1, 10000 - 800);
    while (now_ms() <= answered + 1500) sleep_ms(10);
    assert_int_equal(renew(&one, &held), 0);
    assert_in_range(held.claim.kept_ms, 10000 - (now_ms() - asked) * 102 / 100, 10000 - 1500);
    assert_int_equal(release(&one, &held), 0);
}

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

/* The same token in a newer session: the old node is not adopted, and does not block the new one; not even if it might
 * be that of a create whose answer was lost. */
TEST(node_of_another_session_is_not_adopted) {
    struct held old, new;
    uint64_t session = 0;
    for (int i = 0; i < 2; i++) {
        claim_init(&old, "sessions", 'a', 1);
        claim_init(&new, "sessions", 'a', 1);
        assert_int_equal(acquire(&one, &old), 0);
        if (i == 1) new.claim.state[0] = session, new.claim.state[2] = UINT64_C(1) << 32;
        assert_int_equal(acquire(&two, &new), 0);
        session = new.claim.state[0];
        assert_true(new.claim.fence > old.claim.fence);
        assert_int_equal(plain_count(BASE "/sessions"), 1);
        assert_int_equal(renew(&one, &old), DLOCK_ELOST);
        assert_int_equal(renew(&two, &new), 0);
        assert_int_equal(release(&two, &new), 0);
    }
}

/* A claim whose session has ended is found by its uuid, and is gone afterwards. */
TEST(claim_of_another_session_is_released) {
    CLAIM_INIT(held, "released elsewhere", 'a', 1);
    assert_int_equal(acquire(&one, &held), 0);
    assert_int_equal(renew(&two, &held), DLOCK_ELOST);
    assert_int_equal(release(&two, &held), 0);
    assert_int_equal(plain_count(BASE "/released elsewhere"), 0);
    claim_init(&held, "released elsewhere", 'a', 1);
    assert_int_equal(release(&two, &held), DLOCK_ELOST);
}

TEST(ending_the_session_frees_at_once) {
    struct link third;
    link_new(&third, shared_port(), "30s", 'c');
    CLAIM_INIT(held, "ending", 'c', 1);
    CLAIM_INIT(next, "ending", 'a', 1);
    assert_int_equal(acquire(&third, &held), 0);
    assert_int_equal(acquire(&one, &next), DLOCK_EBUSY);
    link_end(&third);
    for (int64_t until = now_ms() + 5000; acquire(&one, &next) != 0; sleep_ms(10)) assert_true(now_ms() < until);
    assert_int_equal(release(&one, &next), 0);
}

/* ---- losses ------------------------------------------------------------------------------------------------------ */

/* Writing to our node is rude, but takes nothing away. */
TEST(changed_node_is_still_ours) {
    char path[512];
    struct dlock_wake wake;
    CLAIM_INIT(held, "changed", 'a', 1);
    assert_int_equal(acquire(&one, &held), 0);
    assert_int_equal(renew(&one, &held), 0);
    plain_only(BASE "/changed", path, sizeof path);
    assert_int_equal(zoo_set(plain(), path, "x", 1, -1), ZOK);
    assert_false(told_within(&one, &wake, 200));
    assert_int_equal(renew(&one, &held), 0);
    assert_int_equal(release(&one, &held), 0);
}

TEST(own_release_wakes_nobody) {
    struct dlock_wake wake;
    CLAIM_INIT(held, "quiet", 'a', 1);
    assert_int_equal(acquire(&one, &held), 0);
    assert_int_equal(renew(&one, &held), 0);
    assert_int_equal(release(&one, &held), 0);
    assert_false(told_within(&one, &wake, 200));
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* Characters that the server refuses in a path must not reach it, beside those that the conformance suite has. */
TEST(every_name_is_taken) {
    static const char *const names[] = {
        ".", "..", "%2E", "\xef\xbf\xbf", "\xee\x80\x80", "zookeeper", "lock-0000000001"};
    enum { N = sizeof names / sizeof *names };
    struct held held[N];
    for (int i = 0; i < N; i++) {
        claim_init(&held[i], names[i], 'a', i);
        assert_int_equal(acquire(&one, &held[i]), 0);
    }
    for (int i = 0; i < N; i++) {
        CLAIM_INIT(other, names[i], 'b', i);
        assert_int_equal(acquire(&two, &other), DLOCK_EBUSY);
        assert_int_equal(release(&one, &held[i]), 0);
    }
}

TESTS(pair_begin, pair_end, backend_load, NULL)
