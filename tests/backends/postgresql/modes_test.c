/* Permits; and, for every mode: renewals, the list of holders, the rows that stay, and all modes at once. */
#include "parties.h"
#include "queue_scene.h"

#include <pthread.h>
#include <stdatomic.h>

/* ---- permits ----------------------------------------------------------------------------------------------------- */

static int take_permit(struct held *held, int who, const char *name, uint32_t limit) {
    want(held, who, name, DLOCK_PERMIT, limit);
    return acquire(&party[who].link, held);
}

TEST(as_many_as_permitted) {
    struct held permit[5];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(take_permit(&permit[i], i, "permits", 3), 0);
        assert_true(i == 0 || permit[i].claim.fence > permit[i - 1].claim.fence);
    }
    assert_int_equal(take_permit(&permit[3], 3, "permits", 3), DLOCK_EBUSY);
    assert_int_equal(waiting("permits"), 0);
    uint64_t fence = permit[0].claim.fence;
    assert_int_equal(acquire(&party[0].link, &permit[0]), 0);
    assert_true(permit[0].claim.fence == fence);
    for (int i = 3; i < 5; i++) {
        want(&permit[i], i, "permits", DLOCK_PERMIT, 3);
        assert_int_equal(queue_up(&party[i].link, &permit[i]), DLOCK_EBUSY);
    }
    assert_int_equal(give(&permit[1], 1), 0);
    assert_woken(3, &permit[3]);
    assert_not_woken(4);
    assert_int_equal(take_permit(&permit[1], 1, "permits", 3), DLOCK_EBUSY); /* waiters are not overtaken */
    /* A crash ends one, and no more. */
    end_lease(&permit[2]);
    assert_int_equal(queue_up(&party[4].link, &permit[4]), 0);
    assert_int_equal(renew(&party[2].link, &permit[2]), DLOCK_ELOST);
    assert_int_equal(renew(&party[0].link, &permit[0]), 0);
    assert_int_equal(renew(&party[3].link, &permit[3]), 0);
    assert_int_equal(take_permit(&permit[1], 1, "permits", 3), DLOCK_EBUSY);
    assert_int_equal(give(&permit[0], 0), 0);
    assert_int_equal(give(&permit[3], 3), 0);
    assert_int_equal(give(&permit[4], 4), 0);
    assert_int_equal(sql_number("SELECT count(*) FROM {}.shares WHERE name = 'permits'"), 0);
}

TEST(several_are_let_in_at_once) {
    struct held permit[5];
    for (int i = 0; i < 5; i++) {
        want(&permit[i], i, "several", DLOCK_PERMIT, 2);
        assert_int_equal(queue_up(&party[i].link, &permit[i]), i < 2 ? 0 : DLOCK_EBUSY);
    }
    end_lease(&permit[0]);
    assert_int_equal(give(&permit[1], 1), 0);
    assert_woken(2, &permit[2]);
    assert_woken(3, &permit[3]);
    assert_not_woken(4);
    assert_int_equal(give(&permit[2], 2), 0);
    assert_woken(4, &permit[4]);
    assert_int_equal(give(&permit[3], 3), 0);
    assert_int_equal(give(&permit[4], 4), 0);
}

static void assert_in_use(int who, const char *name, enum dlock_mode mode, uint32_t limit, const char *as) {
    struct dlock_error err;
    struct held held;
    char message[128];
    for (uint32_t flags = 0; flags <= DLOCK_CLAIM_QUEUE; flags++) {
        want(&held, who, name, mode, limit);
        assert_int_equal(held_run(backend->acquire, &party[who].link, &held, flags, TIMEOUT_MS, &err), 0);
        assert_int_equal(held.claim.result, DLOCK_EINVAL);
        assert_int_equal(err.code, DLOCK_EINVAL);
        snprintf(message, sizeof message, "\"%s\" is in use as %s", name, as);
        assert_string_equal(err.message, message);
    }
}

