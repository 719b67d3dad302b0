/* `linger=`: a released lock stays with its process for a while, until another client asks; and on_wanted, which tells a
 * holder of that. */
#include "actor.h"
#include "thread.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { LINGER_MS = 5000, SOON_MS = LINGER_MS / 2 };

/* Sets linger=5s in the URI of all clients of the case from here on, in this process and its children. */
static void linger(void) {
    suite.uri = uri_with(suite.uri, "linger", "5s");
}

static struct dlock_options long_lease(void) {
    return options_with(LONG_LEASE_MS, 0);
}

/* A lingering grant is taken again without the server: the server's part of the fence does not change. */
void case_linger_costs_nothing(void) {
    enum { TIMES = 200 };
    linger();
    struct dlock_options options = long_lease();
    dlock_client *client = open_client();
    dlock_lock *lock = new_lock(client, suite.name, &options);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    uint64_t fence = dlock_fence(lock), server_part = fence >> 8;
    int64_t begun_us = now_us();
    for (int i = 0; i < TIMES; i++) {
        EXPECT_CODE(0, dlock_release(lock, ERR));
        EXPECT(!dlock_held(lock) && dlock_fence(lock) == 0);
        EXPECT_CODE(0, dlock_acquire(lock, i % 2 ? 0 : DLOCK_FOREVER, ERR));
        EXPECT(dlock_held(lock) && dlock_fence(lock) > fence);
        fence = dlock_fence(lock);
    }
    printf("# released and taken again in %.1f us\n", (double)(now_us() - begun_us) / TIMES);
    EXPECT(fence >> 8 == server_part);
    EXPECT_CODE(0, dlock_release(lock, ERR));
    EXPECT_CODE(DLOCK_EOWNER, dlock_release(lock, ERR));
    dlock_free(lock);
    dlock_close(client);
    EXPECT_FREE(suite.name); /* nothing lingers after its client was closed */
}

/* Fences continue to grow when the ordinals are used up. */
void case_linger_fences_grow(void) {
    linger();
    struct dlock_options options = long_lease();
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, &options), *second = new_lock(client, suite.name, &options);
    uint64_t fence = 0;
    for (int i = 0; i < 700; i++) {
        dlock_lock *through = i % 3 ? lock : second;
        EXPECT_CODE(0, dlock_acquire(through, PATIENCE_MS, ERR));
        if (dlock_fence(through) <= fence) FAIL("fence %d does not grow", i);
        fence = dlock_fence(through);
        EXPECT_CODE(0, dlock_release(through, ERR));
    }
    struct call call = in_thread(acquire_here, lock, PATIENCE_MS);
    EXPECT_CODE(0, call.code);
    EXPECT(call.fence > fence);
}

/* Another process that asks, by a wait or by repeated tries, gets the lock long before the lingering would end. */
void case_linger_ends_when_wanted(void) {
    linger();
    struct dlock_options options = long_lease();
    SCOPED_ACTOR other, holder;
    actor_start(&other, suite.name, &options);
    actor_start(&holder, suite.name, &options);
    uint64_t fence = 0;
    for (int round = 0; round < 6; round++) {
        fence = ACTOR_DO(0, &holder, ACTOR_ACQUIRE, PATIENCE_MS).fence;
        ACTOR_DO(0, &holder, ACTOR_RELEASE, 0);
        int64_t begun_us = now_us();
        struct actor_report report;
        if (round % 2) {
            report = ACTOR_DO(0, &other, ACTOR_ACQUIRE, PATIENCE_MS);
        } else { /* a try is busy, and is noticed all the same */
            for (;; sleep_ms(5)) {
                actor_begin(&other, ACTOR_ACQUIRE, 0);
                EXPECT(actor_poll(&other, PATIENCE_MS, &report));
                if (report.code == 0) break;
                EXPECT_CODE(DLOCK_EBUSY, report.code);
                EXPECT_BETWEEN(0, SOON_MS, (now_us() - begun_us) / 1000);
            }
        }
        EXPECT(report.held && report.fence > fence);
        EXPECT_BETWEEN(0, SOON_MS, (report.at_us - begun_us) / 1000);
        ACTOR_DO(0, &other, ACTOR_RELEASE, 0);
    }
}

/* The same between clients of one process, and for a client that was waiting before the release: then nothing
 * lingers. */
