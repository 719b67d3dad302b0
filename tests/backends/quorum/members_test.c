/* Members that are away, come back, or forget. */
#include "servers.h"

#include "support/clock.h"
#include "support/relay.h"
#include "support/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static int five(void **state) {
    (void)state;
    members_begin(5);
    return 0;
}

/* ---- a minority -------------------------------------------------------------------------------------------------- */

/* Stopped members answer nothing until the test is over: a client that waited for one of them would wait longer than
 * that. */
static void cycle_without(dlock_client *client, int cycles) {
    const int64_t begun_ms = now_ms();
    for (int i = 0; i < cycles; i++) give_back(take(client, "cycled", NULL));
    assert_true(now_ms() - begun_ms < 50000);
}

TEST(a_stopped_minority_costs_no_waiting) {
    dlock_client *client = quorum_of(3, "quarantine=0&" PATIENT);
    cycle_without(client, 10);
    member_stop(1);
    cycle_without(client, 200);
    dlock_client *second = quorum_of(3, "quarantine=0&" PATIENT); /* nor does connecting */
    cycle_without(second, 50);
    const int64_t begun_ms = now_ms();
    dlock_close(second); /* nor the end */
    dlock_close(client);
    assert_true(now_ms() - begun_ms < 50000);
}

TEST(a_member_that_stops_in_an_answer_costs_no_waiting) {
    SCOPED_RELAY *relay = relay_new(member[0].port);
    SCOPED_CLIENT *client =
        api_client("quorum:?quarantine=0&" PATIENT "&of=redis%%3A%%2F%%2F127.0.0.1:%d&of=redis%%3A%%2F%%2F127.0.0.1:%d"
                   "&of=redis%%3A%%2F%%2F127.0.0.1:%d",
                   relay_port(relay), member[1].port, member[2].port);
    cycle_without(client, 10);
    relay_stop_short(relay);
    cycle_without(client, 200);
}

TEST_WITH(five, members_none, a_dead_minority_costs_no_waiting) {
    dlock_client *client = quorum_of(5, "quarantine=0&" PATIENT);
    member_kill(0);
    member_kill(3);
    cycle_without(client, 200);
    dlock_client *second = quorum_of(5, "quarantine=0&" PATIENT);
    cycle_without(second, 50);
    dlock_close(second);
    dlock_close(client);
    member_restart(0);
    member_restart(3);
}

/* Clients that contend are told at once as well. */
TEST(a_busy_lock_is_busy_at_once) {
    SCOPED_CLIENT *holder = quorum_of(3, "quarantine=0&lease=5m&" PATIENT);
    SCOPED_CLIENT *other = quorum_of(3, "quarantine=0&lease=5m&" PATIENT);
    dlock_lock *lock = take_everywhere(holder, "busy", NULL);
    member_stop(2);
    const int64_t begun_ms = now_ms();
    for (int i = 0; i < 50; i++) {
        int rc = try_once(other, "busy", NULL);
        if (rc != DLOCK_EBUSY)
            fail_msg("%s; the holder has it for %lld ms", dlock_strerror(rc), (long long)dlock_remaining_ms(lock));
    }
    assert_true(now_ms() - begun_ms < 50000);
    give_back(lock);
}

/* Nor does a client wait for it where its vote would decide: after a split vote the client tries again. */
TEST(a_split_vote_waits_for_no_stopped_member) {
    SCOPED_CLIENT *client = quorum_of(3, "quarantine=0&" PATIENT);
    cycle_without(client, 10);
    for (int i = 0; i < 3; i++) await_free(i, "cycled"); /* all are connected */
    ask_text(&member[0], "SET divided somebody PX 600000");
    member_stop(2);
    const int64_t begun_ms = now_ms();
    for (int i = 0; i < 3; i++) assert_int_equal(try_once(client, "divided", NULL), DLOCK_EBUSY);
    assert_true(now_ms() - begun_ms < 50000);
}

/* It gets the releases that it has missed: nothing stays there until its lease ends. */
TEST(a_member_that_was_away_gets_its_releases) {
    SCOPED_CLIENT *client = quorum_of(3, "quarantine=0&lease=5m");
    dlock_lock *lock = take(client, "missed", NULL);
    await_held(2, "missed");
    member_stop(2);
    give_back(lock);
    member_continue(2);
    await_free(2, "missed");

    lock = take(client, "begun", NULL); /* and what was begun while it was stopped */
    give_back(lock);
    member_stop(2);
    give_back(take(client, "begun", NULL));
    member_continue(2);
    await_free(2, "begun");

    lock = take(client, "cut", NULL); /* and what met a connection that had died */
    await_held(2, "cut");
    ask_number(&member[2], "CLIENT KILL TYPE normal SKIPME yes");
    give_back(lock);
    await_free(2, "cut");
}