/* A name is either a lock or a number of permits, as long as it has a holder or a waiter. */
TEST(one_use_at_a_time) {
    struct held one, two;
    assert_int_equal(take_permit(&one, 0, "use", 3), 0);
    assert_in_use(1, "use", DLOCK_PERMIT, 2, "3 permits");
    assert_in_use(1, "use", DLOCK_PERMIT, 4, "3 permits");
    assert_in_use(1, "use", DLOCK_EXCLUSIVE, 0, "3 permits");
    assert_in_use(1, "use", DLOCK_SHARED, 0, "3 permits");
    assert_int_equal(give(&one, 0), 0);
    assert_int_equal(take_permit(&one, 0, "use", 1), 0);
    assert_in_use(1, "use", DLOCK_EXCLUSIVE, 0, "1 permit");
    /* Its lease is over, but there is a waiter: that one gets it. */
    want(&two, 2, "use", DLOCK_PERMIT, 1);
    assert_int_equal(queue_up(&party[2].link, &two), DLOCK_EBUSY);
    end_lease(&one);
    assert_in_use(1, "use", DLOCK_EXCLUSIVE, 0, "1 permit");
    assert_woken(2, &two);
    assert_int_equal(give(&two, 2), 0);
    assert_int_equal(take(&one, 0, "use", DLOCK_EXCLUSIVE), 0);
    assert_in_use(1, "use", DLOCK_PERMIT, 1, "a lock");
    assert_int_equal(give(&one, 0), 0);
    assert_int_equal(take(&one, 0, "use", DLOCK_SHARED), 0);
    assert_in_use(1, "use", DLOCK_PERMIT, 1, "a lock");
    assert_int_equal(waiting("use"), 0);
    end_lease(&one);
    assert_int_equal(take_permit(&two, 1, "use", 9), 0);
    assert_int_equal(give(&two, 1), 0);
}

/* ---- all modes --------------------------------------------------------------------------------------------------- */

/* Several grants of one name in one request; lost ones are told apart from the others. */
TEST(renewals_of_one_name) {
    enum { N = 4 };
    struct held held[N];
    struct dlock_claim *claims[N];
    struct dlock_error err;
    for (int i = 0; i < N; i++) {
        assert_int_equal(take(&held[i], 0, "many", DLOCK_SHARED), 0);
        held[i].claim.token = held[i].token;
        claims[i] = &held[i].claim;
    }
    end_lease(&held[2]);
    assert_int_equal(backend->renew(party[0].link.conn, claims, N, TIMEOUT_MS, &err), 0);
    for (int i = 0; i < N; i++) {
        assert_int_equal(claims[i]->result, i == 2 ? DLOCK_ELOST : 0);
        assert_int_equal(give(&held[i], 0), i == 2 ? DLOCK_ELOST : 0);
    }
}

struct seen {
    int n, shared, permits;
    uint32_t limit, waiters;
    uint64_t fences;
};

static int see(const struct dlock_info *info, void *arg) {
    struct seen *seen = arg;
    seen->n++;
    seen->shared += info->mode == DLOCK_SHARED;
    seen->permits += info->mode == DLOCK_PERMIT;
    seen->limit = info->limit;
    seen->waiters = info->waiters;
    seen->fences += info->fence;
    return 0;
}

TEST(every_holder_is_seen) {
    struct held one, two, writer, permit;
    struct dlock_error err;
    struct seen seen = {0};
    char cursor[256] = "";
    int rc;
    assert_int_equal(take(&one, 0, "seen", DLOCK_SHARED), 0);
    assert_int_equal(take(&two, 1, "seen", DLOCK_SHARED), 0);
    assert_int_equal(wait_for(&writer, 2, "seen", DLOCK_EXCLUSIVE), DLOCK_EBUSY);
    assert_int_equal(take_permit(&permit, 3, "seen-permit", 7), 0);
    assert_int_equal(backend->inspect(party[0].link.conn, "seen", see, &seen, TIMEOUT_MS, &err), 0);
    assert_true(seen.n == 2 && seen.shared == 2 && seen.limit == 1 && seen.waiters == 1);
    assert_true(seen.fences == one.claim.fence + two.claim.fence);
    seen = (struct seen){0};
    assert_int_equal(backend->inspect(party[0].link.conn, "seen-permit", see, &seen, TIMEOUT_MS, &err), 0);
    assert_true(seen.n == 1 && seen.permits == 1 && seen.limit == 7);
    /* More readers than a page has names. */
    sql("INSERT INTO {}.shares SELECT 'seen', 'reader-' || n, n, {}.clock_us() + 60000000, false "
        "FROM generate_series(1, 700) n");
    sql("INSERT INTO {}.locks SELECT ('seen-' || n)::bytea, 'writer', n, {}.clock_us() + 60000000 "
        "FROM generate_series(1, 600) n");
    seen = (struct seen){0};
    do rc = backend->list(party[0].link.conn, "seen", cursor, see, &seen, TIMEOUT_MS, &err);
    while (rc == 1);
    assert_int_equal(rc, 0);
    assert_int_equal(seen.n, 702 + 1 + 600);
    assert_int_equal(seen.shared, 702);
    end_lease(&one);
    seen = (struct seen){0};
    assert_int_equal(backend->inspect(party[0].link.conn, "seen", see, &seen, TIMEOUT_MS, &err), 0);
    assert_int_equal(seen.n, 701);
    sql("DELETE FROM {}.locks WHERE token = 'writer'");
    /* All of them are broken at once. */
    assert_int_equal(backend->break_lock(party[0].link.conn, "seen", TIMEOUT_MS, &err), 0);
    assert_woken(2, &writer);
    assert_int_equal(renew(&party[1].link, &two), DLOCK_ELOST);
    assert_int_equal(give(&writer, 2), 0);
    assert_int_equal(backend->break_lock(party[0].link.conn, "seen", TIMEOUT_MS, &err), DLOCK_ELOST);
    assert_int_equal(give(&permit, 3), 0);
}