void case_linger_not_while_others_wait(void) {
    linger();
    struct dlock_options options = long_lease();
    SCOPED_CLIENT *client = open_client(), *other = open_client();
    dlock_lock *lock = new_lock(client, suite.name, &options), *wanted = new_lock(other, suite.name, &options);
    for (int round = 0; round < 4; round++) {
        EXPECT_CODE(0, dlock_acquire(lock, PATIENCE_MS, ERR));
        uint64_t fence = dlock_fence(lock);
        struct call call = {.lock = wanted, .timeout_ms = PATIENCE_MS, .code = 1};
        pthread_t thread = 0;
        if (round % 2) {
            thread = start_thread(acquire_and_keep, &call);
            await_waiters(client, suite.name, 1);
        }
        int64_t begun_us = now_us();
        EXPECT_CODE(0, dlock_release(lock, ERR));
        if (round % 2) {
            pthread_join(thread, NULL);
        } else {
            call = in_thread(acquire_here, wanted, PATIENCE_MS);
        }
        EXPECT_CODE(0, call.code);
        EXPECT(call.fence > fence);
        EXPECT_BETWEEN(0, SOON_MS, (call.at_us - begun_us) / 1000);
        if (round % 2) { /* that thread has ended with the lock held: freeing its handle gives it back */
            dlock_free(wanted);
            wanted = new_lock(other, suite.name, &options);
        }
    }
    dlock_free(lock);
    dlock_free(wanted);
}

/* Lingering ends on its own, and a client without linger gets the lock as soon as it asks. */
void case_linger_is_over_in_time(void) {
    char *brief = uri_with(suite.uri, "linger", "100ms");
    dlock_client *client = NULL, *other = open_client();
    EXPECT_CODE(0, dlock_open(brief, NULL, &client, ERR));
    struct dlock_options options = long_lease();
    dlock_lock *lock = new_lock(client, suite.name, &options), *wanted = new_lock(other, suite.name, &options);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    EXPECT_CODE(0, dlock_release(lock, ERR));
    sleep_ms(1000);
    EXPECT_CODE(0, dlock_acquire(wanted, 0, ERR));
    EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(lock, 0, ERR));
    EXPECT_CODE(0, dlock_release(wanted, ERR));
    dlock_free(lock);
    dlock_free(wanted);
    dlock_close(client);
    dlock_close(other);
    free(brief);
}

/* On other terms the same process needs another grant: as a reader, with a fixed lease, with another lease. */
void case_linger_for_other_wishes(void) {
    linger();
    struct dlock_options options = long_lease(), fixed = options_with(LONG_LEASE_MS, DLOCK_FIXED_LEASE);
    struct dlock_options shorter = options_with(LONG_LEASE_MS / 2, 0);
    struct dlock_options shared = options_for(DLOCK_SHARED, 0, LONG_LEASE_MS);
    const struct dlock_options *wishes[] = {&fixed, &shorter, suite.caps & DLOCK_CAP_SHARED ? &shared : &fixed};
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, &options);
    for (int i = 0; i < 6; i++) { /* asked after the release, and before */
        struct call call = {.lock = new_lock(client, suite.name, wishes[i / 2]), .timeout_ms = PATIENCE_MS, .code = 1};
        pthread_t thread = 0;
        EXPECT_CODE(0, dlock_acquire(lock, PATIENCE_MS, ERR));
        uint64_t fence = dlock_fence(lock);
        if (i % 2) {
            thread = start_thread(acquire_here, &call);
            sleep_ms(100);
        }
        int64_t begun_us = now_us();
        EXPECT_CODE(0, dlock_release(lock, ERR));
        if (i % 2)
            pthread_join(thread, NULL);
        else
            acquire_here(&call);
        EXPECT_CODE(0, call.code);
        EXPECT_BETWEEN(0, SOON_MS, (call.at_us - begun_us) / 1000);
        EXPECT(call.fence >> 8 > fence >> 8); /* a new grant of the server */
        dlock_free(call.lock);
    }
}

