/* Split votes, and fences that grow whatever members form the majority. */
#include "servers.h"

#include "support/clock.h"
#include "support/test.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

/* In microseconds: an hour. */
#define AHEAD INT64_C(3600000000)

/* A fence by the two members other than `without`, which is stopped for that time. */
static uint64_t fence_without(int without, const char *name) {
    uint64_t fence;
    member_stop(without);
    dlock_client *client = quorum_of(3, "quarantine=0&" PATIENT);
    give_back(take(client, name, &fence));
    dlock_close(client);
    member_continue(without);
    return fence;
}

/* One member's fences are far ahead of the others'. Each majority has met the one before it, in one member at least. */
TEST(fences_grow_when_majorities_change) {
    char name[16];
    for (int ahead = 0; ahead < 3; ahead++) {
        uint64_t last = 0;
        snprintf(name, sizeof name, "changing-%d", ahead);
        ask_text(&member[ahead], "SET {%s}:dlock:fence %" PRId64 " PX 600000", name,
                 (int64_t)1700000000000000 + 10 * AHEAD * 24 * 365);
        for (int round = 0; round < 2; round++)
            for (int without = 2; without >= 0; without--) {
                uint64_t fence = fence_without(without, name);
                if (fence <= last)
                    fail_msg("member %d ahead: fence %" PRIu64 " after %" PRIu64, ahead, fence >> 8, last >> 8);
                last = fence;
            }
    }
}

static void await_fence(int i, int64_t fence) {
    static const char script[] = "return tonumber(redis.call('GET', '{stored}:dlock:fence') or 0)";
    for (int64_t until = now_ms() + 20000; ask_number(&member[i], "EVAL %s 0", script) != fence; sleep_ms(5))
        if (now_ms() > until) fail_msg("member %d has not stored it", i);
}

/* The greatest fence counts, and each member that has granted gets to know it; one that was away with a renewal. */
TEST(every_member_stores_the_fence) {
    uint64_t fence;
    const int64_t far = 1700000000000000 + 10 * AHEAD * 24 * 365;
    ask_text(&member[1], "SET {stored}:dlock:fence %" PRId64 " PX 600000", far);
    SCOPED_CLIENT *client = quorum_of(3, "quarantine=0&lease=2s");
    give_back(take(client, "warm", NULL)); /* all are connected */
    for (int i = 0; i < 3; i++) await_free(i, "warm");
    member_stop(2);
    dlock_lock *lock = take(client, "stored", &fence);
    assert_int_equal(fence >> 8, far + 1);
    assert_int_equal(ask_number(&member[0], "EVAL %s 0", "return redis.call('GET', '{stored}:dlock:fence') + 0"),
                     far + 1);
    member_continue(2);
    await_fence(2, far + 1);
    give_back(lock);
}

/* Fences are counted up at all members alike for a moment: no further round trip is needed then. */
TEST(most_cycles_are_two_round_trips) {
    enum { CYCLES = 100 };
    struct monitor monitor[3];
    SCOPED_CLIENT *client = quorum_of(3, "quarantine=0");
    for (int i = 0; i < 3; i++) {
        give_back(take(client, "counted", NULL));
        monitor_begin(&monitor[i], &member[i]);
    }
    for (int i = 0; i < CYCLES; i++) {
        give_back(take(client, "counted", NULL));
        for (int j = 0; j < 3; j++) await_free(j, "counted"); /* no other waiter is behind */
    }
    int all = 0;
    for (int i = 0; i < 3; i++) {
        monitor_end(&monitor[i], &member[i]);
        all += monitor[i].evalsha;
    }
    /* One a second is from the clock; a slow machine takes many seconds. */
    assert_in_range(all, 3 * 2 * CYCLES, 3 * 3 * CYCLES);
}

static int64_t switches(int who) {
    struct rusage usage;
    assert_int_equal(getrusage(who, &usage), 0);
    return usage.ru_nvcsw;
}

/* The caller sends the requests and reads the answers. A worker is woken only for what comes later than the majority's,
 * which on a busy machine is some; when all of them go through workers, they sleep six times a cycle and more. */
TEST(most_cycles_need_no_other_thread) {
    enum { CYCLES = 300 };
    SCOPED_CLIENT *client = quorum_of(3, "quarantine=0");
    give_back(take(client, "alone", NULL));
    const int64_t before = switches(RUSAGE_SELF) - switches(RUSAGE_THREAD);
    for (int i = 0; i < CYCLES; i++) give_back(take(client, "alone", NULL));
    assert_in_range(switches(RUSAGE_SELF) - switches(RUSAGE_THREAD) - before, 0, 3 * CYCLES);
}

/* Another client has a majority: a try that lost releases its votes at once, instead of keeping them until its lease
 * ends. */