/* It grants the request that was in its socket when it continues. That grant is released as well, however long ago the
 * request was given up: without an end of its lease it would stay for good. */
TEST(a_grant_made_late_is_given_back) {
    char fence[32];
    SCOPED_CLIENT *client = quorum_of(3, "quarantine=0&lease=1s");
    give_back(take(client, "stale", NULL));
    for (int i = 0; i < 3; i++) await_free(i, "stale"); /* all are connected */
    snprintf(fence, sizeof fence, "%s", ask_text(&member[0], "GET {stale}:dlock:fence"));
    member_stop(0);
    give_back(take(client, "stale", NULL));
    sleep_ms(2500);
    member_continue(0);
    const int64_t until = now_ms() + 30000;
    while (strcmp(ask_text(&member[0], "GET {stale}:dlock:fence"), fence) == 0)
        if (now_ms() > until) fail_msg("the member has not granted it");
    do ask_number(&member[0], "PERSIST stale");
    while (ask_number(&member[0], "EXISTS stale") && now_ms() < until);
    assert_int_equal(ask_number(&member[0], "EXISTS stale"), 0);
}

/* ---- a majority -------------------------------------------------------------------------------------------------- */

TEST(a_dead_majority_is_an_outage) {
    struct dlock_error err = {0};
    char port[16];
    SCOPED_CLIENT *client = quorum_of(3, "quarantine=0&timeout=2s");
    SCOPED_LOCK *lock = api_lock(client, "away", NULL);
    give_back(take(client, "away", NULL));
    member_kill(0);
    member_kill(1);
    assert_int_equal(dlock_acquire(lock, 0, &err), DLOCK_EUNAVAILABLE);
    if (!strstr(err.message, "2 of 3 members of the quorum are away, and 2 have to answer; "))
        fail_msg("%s", err.message);
    snprintf(port, sizeof port, ":%d", member[2].port);
    assert_null(strstr(err.message, port)); /* one that is away is named */
    member_restart(0);
    give_back(take(client, "away", NULL)); /* the same client continues */
    member_restart(1);
}

static void *extend(void *lock) {
    return (void *)(intptr_t)dlock_extend(lock, 0, NULL);
}

/* Where too many are gone, a renewal does not wait for one that hangs: the next one finds those that are back. */
TEST(a_renewal_without_a_majority_ends_early) {
    struct dlock_stats stats = DLOCK_STATS_INIT;
    struct relay *relay[2] = {relay_new(member[0].port), relay_new(member[1].port)};
    pthread_t thread;
    void *rc;
    dlock_client *client = api_client("quorum:?quarantine=0&lease=5m&" PATIENT "&of=redis%%3A%%2F%%2F127.0.0.1:%d"
                                      "&of=redis%%3A%%2F%%2F127.0.0.1:%d&of=redis%%3A%%2F%%2F127.0.0.1:%d",
                                      relay_port(relay[0]), relay_port(relay[1]), member[2].port);
    struct dlock_options options = {.size = sizeof options, .owner = DLOCK_OWNER_HANDLE};
    dlock_lock *lock = api_lock(client, "kept", &options);
    assert_int_equal(dlock_acquire(lock, 20000, NULL), 0);
    for (int i = 0; i < 3; i++) await_held(i, "kept");
    member_stop(2);
    for (int i = 0; i < 2; i++) relay_refuse(relay[i], true);
    assert_int_equal(pthread_create(&thread, NULL, extend, lock), 0);
    for (int64_t until = now_ms() + 50000; stats.renewal_failures == 0 && now_ms() < until; sleep_ms(5))
        assert_int_equal(dlock_client_stats(client, &stats, NULL), 0);
    assert_true(stats.renewal_failures > 0);
    for (int i = 0; i < 2; i++) relay_refuse(relay[i], false);
    assert_int_equal(pthread_join(thread, &rc), 0);
    assert_int_equal((intptr_t)rc, 0);
    give_back(lock);
    dlock_close(client);
    for (int i = 0; i < 2; i++) relay_end(relay[i]);
}

static atomic_int losses;

static void count_loss(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)lock, (void)err, (void)arg;
    losses++;
}

