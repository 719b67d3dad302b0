/* Readers: shared votes of a majority, the queue at the first member, and their fences. */
#include "servers.h"

#include "support/clock.h"
#include "support/test.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static const struct dlock_options reading = {.size = sizeof reading, .mode = DLOCK_SHARED, .owner = DLOCK_OWNER_HANDLE};
static const struct dlock_options writing = {.size = sizeof writing, .owner = DLOCK_OWNER_HANDLE};

static dlock_lock *enter(dlock_client *client, const char *name, const struct dlock_options *options) {
    struct dlock_error err = {0};
    dlock_lock *lock = api_lock(client, name, options);
    if (dlock_acquire(lock, 20000, &err) != 0) fail_msg("%s: %s", name, err.message);
    return lock;
}

static void await_count(int i, const char *command, const char *name, int64_t wanted) {
    for (int64_t until = now_ms() + 30000; ask_number(&member[i], command, name) != wanted; sleep_ms(5))
        if (now_ms() > until) fail_msg("member %d: %s is not %" PRId64, i, command, wanted);
}

static void *wait_for_it(void *lock) {
    return (void *)(intptr_t)dlock_acquire(lock, 60000, NULL);
}

/* ---- the queue --------------------------------------------------------------------------------------------------- */

/* Each reader is a client that has just come, and enters while the one before it is inside. */
TEST(readers_that_come_do_not_starve_a_writer) {
    pthread_t writer;
    void *rc;
    SCOPED_CLIENT *client = quorum_of(3, "quarantine=0&lease=5m");
    dlock_client *inside = quorum_of(3, "quarantine=0&lease=5m");
    dlock_lock *held = enter(inside, "turns", &reading), *write = api_lock(client, "turns", &writing);
    for (int i = 0; i < 3; i++) await_count(i, "ZCARD {%s}:dlock:holders", "turns", 1);
    assert_int_equal(pthread_create(&writer, NULL, wait_for_it, write), 0);
    await_count(0, "ZCARD {%s}:dlock:queue", "turns", 1);
    for (int64_t until = now_ms() + 30000; held;) {
        dlock_client *fresh = quorum_of(3, "quarantine=0&lease=5m");
        dlock_lock *lock = api_lock(fresh, "turns", &reading);
        if (now_ms() > until) fail_msg("readers enter, one after the other, before a writer that waits");
        const bool enters = dlock_acquire(lock, 0, NULL) == 0;
        give_back(held);
        dlock_close(inside);
        inside = fresh;
        held = enters ? lock : NULL;
        if (!enters) dlock_free(lock);
    }
    dlock_close(inside);
    pthread_join(writer, &rc);
    assert_int_equal((intptr_t)rc, 0);
    give_back(write);
}

/* Without the first member, the next one has the queue; a reader needs no vote of one that hangs. */
TEST(readers_need_no_member_that_is_away) {
    SCOPED_CLIENT *first = quorum_of(3, "quarantine=0&" PATIENT), *second = quorum_of(3, "quarantine=0&" PATIENT);
    give_back(enter(first, "away", &reading));
    member_stop(0);
    dlock_lock *one = enter(first, "away", &reading), *two = enter(second, "away", &reading);
    assert_int_equal(try_once(second, "away", NULL), DLOCK_EBUSY);
    give_back(one);
    give_back(two);
    member_continue(0);
    assert_int_equal(try_once(second, "away", NULL), 0);
}

/* It hands over to nobody, and may never end. */
TEST(another_programs_minority_is_outvoted) {
    SCOPED_CLIENT *client = quorum_of(3, "quarantine=0&lease=5m");
    ask_text(&member[0], "SET outvoted somebody");
    dlock_lock *one = enter(client, "outvoted", &reading);
    dlock_lock *two = enter(client, "outvoted", &reading);
    give_back(one);
    give_back(two);
    assert_string_equal(ask_text(&member[0], "GET outvoted"), "somebody");
}

/* ---- majorities -------------------------------------------------------------------------------------------------- */

TEST(majorities_of_readers_and_of_writers_exclude_each_other) {
    SCOPED_CLIENT *first = quorum_of(3, "quarantine=0&" PATIENT), *second = quorum_of(3, "quarantine=0&" PATIENT);
    for (int without = 0; without < 3; without++) {
        char name[16];
        snprintf(name, sizeof name, "majority-%d", without);
        member_stop(without);
        dlock_lock *lock = enter(first, name, &reading);
        member_continue(without);
        assert_int_equal(try_once(second, name, NULL), DLOCK_EBUSY);
        member_stop((without + 1) % 3);
        assert_int_not_equal(try_once(second, name, NULL), 0);
        member_continue((without + 1) % 3);
        give_back(lock);
        lock = enter(first, name, &writing);
        SCOPED_LOCK *read = api_lock(second, name, &reading);
        assert_int_equal(dlock_acquire(read, 0, NULL), DLOCK_EBUSY);
        give_back(lock);
    }
}

