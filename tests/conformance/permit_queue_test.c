/* Waiting for permits: order, wake-ups, and many at once. */
#include "actor.h"
#include "census.h"

#include <stdio.h>

enum { LIMIT = 3 };

static struct dlock_options permits(void) {
    return options_for(DLOCK_PERMIT, LIMIT, LONG_LEASE_MS);
}

/* All permits that become free together go to waiters at once. The best of some rounds counts, since the machine may be
 * busy. */
void case_freed_permits_wake_waiters(void) {
    enum { ROUNDS = 5, AT_ONCE_MS = 400 };
    struct dlock_options options = permits();
    struct actor waiters[LIMIT];
    for (int i = 0; i < LIMIT; i++) actor_start(&waiters[i], suite.name, &options);
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, &options);
    int64_t best_ms = INT64_MAX;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < LIMIT; i++) EXPECT_CODE(0, dlock_acquire(lock, PATIENCE_MS, ERR));
        for (int i = 0; i < LIMIT; i++) {
            actor_begin(&waiters[i], ACTOR_ACQUIRE, PATIENCE_MS);
            await_waiters(client, suite.name, (uint32_t)i + 1);
        }
        int64_t begun_us = now_us(), last_us = 0;
        for (int i = 0; i < LIMIT; i++) EXPECT_CODE(0, dlock_release(lock, ERR));
        for (int i = 0; i < LIMIT; i++) {
            struct actor_report report = ACTOR_FINISH(0, &waiters[i]);
            if (report.at_us > last_us) last_us = report.at_us;
        }
        if ((last_us - begun_us) / 1000 < best_ms) best_ms = (last_us - begun_us) / 1000;
        EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(lock, 0, ERR));
        for (int i = 0; i < LIMIT; i++) ACTOR_DO(0, &waiters[i], ACTOR_RELEASE, 0);
    }
    printf("# %d freed permits reached %d waiters in %d ms\n", LIMIT, LIMIT, (int)best_ms);
    EXPECT_BETWEEN(0, AT_ONCE_MS, best_ms);
    for (int i = 0; i < LIMIT; i++) actor_end(&waiters[i]);
}

static void many_permits(bool patient) {
    struct dlock_options kinds[5];
    for (int i = 0; i < 5; i++) kinds[i] = permits();
    kinds[2].owner = DLOCK_OWNER_HANDLE;
    kinds[3].lease_ms = LONG_LEASE_MS / 2;
    struct census *census = census_open(RUN_MS);
    census->meets = DLOCK_PERMIT;
    struct visitors visitors = {census, suite.name, kinds, 5, patient};
    census_run(&visitors, 3);
    census_close(census);
    EXPECT(atomic_load(&census->most[DLOCK_PERMIT]) > 1);
    /* No permit was lost. */
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, &kinds[0]);
    for (int i = 0; i < LIMIT; i++) EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(lock, 0, ERR));
}

void case_permits_never_exceed_the_limit(void) {
    many_permits(true);
}

void case_impatient_permit_waiters(void) {
    many_permits(false);
}