/* The member that is there keeps the grant, and is asked to renew it: it is not enough. */
TEST(holders_lose_a_lock_without_a_majority) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    SCOPED_CLIENT *client = quorum_of(3, "quarantine=0&lease=1s&timeout=1s");
    options.on_lost = count_loss;
    SCOPED_LOCK *lock = api_lock(client, "lost", &options);
    losses = 0;
    assert_int_equal(dlock_acquire(lock, 20000, NULL), 0);
    await_held(2, "lost");
    member_stop(0);
    member_stop(1);
    for (int64_t until = now_ms() + 20000; dlock_held(lock) && now_ms() < until;) sleep_ms(5);
    assert_false(dlock_held(lock));
    for (int64_t until = now_ms() + 20000; losses == 0 && now_ms() < until;) sleep_ms(5);
    assert_int_equal(losses, 1);
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
}

/* Two that have forgotten it, and whose quarantine is off, say so: the holder learns of it long before its lease
 * ends. */
TEST(a_majority_that_forgot_is_a_loss) {
    SCOPED_CLIENT *client = quorum_of(3, "quarantine=0&lease=30s");
    SCOPED_LOCK *lock = take_everywhere(client, "forgotten", NULL);
    ask_number(&member[0], "DEL forgotten");
    ask_number(&member[2], "DEL forgotten");
    for (int64_t until = now_ms() + 25000; dlock_held(lock) && now_ms() < until;) sleep_ms(5);
    assert_false(dlock_held(lock));
}

/* ---- restarts ---------------------------------------------------------------------------------------------------- */

/* Each member in turn forgets everything. The holder keeps its lock, since each member learns of it again once its
 * quarantine is over, and no other client is granted it. */
TEST(a_holder_survives_the_restart_of_every_member) {
    char token[DLOCK_TOKEN_MAX + 1];
    uint64_t fence;
    SCOPED_CLIENT *client = quorum_of(3, "lease=4s"), *other = quorum_of(3, "lease=4s");
    dlock_lock *lock = take_everywhere(client, "rolling", &fence); /* within the quarantine of young servers */
    for (int i = 0; i < 3; i++) {
        snprintf(token, sizeof token, "%s", ask_text(&member[i], "GET rolling"));
        member_kill(i);
        member_restart(i);
        for (int64_t until = now_ms() + 30000; strcmp(ask_text(&member[i], "GET rolling"), token) != 0;) {
            int rc = try_once(other, "rolling", NULL);
            if (rc == 0)
                fail_msg("granted; the holder %s", dlock_held(lock) ? "has it, too" : "was not renewed in time");
            if (rc != DLOCK_EBUSY && rc != DLOCK_EUNAVAILABLE) fail_msg("%s", dlock_strerror(rc));
            if (now_ms() > until) fail_msg("member %d has not got to know the holder again", i);
            sleep_ms(10);
        }
    }
    assert_true(dlock_held(lock));
    assert_int_equal(dlock_fence(lock), fence);
    give_back(lock);
    uint64_t next;
    give_back(take(other, "rolling", &next));
    assert_true(next > fence);
}

/* One has lost the grant, the other is silent: the vote of the first is got again before the lease ends. */
TEST(a_holder_gets_a_lost_vote_again) {
    SCOPED_CLIENT *client = quorum_of(3, "quarantine=0&lease=6s");
    dlock_lock *lock = take_everywhere(client, "regained", NULL);
    member_stop(2);
    ask_number(&member[1], "DEL regained");
    await_held(1, "regained");
    give_back(lock);
}

/* One in its quarantine grants nothing, and is not missed. */
TEST(a_quarantine_of_one_is_not_felt) {
    SCOPED_CLIENT *early = quorum_of(3, "lease=1s");
    give_back(take(early, "young", NULL)); /* the servers were young, until here */
    SCOPED_CLIENT *client = quorum_of(3, "lease=1s");
    dlock_lock *lock = api_lock(client, "young", NULL);
    member_kill(1);
    member_restart(1);
    int rc = dlock_acquire(lock, 0, NULL);
    assert_int_equal(rc, 0);
    give_back(lock);
}

TEST(a_quarantine_of_a_majority_is_one) {
    struct dlock_error err = {0};
    SCOPED_CLIENT *client = quorum_of(3, "lease=2s&quarantine=10m");
    SCOPED_LOCK *lock = api_lock(client, "young", NULL);
    assert_int_equal(dlock_acquire(lock, 0, &err), DLOCK_ENOTREADY);
}

/* Idle connections that die are no outage, nor are those that die amid the releases which follow a request that was
 * sent twice. */
TEST(idle_connections_may_die) {
    SCOPED_CLIENT *client = quorum_of(3, "quarantine=0");
    give_back(take(client, "idle", NULL));
    for (int round = 0; round < 60; round++) {
        for (int i = 0; i < 3; i++) ask_number(&member[i], "CLIENT KILL TYPE normal SKIPME yes");
        assert_int_equal(try_once(client, "idle", NULL), 0);
    }
}

