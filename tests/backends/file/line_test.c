/* The order of waiters: turns are counted, time is not. */
#include "fixture.h"

#include <unistd.h>

enum { WAITERS = 5, BUSY = 4, PASS_MS = 100 /* as in line.c */ };

/* A client with a claim, as the core drives it. */
struct party {
    void *conn;
    struct dlock_claim claim;
    bool granted;
};

static struct party party_of(void) {
    struct party party = {conn_open(world->dir), claim_of("job"), false};
    listen_on(party.conn);
    return party;
}

static bool asks(struct party *party) {
    int result = acquire(party->conn, &party->claim);
    assert_true(result == 0 || result == DLOCK_EBUSY);
    return party->granted = result == 0;
}

/* Asks if it was woken. True: granted. */
static bool asks_when_woken(struct party *party) {
    return drain(party->conn, DLOCK_WAKE_LOOK, NULL) > 0 && asks(party);
}

static void gives_back(struct party *party) {
    assert_int_equal(release(party->conn, &party->claim), 0);
    party->claim = claim_of("job");
    party->granted = false;
}

static void leaves(struct party *party) {
    if (party->granted) gives_back(party);
    give_up(party->conn, &party->claim);
    conn_close(party->conn);
}

/* However late the one that waits longest looks. */
TEST(in_the_order_of_their_coming) {
    struct party waiters[WAITERS], holder = party_of();
    assert_true(asks(&holder));
    for (int i = 0; i < WAITERS; i++) {
        waiters[i] = party_of();
        assert_false(asks(&waiters[i]));
    }
    gives_back(&holder);
    for (int next = 0; next < WAITERS; next++) {
        for (int i = WAITERS - 1; i > next; i--) assert_false(asks_when_woken(&waiters[i]));
        assert_true(asks_when_woken(&waiters[next]));
        gives_back(&waiters[next]);
    }
    for (int i = 0; i < WAITERS; i++) leaves(&waiters[i]);
    leaves(&holder);
}

/* Each busy one that holds the lock gives it back and asks at once; the waiter looks after all of them. */
TEST(behind_busy_ones_two_turns_of_each) {
    struct party busy[BUSY], waiter = party_of();
    int turns = 0;
    for (int i = 0; i < BUSY; i++) {
        busy[i] = party_of();
        (void)asks(&busy[i]);
    }
    assert_false(asks(&waiter));
    while (!waiter.granted && turns <= 2 * BUSY) {
        for (int i = 0; i < BUSY; i++) {
            if (busy[i].granted) {
                turns++;
                gives_back(&busy[i]);
                (void)asks(&busy[i]);
            } else {
                (void)asks_when_woken(&busy[i]);
            }
        }
        (void)asks_when_woken(&waiter);
    }
    assert_in_range(turns, 1, 2 * BUSY);
    for (int i = 0; i < BUSY; i++) leaves(&busy[i]);
    leaves(&waiter);
}

/* A stopped one blocks no other: the next one has the turn when it looks again. */
TEST(past_one_that_does_not_come) {
    struct party holder = party_of(), stopped = party_of(), next = party_of();
    assert_true(asks(&holder));
    assert_false(asks(&stopped));
    assert_false(asks(&next));
    gives_back(&holder);
    assert_false(asks_when_woken(&next));
    assert_in_range(next.claim.retry_ms, 1, 20);
    usleep((useconds_t)next.claim.retry_ms * 1000);
    int64_t passed_ms = now_ms();
    assert_true(asks(&next));
    for (int i = 0; i < 3; i++) { /* nor is anything left to it for now */
        gives_back(&next);
        while (!asks(&next)) assert_true(now_ms() - passed_ms >= PASS_MS); /* the machine hung */
    }
    leaves(&next);
    leaves(&stopped);
    leaves(&holder);
}

/* Its look is due when the lock has just become free: the one before it had no time to take its turn yet. */
TEST(a_look_that_is_due_takes_no_turn) {
    struct party holder = party_of(), first = party_of(), next = party_of(), other = party_of();
    assert_true(asks(&holder));
    assert_false(asks(&first));
    assert_false(asks(&next));
    assert_false(asks(&other));
    leaves(&other); /* an event that is no release */
    assert_false(asks_when_woken(&next));
    usleep((useconds_t)next.claim.retry_ms * 1000);
    gives_back(&holder);
    assert_false(asks(&next));
    assert_true(asks_when_woken(&first));
    leaves(&next);
    leaves(&first);
    leaves(&holder);
}

/* A single try by one that was busy is refused once, and not for as long as the stopped one waits. */
TEST(tries_of_a_busy_one) {
    enum { TRIES = 20 };
    struct party stopped = party_of(), busy = party_of();
    int granted = 0;
    assert_true(asks(&busy));
    assert_false(asks(&stopped));
    gives_back(&busy);
    for (int i = 0; i < TRIES; i++) {
        if (asks(&busy)) {
            granted++;
            gives_back(&busy);
        } else {
            give_up(busy.conn, &busy.claim);
            busy.claim = claim_of("job");
        }
    }
    assert_in_range(granted, TRIES / 2, TRIES);
    leaves(&busy);
    leaves(&stopped);
}
