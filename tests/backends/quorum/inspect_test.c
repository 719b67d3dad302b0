/* What is shown while members differ, hang or are away, and what a break leaves behind. */
#include "servers.h"

#include "support/clock.h"
#include "support/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* ---- walks ------------------------------------------------------------------------------------------------------- */

enum { MOST = 600 };

static struct seen {
    int n;
    struct dlock_info info;
    char name[MOST][DLOCK_NAME_MAX + 1], token[DLOCK_TOKEN_MAX + 1];
} seen;

static int see(const struct dlock_info *info, void *arg) {
    (void)arg;
    assert_in_range(seen.n, 0, MOST - 1);
    snprintf(seen.name[seen.n++], sizeof seen.name[0], "%s", info->name);
    snprintf(seen.token, sizeof seen.token, "%s", info->token);
    seen.info = *info;
    return 0;
}

/* How many holders are shown. */
static int look(dlock_client *client, const char *name) {
    struct dlock_error err = {0};
    seen.n = 0;
    if (dlock_inspect(client, name, see, NULL, &err) != 0) fail_msg("%s: %s", name, err.message);
    return seen.n;
}

static int list(dlock_client *client, const char *prefix) {
    struct dlock_error err = {0};
    seen.n = 0;
    if (dlock_list(client, prefix, see, NULL, &err) != 0) fail_msg("%s: %s", prefix, err.message);
    return seen.n;
}

static void put(int i, const char *name, const char *token, int ms) {
    ask_text(&member[i], "SET %s %s PX %d", name, token, ms);
}

/* As a client of dlock would have got it. */
static void grant(int i, const char *name, const char *token, int ms) {
    put(i, name, token, ms);
    ask_text(&member[i], "SET {%s}:dlock:fence 1700000000000000 PX 600000", name);
}

#define MINE "0123456789abcdef01234567.00000000000000aa@host:1"
#define OTHER "0123456789abcdef01234567.00000000000000bb@host:1"

/* ---- inspect ----------------------------------------------------------------------------------------------------- */

TEST(less_than_a_majority_holds_nothing) {
    SCOPED_CLIENT *client = quorum_of(3, "quarantine=0&" PATIENT);
    grant(0, "few", MINE, 600000);
    assert_int_equal(look(client, "few"), 0);
    assert_int_equal(list(client, "few"), 0);
    grant(1, "few", OTHER, 600000);
    assert_int_equal(look(client, "few"), 0);
    grant(2, "few", OTHER, 600000);
    assert_int_equal(look(client, "few"), 1);
    assert_string_equal(seen.token, OTHER);
    grant(2, "few", MINE, 600000);
    assert_int_equal(look(client, "few"), 1);
    assert_string_equal(seen.token, MINE);
}

/* The tries of one claim have different tokens, and it may hold with those of two of them. */
TEST(tries_of_one_claim_are_one_holder) {
    SCOPED_CLIENT *client = quorum_of(3, "quarantine=0&" PATIENT);
    grant(0, "tries", MINE, 600000);
    grant(1, "tries", MINE ":12", 600000);
    assert_int_equal(look(client, "tries"), 1);
    assert_string_equal(seen.token, MINE);
    put(0, "other", "somebody:1", 600000); /* other programs have names of their own */
    put(1, "other", "somebody:2", 600000);
    assert_int_equal(look(client, "other"), 0);
    put(1, "other", "somebody:1", 600000);
    assert_int_equal(look(client, "other"), 1);
    assert_string_equal(seen.token, "somebody:1");
}

/* It ends when fewer than a majority have it. */
TEST(the_lease_is_a_majoritys) {
    SCOPED_CLIENT *client = quorum_of(3, "quarantine=0&" PATIENT);
    grant(0, "lasting", MINE, 600000);
    grant(1, "lasting", MINE, 300000);
    grant(2, "lasting", MINE, 100000);
    assert_int_equal(look(client, "lasting"), 1);
    assert_in_range(seen.info.remaining_ms, 200000, 300000);
}