/* A process that dies while a lock lingers is treated like any dead holder; a lingering grant can be broken. */
void case_linger_and_loss(void) {
    linger();
    struct dlock_options options = options_with(LEASE_MS, 0), renewed = options_with(RENEWED_LEASE_MS, 0);
    struct actor holder, other;
    actor_start(&holder, suite.name, &options);
    actor_start(&other, suite.name, &renewed);
    uint64_t fence = ACTOR_DO(0, &holder, ACTOR_ACQUIRE, 0).fence;
    ACTOR_DO(0, &holder, ACTOR_RELEASE, 0);
    SCOPED_CLIENT *operator_client = NULL;
    EXPECT_CODE(0, dlock_open(suite.uri, NULL, &operator_client, ERR));
    EXPECT_CODE(0, dlock_break(operator_client, suite.name, ERR));
    struct actor_report report = ACTOR_DO(0, &other, ACTOR_ACQUIRE, PATIENCE_MS);
    EXPECT(report.held && report.fence > fence);
    sleep_ms(LEASE_MS); /* a broken grant is noticed at the next renewal, also while it lingers */
    ACTOR_DO(DLOCK_ETIMEDOUT, &holder, ACTOR_ACQUIRE, MOMENT_MS);
    EXPECT(ACTOR_DO(0, &holder, ACTOR_LOOK, 0).lost == 0); /* a lingering grant that is broken is no loss */
    EXPECT(ACTOR_DO(0, &other, ACTOR_LOOK, 0).held);
    ACTOR_DO(0, &other, ACTOR_RELEASE, 0);
    int64_t killed_us = now_us();
    kill_process(other.pid);
    report = ACTOR_DO(0, &holder, ACTOR_ACQUIRE, PATIENCE_MS);
    EXPECT_BETWEEN(0, RENEWED_LEASE_MS + SLACK_MS, (report.at_us - killed_us) / 1000);
    actor_end(&holder);
}

/* ---- on_wanted ---- */

static void count_wanted(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)lock;
    EXPECT(!err);
    atomic_fetch_add((atomic_int *)arg, 1);
}

static dlock_lock *watching(dlock_client *client, atomic_int *wanted) {
    struct dlock_options options = long_lease();
    options.on_wanted = count_wanted;
    options.on_wanted_arg = wanted;
    return new_lock(client, suite.name, &options);
}

static void await_wanted(atomic_int *wanted, int times) {
    int64_t until = now_ms() + PATIENCE_MS;
    while (atomic_load(wanted) < times) {
        if (now_ms() > until) FAIL("on_wanted does not come");
        sleep_ms(2);
    }
}

/* A holder learns that another client waits, or tries: once per grant, whoever else asks. */
void case_wanted_tells_the_holder(void) {
    atomic_int wanted = 0;
    SCOPED_CLIENT *client = open_client(), *other = open_client(), *third = open_client();
    struct dlock_options options = long_lease();
    SCOPED_LOCK *lock = watching(client, &wanted), *tries = new_lock(other, suite.name, &options);
    dlock_lock *waits = new_lock(third, suite.name, &options);
    for (int round = 1; round <= 3; round++) {
        EXPECT_CODE(0, dlock_acquire(lock, PATIENCE_MS, ERR));
        EXPECT(atomic_load(&wanted) == round - 1);
        EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(tries, 0, NULL));
        await_wanted(&wanted, round);
        struct call call = {.lock = waits, .timeout_ms = PATIENCE_MS, .code = 1};
        pthread_t thread = start_thread(acquire_and_keep, &call);
        await_waiters(client, suite.name, 1);
        EXPECT(dlock_held(lock) && atomic_load(&wanted) == round);
        EXPECT_CODE(0, dlock_release(lock, ERR));
        pthread_join(thread, NULL);
        EXPECT_CODE(0, call.code);
        dlock_free(waits);
        waits = new_lock(third, suite.name, &options);
    }
    dlock_free(waits);
}

/* A client that comes before the grant counts as well: it waits behind this one, which is told when it has the lock. */
void case_wanted_by_those_who_wait_already(void) {
    atomic_int wanted = 0;
    SCOPED_CLIENT *client = open_client(), *other = open_client(), *third = open_client();
    struct dlock_options options = long_lease();
    SCOPED_LOCK *first = new_lock(other, suite.name, &options), *lock = watching(client, &wanted);
    dlock_lock *last = new_lock(third, suite.name, &options);
    EXPECT_CODE(0, dlock_acquire(first, PATIENCE_MS, ERR));
    struct call call = {.lock = lock, .timeout_ms = PATIENCE_MS, .code = 1},
                behind = {.lock = last, .timeout_ms = PATIENCE_MS, .code = 1};
    pthread_t thread = start_thread(acquire_and_keep, &call);
    await_waiters(other, suite.name, 1);
    pthread_t thread_behind = start_thread(acquire_and_keep, &behind);
    await_waiters(other, suite.name, 2);
    EXPECT(atomic_load(&wanted) == 0);
    EXPECT_CODE(0, dlock_release(first, ERR));
    pthread_join(thread, NULL);
    EXPECT_CODE(0, call.code);
    await_wanted(&wanted, 1);
    dlock_free(lock); /* that thread has ended with the lock held */
    lock = NULL;
    pthread_join(thread_behind, NULL);
    EXPECT_CODE(0, behind.code);
    dlock_free(last);
}
