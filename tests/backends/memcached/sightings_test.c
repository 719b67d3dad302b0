/* Waiters who see that a grant is not renewed. */
#include "harness.h"
#include "support/group.h"
#include "support/pair.h"
#include "support/relay.h"

#include <stdio.h>

TEST(a_lapsed_grant_is_taken_over) {
    struct held mine, theirs, late;
    struct counts counts;
    struct link newcomer;
    int64_t begin;
    claim_init(&mine, "lapsed", 'a', 1);
    claim_init(&theirs, "lapsed", 'b', 1);
    claim_init(&late, "lapsed", 'c', 1);
    mine.claim.lease_ms = 1500;
    begin = now_ms();
    assert_int_equal(acquire(&one, &mine), 0);
    count(&server, NULL);
    assert_true(poll_for(&two, &theirs, 10000));
    assert_in_range(now_ms() - begin, 1500, 6000);
    count(&server, &counts);
    assert_int_equal(counts.cas_hits, 1); /* and not the server's clock */
    assert_true(theirs.claim.fence > mine.claim.fence);
    assert_int_equal(renew(&one, &mine), DLOCK_ELOST);
    assert_int_equal(release(&one, &mine), DLOCK_ELOST);
    /* A client that sees it for the first time knows nothing. */
    sleep_ms(200);
    link_to(&newcomer, server.port, 'c');
    assert_int_equal(acquire(&newcomer, &late), DLOCK_EBUSY);
    link_end(&newcomer);
    assert_int_equal(renew(&two, &theirs), 0);
    assert_int_equal(release(&two, &theirs), 0);
    assert_int_equal(acquire(&one, &mine), 0);
    assert_int_equal(release(&one, &mine), 0);
}

TEST(a_renewed_grant_is_not) {
    struct held mine, theirs;
    claim_init(&mine, "renewed", 'a', 1);
    claim_init(&theirs, "renewed", 'b', 1);
    mine.claim.lease_ms = 1800;
    assert_int_equal(acquire(&one, &mine), 0);
    for (int i = 0; i < 10; i++) {
        assert_false(poll_for(&two, &theirs, 400));
        assert_int_equal(renew(&one, &mine), 0);
    }
    assert_int_equal(release(&one, &mine), 0);
    assert_true(poll_for(&two, &theirs, 5000));
    assert_int_equal(release(&two, &theirs), 0);
}

/* Leases are up to a hundredth longer than they were asked for, never shorter, whatever they are. */
TEST(leases_of_all_lengths) {
    static const int leases_ms[] = {100, 127, 128, 255, 256, 257, 999};
    for (size_t i = 0; i < sizeof leases_ms / sizeof leases_ms[0]; i++) {
        struct held mine, theirs;
        int64_t begin;
        claim_init(&mine, "lengths", 'a', (int)i);
        claim_init(&theirs, "lengths", 'b', (int)i);
        mine.claim.lease_ms = leases_ms[i];
        assert_int_equal(acquire(&one, &mine), 0);
        begin = now_ms();
        assert_true(poll_for(&two, &theirs, 10000));
        assert_in_range(now_ms() - begin, leases_ms[i] - 5, leases_ms[i] + 4000);
        assert_int_equal(release(&two, &theirs), 0);
    }
}

/* An item of another client is not taken, whatever its flags are. */
TEST(a_stranger_is_left_alone) {
    static const char *const values[] = {"stranger", "0123456789abcdef01234567", "0123456789abcdef0123456X.1@host:1",
                                         "0123456789abcdef01234567.1@host:1"};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        struct held theirs;
        claim_init(&theirs, "strange", 'b', 1);
        /* A lease of 128 ms, if the flags were ours; the last value is a token, but its flags are not marked. */
        ask(&server, "set strange %u 100 %zu\r\n%s", i == 3 ? 0x7ffff : 0x8007ffff, strlen(values[i]), values[i]);
        assert_false(poll_for(&two, &theirs, 500));
    }
}

/* The names that one connection watches have a table of limited size; names that do not fit wait for the server. */
TEST(many_names_are_watched) {
    enum { NAMES = 600 };
    static struct held mine[NAMES], theirs[NAMES];
    static char names[NAMES][16];
    int granted = 0;
    for (int i = 0; i < NAMES; i++) {
        snprintf(names[i], sizeof names[i], "many%d", i);
        claim_init(&mine[i], names[i], 'a', i);
        claim_init(&theirs[i], names[i], 'b', i);
        mine[i].claim.lease_ms = 2000;
        assert_int_equal(acquire(&one, &mine[i]), 0);
    }
    for (int64_t until = now_ms() + 20000; granted < NAMES && now_ms() < until; sleep_ms(50)) {
        granted = 0;
        for (int i = 0; i < NAMES; i++)
            if (theirs[i].claim.fence || acquire(&two, &theirs[i]) == 0) granted++;
    }
    assert_int_equal(granted, NAMES);
}

/* The network delays an acquire until its client has given up and released the token elsewhere. Its grant, which is
 * unknown to the client, ends like that of a dead holder: a waiter takes it over when its lease is over, and the server
 * forgets it at the time that the request names, so that a request after that grants nothing. */
TEST(a_late_acquire_lasts_for_one_lease) {
    static const int waits_ms[] = {0, 6000};
    for (size_t i = 0; i < sizeof waits_ms / sizeof *waits_ms; i++) {
        struct relay *relay = relay_new(server.port);
        struct link slow;
        struct held late, theirs;
        struct dlock_error err;
        link_to(&slow, relay_port(relay), 'a');
        claim_init(&late, "late", 'a', (int)i);
        claim_init(&theirs, "late", 'b', (int)i);
        late.claim.lease_ms = 1500;
        relay_hold(relay, RELAY_REQUESTS, true);
        assert_int_equal(held_run(backend->acquire, &slow, &late, 0, 300, &err), DLOCK_EUNAVAILABLE);
        assert_int_equal(release(&one, &late), DLOCK_ELOST);
        sleep_ms(waits_ms[i]);
        relay_hold(relay, RELAY_REQUESTS, false);
        for (int trips = 0; trips < 100 && !strstr(ask(&server, "get late"), late.token); trips++) sleep_ms(10);
        int64_t begin = now_ms();
        assert_true(poll_for(&two, &theirs, 10000));
        assert_in_range(now_ms() - begin, i == 0 ? 500 : 0, i == 0 ? 1500 + 2000 : 500);
        assert_int_equal(release(&two, &theirs), 0);
        link_end(&slow);
        relay_end(relay);
    }
}

TESTS(group_pair, pair_end, group_begin, group_end)