/* The row of a held name stays, however long ago its last grant was. */
TEST(held_names_are_not_swept) {
    struct held reader;
    assert_int_equal(take(&reader, 0, "old", DLOCK_SHARED), 0);
    sql("UPDATE {}.locks SET expires_us = expires_us - 90000000000, fence = fence - 90000000000");
    for (int i = 0; i < 50; i++) sql("SELECT {}.sweep()");
    assert_int_equal(sql_number("SELECT count(*) FROM {}.locks WHERE name = 'old'"), 1);
    assert_int_equal(give(&reader, 0), 0);
    /* Nor is one with a fence of today's. */
    sql("UPDATE {}.locks SET fence = fence + 90000000000");
    for (int i = 0; i < 50; i++) sql("SELECT {}.sweep()");
    assert_int_equal(sql_number("SELECT count(*) FROM {}.locks WHERE name = 'old'"), 1);
    sql("UPDATE {}.locks SET fence = fence - 90000000000");
    /* Each takes a page at random. */
    for (int i = 0; i < 5000 && sql_number("SELECT count(*) FROM {}.locks WHERE name = 'old'") > 0; i++)
        sql("SELECT {}.sweep()");
    assert_int_equal(sql_number("SELECT count(*) FROM {}.locks WHERE name = 'old'"), 0);
}

/* ---- all at once ------------------------------------------------------------------------------------------------- */

static atomic_int writers, readers, permits, wrong, cycles;
static atomic_bool over;

static void *hammer(void *arg) {
    struct party *me = arg;
    struct held held;
    for (int i = 0; !atomic_load(&over); i++) {
        bool permit = i % 4 == 3, write = i % 4 == 1;
        held_new(&held, &me->link, permit ? "hammered-permits" : "hammered");
        held.claim.mode = permit ? DLOCK_PERMIT : write ? DLOCK_EXCLUSIVE : DLOCK_SHARED;
        held.claim.limit = permit ? 2 : 0;
        held.claim.lease_ms = 600000; /* this test looks at no clock: no lease may end, however long a commit takes */
        if (acquire(&me->link, &held) != 0) continue;
        atomic_int *mine = permit ? &permits : write ? &writers : &readers;
        int n = atomic_fetch_add(mine, 1) + 1;
        if (permit ? n > 2 : atomic_load(&writers) > (write && atomic_load(&readers) == 0)) atomic_fetch_add(&wrong, 1);
        atomic_fetch_sub(mine, 1);
        if (release(&me->link, &held) != 0) atomic_fetch_add(&wrong, 1);
        atomic_fetch_add(&cycles, 1);
    }
    return NULL;
}

TEST(nobody_is_let_in_wrongly) {
    pthread_t threads[PARTIES];
    for (int i = 0; i < PARTIES; i++) assert_int_equal(pthread_create(&threads[i], NULL, hammer, &party[i]), 0);
    sleep_ms(3000);
    atomic_store(&over, true);
    for (int i = 0; i < PARTIES; i++) pthread_join(threads[i], NULL);
    assert_true(atomic_load(&cycles) > 100);
    assert_int_equal(atomic_load(&wrong), 0);
    assert_int_equal(sql_number("SELECT count(*) FROM {}.shares"), 0);
}

TESTS(parties_begin, parties_end, site_begin, site_end)