/* With the member that is away it may have a majority: nobody else gets the lock. */
TEST(what_may_be_held_is_shown) {
    SCOPED_CLIENT *client = quorum_of(3, "quarantine=0&" PATIENT);
    grant(0, "perhaps", MINE, 600000);
    grant(1, "sure", MINE, 600000);
    grant(0, "sure", MINE, 600000);
    assert_int_equal(look(client, "perhaps"), 0);
    member_kill(2);
    assert_int_equal(look(client, "perhaps"), 1);
    assert_string_equal(seen.token, MINE);
    assert_int_equal(try_once(client, "perhaps", NULL), DLOCK_EBUSY);
    assert_int_equal(look(client, "sure"), 1);
    assert_int_equal(look(client, "free"), 0);
    assert_int_equal(list(client, ""), 2);
    member_kill(1);
    assert_int_equal(dlock_inspect(client, "sure", see, NULL, NULL), DLOCK_EUNAVAILABLE);
}

/* A member that hangs is waited for, but not until the end of the call. */
TEST(a_member_that_hangs_ends_no_walk) {
    enum { NAMES = 250 };
    SCOPED_CLIENT *client = quorum_of(3, "quarantine=0&" PATIENT);
    char name[32];
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof name, "many-%d", i);
        grant(0, name, MINE, 600000);
        grant(i % 2 ? 1 : 2, name, MINE, 600000);
    }
    assert_int_equal(list(client, "many-"), NAMES);
    member_stop(2);
    const int64_t begun_ms = now_ms();
    assert_int_equal(look(client, "many-1"), 1);
    assert_int_equal(list(client, "many-"), NAMES);
    for (int i = 1; i < NAMES; i++) assert_string_not_equal(seen.name[i], seen.name[i - 1]);
    assert_true(now_ms() - begun_ms < 60000);
}

/* ---- break ------------------------------------------------------------------------------------------------------- */

static void break_it(dlock_client *client, const char *name) {
    struct dlock_error err = {0};
    if (dlock_break(client, name, &err) != 0) fail_msg("%s: %s", name, err.message);
}

/* Also at the member that was away, and what is less than a majority. */
TEST(a_break_reaches_every_member) {
    SCOPED_CLIENT *client = quorum_of(3, "quarantine=0&" PATIENT);
    SCOPED_CLIENT *holder = quorum_of(3, "quarantine=0&lease=5m");
    dlock_lock *lock = take_everywhere(holder, "broken", NULL);
    member_stop(2);
    break_it(client, "broken");
    assert_int_equal(dlock_extend(lock, 0, NULL), DLOCK_ELOST);
    dlock_free(lock);
    member_continue(2);
    for (int i = 0; i < 3; i++) await_free(i, "broken");
    grant(1, "left", MINE, 600000);
    assert_int_equal(dlock_break(client, "left", NULL), DLOCK_EOWNER);
    await_free(1, "left");
}

static atomic_bool over;

static void *renew_often(void *lock) {
    while (!over && dlock_extend(lock, 0, NULL) == 0) continue;
    return NULL;
}

/* A renewal asks members that do not have the grant for it again: so it may come back to one that is broken first. */
TEST(no_renewal_survives_a_break) {
    const struct dlock_options options = {.size = sizeof options, .owner = DLOCK_OWNER_HANDLE};
    SCOPED_CLIENT *client = quorum_of(3, "quarantine=0&" PATIENT);
    SCOPED_CLIENT *holder = quorum_of(3, "quarantine=0&lease=5m");
    for (int round = 0; round < 50; round++) {
        pthread_t thread;
        dlock_lock *lock = api_lock(holder, "renewed", &options);
        over = false;
        assert_int_equal(dlock_acquire(lock, 20000, NULL), 0);
        assert_int_equal(pthread_create(&thread, NULL, renew_often, lock), 0);
        sleep_ms(round % 5);
        break_it(client, "renewed");
        for (int64_t until = now_ms() + 20000; dlock_held(lock); sleep_ms(1))
            if (now_ms() > until) fail_msg("it is still held in round %d", round);
        over = true;
        pthread_join(thread, NULL);
        dlock_free(lock);
        for (int i = 0; i < 3; i++) await_free(i, "renewed");
    }
}

TESTS(members_three, members_none, NULL, NULL)