TEST(a_lost_vote_is_given_back) {
    SCOPED_CLIENT *client = quorum_of(3, "quarantine=0&lease=5m");
    ask_text(&member[0], "SET split somebody PX 600000");
    ask_text(&member[1], "SET split somebody PX 600000");
    for (int i = 0; i < 20; i++) {
        assert_int_equal(try_once(client, "split", NULL), DLOCK_EBUSY);
        await_free(2, "split");
    }
    ask_number(&member[1], "DEL split");
    assert_int_equal(try_once(client, "split", NULL), 0);
}

/* A split vote, without a majority for any client, delays no client. */
TEST(a_minority_of_another_is_outvoted) {
    SCOPED_CLIENT *client = quorum_of(3, "quarantine=0");
    ask_text(&member[1], "SET outvoted somebody PX 600000");
    for (int i = 0; i < 20; i++) assert_int_equal(try_once(client, "outvoted", NULL), 0);
    assert_string_equal(ask_text(&member[1], "GET outvoted"), "somebody");
}

/* What the members are told is this client's alone. */
TEST(a_break_at_a_minority_is_no_loss) {
    SCOPED_CLIENT *client = quorum_of(3, "quarantine=0&lease=3s");
    dlock_lock *lock = take_everywhere(client, "nibbled", NULL);
    for (int i = 0; i < 6; i++) {
        await_held(i % 3, "nibbled"); /* which the one before gets again with a renewal */
        ask_number(&member[i % 3], "DEL nibbled");
        await_held(i % 3, "nibbled");
    }
    assert_true(dlock_held(lock));
    give_back(lock);
}

static void *renew_it(void *lock) {
    dlock_extend(lock, 0, NULL);
    return NULL;
}

/* A renewal asks members that have been without the grant for some time for a new one. It does not if the owner has
 * released the lock in the meantime, while the answer of a slow member was awaited. */
TEST(a_renewal_takes_nothing_that_was_released_meanwhile) {
    const struct dlock_options options = {.size = sizeof options, .owner = DLOCK_OWNER_HANDLE};
    pthread_t thread;
    SCOPED_CLIENT *client = quorum_of(3, "quarantine=0&lease=5m");
    SCOPED_LOCK *lock = api_lock(client, "over", &options);
    assert_int_equal(dlock_acquire(lock, 20000, NULL), 0);
    for (int i = 0; i < 3; i++) await_held(i, "over");
    ask_text(&member[2], "DEL over");
    assert_int_equal(dlock_extend(lock, 0, NULL), 0);
    sleep_ms(1500);
    await_free(2, "over");
    member_stop(0);
    assert_int_equal(pthread_create(&thread, NULL, renew_it, lock), 0);
    sleep_ms(40); /* less than it takes for a member to be considered silent */
    assert_int_equal(dlock_release(lock, NULL), 0);
    pthread_join(thread, NULL);
    for (int64_t until = now_ms() + 300; now_ms() < until; sleep_ms(20))
        for (int i = 1; i < 3; i++) await_free(i, "over");
    member_continue(0);
    await_free(0, "over");
}

static void *wait_for_it(void *lock) {
    assert_int_equal(dlock_acquire(lock, 20000, NULL), 0);
    return NULL;
}

/* The release of a failed try may reach a member late: it must not end the grant of the next one. */
TEST(each_try_has_its_own_token) {
    char first[DLOCK_TOKEN_MAX + 1], later[DLOCK_TOKEN_MAX + 1];
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    pthread_t thread;
    SCOPED_CLIENT *client = quorum_of(3, "quarantine=0&lease=5m");
    dlock_lock *lock = take(client, "retried", NULL);
    await_held(0, "retried");
    snprintf(first, sizeof first, "%s", ask_text(&member[0], "GET retried"));
    give_back(lock);
    for (int i = 0; i < 3; i++) await_free(i, "retried");
    ask_text(&member[0], "SET retried somebody PX 600000");
    ask_text(&member[1], "SET retried somebody PX 600000");
    options.owner = DLOCK_OWNER_HANDLE;
    lock = api_lock(client, "retried", &options);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_it, lock), 0);
    for (int i = 0; i < 2; i++) { /* two tries have been there */
        await_held(2, "retried");
        await_free(2, "retried");
    }
    ask_number(&member[1], "DEL retried");
    pthread_join(thread, NULL);
    snprintf(later, sizeof later, "%s", ask_text(&member[1], "GET retried"));
    const char *mark = strrchr(later, ':');
    assert_non_null(mark);
    assert_int_equal(strspn(mark + 1, "0123456789"), strlen(mark + 1));
    assert_null(strchr(strchr(first, ':') + 1, ':')); /* @host:pid alone */
    assert_ptr_not_equal(mark, strchr(later, ':'));
    give_back(lock);
    for (int i = 1; i < 3; i++) await_free(i, "retried");
}

TESTS(members_three, members_none, NULL, NULL)