/* ---- requests whose answers are lost, and that are sent again ---- */

static struct relay *relays[3];

/* A quorum of members that are reached through relays. From here on they have all scripts. */
static dlock_client *relayed(const char *name) {
    for (int i = 0; i < 3; i++) relays[i] = relay_new(member[i].port);
    dlock_client *client = api_client("quorum:?quarantine=0&lease=30s&" PATIENT
                                      "&of=redis%%3A%%2F%%2F127.0.0.1:%d&of=redis%%3A%%2F%%2F127.0.0.1:%d"
                                      "&of=redis%%3A%%2F%%2F127.0.0.1:%d",
                                      relay_port(relays[0]), relay_port(relays[1]), relay_port(relays[2]));
    give_back(take(client, name, NULL));
    for (int i = 0; i < 3; i++) await_free(i, name);
    return client;
}

static int relayed_none(void **state) {
    for (int i = 0; i < 3; i++) relay_end(relays[i]);
    return members_none(state);
}

/* Calls it while each member's first answer is lost with its connection. */
static int call_twice(void *(*call)(void *), dlock_lock *lock) {
    pthread_t thread;
    void *result;
    for (int i = 0; i < 3; i++) relay_lose(relays[i], true);
    assert_int_equal(pthread_create(&thread, NULL, call, lock), 0);
    for (int i = 0; i < 3; i++)
        while (relay_lost(relays[i]) == 0) sleep_ms(1);
    for (int i = 0; i < 3; i++) relay_lose(relays[i], false);
    pthread_join(thread, &result);
    return (int)(intptr_t)result;
}

static const struct dlock_options by_handle = {.size = sizeof by_handle, .owner = DLOCK_OWNER_HANDLE};

static void *acquire_it(void *lock) {
    return (void *)(intptr_t)dlock_acquire(lock, 20000, NULL);
}

static void *release_it(void *lock) {
    return (void *)(intptr_t)dlock_release(lock, NULL);
}

/* Such an acquire may arrive after the release, for a lease: its grant is released within a quarter of that. */
TEST_WITH(members_three, relayed_none, a_late_acquire_is_given_back) {
    char token[DLOCK_TOKEN_MAX + 1];
    SCOPED_CLIENT *client = relayed("late");
    dlock_lock *lock = api_lock(client, "late", &by_handle);
    assert_int_equal(call_twice(acquire_it, lock), 0);
    const int holding = ask_number(&member[0], "EXISTS late") ? 0 : 1; /* two of them have granted it */
    snprintf(token, sizeof token, "%s", ask_text(&member[holding], "GET late"));
    give_back(lock);
    for (int i = 0; i < 3; i++) await_free(i, "late");
    for (int i = 0; i < 3; i++) ask_text(&member[i], "SET late %s PX 120000", token);
    for (int i = 0; i < 3; i++) await_free(i, "late");
}

/* The first release ended the grant, and its answers were lost: the second one finds nothing. */
TEST_WITH(members_three, relayed_none, not_found_after_another_release_is_success) {
    SCOPED_CLIENT *client = relayed("twice");
    SCOPED_LOCK *lock = api_lock(client, "twice", &by_handle);
    assert_int_equal(dlock_acquire(lock, 20000, NULL), 0);
    for (int i = 0; i < 3; i++) await_held(i, "twice");
    assert_int_equal(call_twice(release_it, lock), 0);
}

/* ---- what is told ------------------------------------------------------------------------------------------------ */

static atomic_int away, back;

static void keep_line(int level, const char *line, void *arg) {
    (void)level, (void)arg;
    if (strstr(line, "of the quorum is away")) away++;
    if (strstr(line, "of the quorum is back")) back++;
}

TEST(the_log_tells_who_is_away) {
    struct dlock_client_options options = DLOCK_CLIENT_OPTIONS_INIT;
    char uri[500];
    SCOPED_CLIENT *client;
    options.log = keep_line;
    away = back = 0;
    quorum_uri(uri, sizeof uri, 3, "quarantine=0");
    assert_int_equal(dlock_open(uri, &options, &client, NULL), 0);
    give_back(take(client, "told", NULL));
    member_kill(2);
    for (int64_t until = now_ms() + 20000; away == 0 && now_ms() < until;) give_back(take(client, "told", NULL));
    member_restart(2);
    for (int64_t until = now_ms() + 20000; back == 0 && now_ms() < until;) give_back(take(client, "told", NULL));
    assert_int_equal(away, 1);
    assert_int_equal(back, 1);
}

TESTS(members_three, members_none, NULL, NULL)