/* Two of three let readers in; the third hears of it by the next renewal. */
TEST(a_downgrade_counts_when_a_majority_has_it) {
    SCOPED_CLIENT *first = quorum_of(3, "quarantine=0&lease=6s&" PATIENT);
    SCOPED_CLIENT *second = quorum_of(3, "quarantine=0&" PATIENT);
    dlock_lock *lock = take_everywhere(first, "less", NULL);
    member_stop(2);
    assert_int_equal(dlock_downgrade(lock, NULL), 0);
    dlock_lock *beside = enter(second, "less", &reading);
    assert_int_equal(try_once(second, "less", NULL), DLOCK_EBUSY);
    member_continue(2);
    for (int64_t until = now_ms() + 30000; strcmp(ask_text(&member[2], "GET less"), "dlock:shared") != 0; sleep_ms(5))
        if (now_ms() > until) fail_msg("member 2 has not heard of the downgrade");
    give_back(beside);
    give_back(lock);
}

/* Two readers of one client, whose votes at a member are lost at a time. */
TEST(every_reader_gets_a_lost_vote_again) {
    SCOPED_CLIENT *client = quorum_of(3, "quarantine=0&lease=3s");
    dlock_lock *one = enter(client, "both", &reading), *two = enter(client, "both", &reading);
    for (int i = 0; i < 3; i++) await_count(i, "ZCARD {%s}:dlock:holders", "both", 2);
    ask_number(&member[1], "DEL both {both}:dlock:holders {both}:dlock:grants");
    await_count(1, "ZCARD {%s}:dlock:holders", "both", 2);
    give_back(one);
    give_back(two);
}

/* ---- fences ------------------------------------------------------------------------------------------------------ */

enum { CROWD = 12, ROUNDS = 10 };

static struct reader {
    pthread_t thread;
    dlock_client *client;
    dlock_lock *lock;
} readers[CROWD];
static pthread_barrier_t together;

static void *read_together(void *arg) {
    struct reader *reader = arg;
    reader->lock = api_lock(reader->client, "fences", &reading);
    pthread_barrier_wait(&together);
    if (dlock_acquire(reader->lock, 20000, NULL) != 0) reader->client = NULL;
    return NULL;
}

static struct reader *shown_of(uint64_t fence) {
    for (int i = 0; i < CROWD; i++)
        if (dlock_fence(readers[i].lock) == fence) return &readers[i];
    return NULL;
}

static int count_shown(const struct dlock_info *info, void *arg) {
    *(int *)arg += shown_of(info->fence) != NULL;
    return 0;
}

/* The members count alike, since the fences are ahead of their clocks, but each in the order in which readers reach it. */
TEST(readers_that_come_together_have_different_fences) {
    SCOPED_CLIENT *client = quorum_of(3, "quarantine=0&" PATIENT);
    uint64_t last;
    int shown = 0;
    for (int i = 0; i < 3; i++) ask_text(&member[i], "SET {fences}:dlock:fence 2000000000000001 PX 600000");
    for (int i = 0; i < CROWD; i++) readers[i].client = quorum_of(3, "quarantine=0&" PATIENT);
    for (int round = 0; round < ROUNDS; round++) {
        give_back(take(client, "fences", &last));
        pthread_barrier_init(&together, NULL, CROWD);
        for (int i = 0; i < CROWD; i++)
            assert_int_equal(pthread_create(&readers[i].thread, NULL, read_together, &readers[i]), 0);
        for (int i = 0; i < CROWD; i++) pthread_join(readers[i].thread, NULL);
        pthread_barrier_destroy(&together);
        for (int i = 0; i < CROWD; i++) {
            assert_non_null(readers[i].client);
            assert_true(dlock_fence(readers[i].lock) > last);
            for (int j = 0; j < i; j++)
                if (dlock_fence(readers[i].lock) == dlock_fence(readers[j].lock)) fail_msg("a fence twice");
        }
        if (round == ROUNDS - 1) assert_int_equal(dlock_inspect(client, "fences", count_shown, &shown, NULL), 0);
        uint64_t greatest = last, next;
        for (int i = 0; i < CROWD; i++) {
            if (dlock_fence(readers[i].lock) > greatest) greatest = dlock_fence(readers[i].lock);
            give_back(readers[i].lock);
        }
        give_back(take(client, "fences", &next));
        assert_true(next > greatest);
    }
    assert_int_equal(shown, CROWD);
    for (int i = 0; i < CROWD; i++) dlock_close(readers[i].client);
}

TESTS(members_three, members_none, NULL, NULL)
