/* Leases: fixed ones end, others are renewed, and a release that comes too late does not free another's grant. */
#include "actor.h"

#include <stdio.h>

static const struct dlock_options fixed = {.size = sizeof fixed, .flags = DLOCK_FIXED_LEASE, .lease_ms = LEASE_MS};
static const struct dlock_options renewed = {.size = sizeof renewed, .lease_ms = RENEWED_LEASE_MS};

/* Waits until on_lost, which runs in its own thread, has been called `times` times. Returns the actor's state. */
static struct actor_report lost_times(struct actor *actor, int times) {
    struct actor_report report = ACTOR_DO(0, actor, ACTOR_LOOK, 0);
    for (int64_t until = now_ms() + PATIENCE_MS; report.lost < times && now_ms() < until; sleep_ms(10))
        report = ACTOR_DO(0, actor, ACTOR_LOOK, 0);
    return report;
}

void case_fixed_lease_ends(void) {
    SCOPED_ACTOR holder;
    actor_start(&holder, suite.name, &fixed);
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, NULL);
    int64_t begun = now_ms();
    struct actor_report report = ACTOR_DO(0, &holder, ACTOR_ACQUIRE, 0);
    EXPECT(report.held && report.lost == 0);
    EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(lock, 0, ERR)); /* at once: there is no time for a new client */
    report = ACTOR_DO(0, &holder, ACTOR_WATCH, PATIENCE_MS);
    EXPECT(!report.held && report.remaining_ms == 0 && report.fence > 0);
    EXPECT_BETWEEN(LEASE_MS / 2, LEASE_MS + SLACK_MS, now_ms() - begun);
    EXPECT_CODE(0, dlock_acquire(lock, LEASE_MS + SLACK_MS, ERR));
    EXPECT(lost_times(&holder, 1).lost == 1);
    sleep_ms(200);
    EXPECT(ACTOR_DO(DLOCK_ELOST, &holder, ACTOR_RELEASE, 0).lost == 1);
    ACTOR_DO(DLOCK_EOWNER, &holder, ACTOR_RELEASE, 0);
    EXPECT(dlock_held(lock) && dlock_fence(lock) > report.fence);
    EXPECT_TAKEN(suite.name); /* neither release has freed it */
    ACTOR_DO(DLOCK_EBUSY, &holder, ACTOR_ACQUIRE, 0);
    EXPECT_CODE(0, dlock_release(lock, ERR));
}

/* The holder's own clock ends its grant before the server gives the lock to a waiter, and tells it once. */
void case_fixed_lease_ends_before_next_grant(void) {
    SCOPED_ACTOR holder, waiter;
    actor_start(&holder, suite.name, &fixed);
    actor_start(&waiter, suite.name, NULL);
    for (int round = 1; round <= 3; round++) {
        uint64_t fence = ACTOR_DO(0, &holder, ACTOR_ACQUIRE, 0).fence;
        actor_begin(&waiter, ACTOR_ACQUIRE, PATIENCE_MS);
        struct actor_report watched = ACTOR_DO(0, &holder, ACTOR_WATCH, PATIENCE_MS);
        struct actor_report granted = ACTOR_FINISH(0, &waiter);
        EXPECT(granted.held && granted.fence > fence);
        EXPECT(watched.last_held_us < granted.at_us);
        ACTOR_DO(DLOCK_ELOST, &holder, ACTOR_RELEASE, 0);
        EXPECT(lost_times(&holder, round).lost == round);
        ACTOR_DO(0, &waiter, ACTOR_RELEASE, 0);
    }
    sleep_ms(200);
    EXPECT(ACTOR_DO(0, &holder, ACTOR_LOOK, 0).lost == 3);
}

/* A wait longer than the waiter's own lease does not shorten the lease of its grant. */
void case_lease_counts_from_the_grant(void) {
    SCOPED_ACTOR holder, waiter;
    actor_start(&holder, suite.name, NULL);
    actor_start(&waiter, suite.name, &fixed);
    ACTOR_DO(0, &holder, ACTOR_ACQUIRE, 0);
    actor_begin(&waiter, ACTOR_ACQUIRE, PATIENCE_MS);
    struct actor_report report;
    EXPECT(!actor_poll(&waiter, LEASE_MS * 3 / 2, &report));
    ACTOR_DO(0, &holder, ACTOR_RELEASE, 0);
    report = ACTOR_FINISH(0, &waiter);
    EXPECT(report.held && report.remaining_ms > LEASE_MS / 3);
}

void case_renewal_outlives_three_leases(void) {
    SCOPED_CLIENT *client = open_client(), *other = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, &renewed), *wanted = new_lock(other, suite.name, NULL);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    uint64_t fence = dlock_fence(lock);
    for (int64_t until = now_ms() + RENEWED_LEASE_MS * 13 / 4; now_ms() < until; sleep_ms(20)) {
        EXPECT(dlock_held(lock));
        EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(wanted, 0, ERR));
    }
    EXPECT(dlock_fence(lock) == fence);
    EXPECT_CODE(0, dlock_release(lock, ERR));
    EXPECT_CODE(0, dlock_acquire(wanted, SLACK_MS, ERR));
}

static void tell_why(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)lock;
    (void)arg;
    printf("# lost: %s\n", err->message);
    fflush(stdout);
}

/* A busy machine takes a while where each of them is a request: hence the lease. */
void case_renewal_of_many_locks(void) {
    enum { N = 100, MANY_LEASE_MS = 2 * RENEWED_LEASE_MS };
    SCOPED_CLIENT *client = open_client();
    struct dlock_options options = renewed;
    options.lease_ms = MANY_LEASE_MS;
    options.on_lost = tell_why;
    static dlock_lock *locks[N];
    for (int i = 0; i < N; i++) {
        locks[i] = numbered_lock(client, i, &options);
        EXPECT_CODE(0, dlock_acquire(locks[i], 0, ERR));
    }
    sleep_ms(MANY_LEASE_MS * 3 / 2);
    for (int i = 0; i < N; i++) EXPECT(dlock_held(locks[i]));
    char name[DLOCK_NAME_MAX + 1];
    tagged_name(name, "50");
    EXPECT_TAKEN(name);
    for (int i = 0; i < N; i++) EXPECT_CODE(0, dlock_release(locks[i], ERR));
    for (int i = 0; i < N; i++) dlock_free(locks[i]);
}

/* A grant whose lease is set again outlives its first end and excludes a waiter exactly until the new end, whether that
 * is later or earlier. A server may keep it for less than it is asked for. */
static void extend(struct dlock_options options, const struct dlock_options *others) {
    SCOPED_ACTOR waiter;
    actor_start(&waiter, suite.name, others);
    SCOPED_CLIENT *client = open_client();
    options.flags = DLOCK_FIXED_LEASE;
    for (int round = 0; round < 2; round++) {
        options.lease_ms = round == 0 ? RENEWED_LEASE_MS : LONG_LEASE_MS;
        SCOPED_LOCK *lock = new_lock(client, suite.name, &options);
        EXPECT_CODE(0, dlock_acquire(lock, PATIENCE_MS, ERR));
        uint64_t fence = dlock_fence(lock);
        int64_t end_us = valid_until_us(lock), until_us = end_us + MOMENT_MS * INT64_C(1000);
        actor_begin(&waiter, ACTOR_ACQUIRE, PATIENCE_MS);
        for (; round == 0 && now_us() < until_us; sleep_ms(RENEWED_LEASE_MS / 20))
            EXPECT_CODE(0, dlock_extend(lock, 2 * RENEWED_LEASE_MS, ERR));
        EXPECT_CODE(0, dlock_extend(lock, LEASE_MS, ERR));
        EXPECT(dlock_held(lock) && dlock_remaining_ms(lock) <= LEASE_MS && dlock_fence(lock) == fence);
        end_us = valid_until_us(lock);
        EXPECT_BETWEEN(end_us, INT64_MAX, ACTOR_FINISH(0, &waiter).at_us);
        EXPECT(!dlock_held(lock));
        EXPECT_CODE(DLOCK_ELOST, dlock_extend(lock, 0, ERR));
        EXPECT_CODE(DLOCK_ELOST, dlock_release(lock, ERR));
        EXPECT_CODE(DLOCK_EOWNER, dlock_extend(lock, 0, ERR));
        ACTOR_DO(0, &waiter, ACTOR_RELEASE, 0);
    }
}

void case_extended_lease(void) {
    extend(options_for(DLOCK_EXCLUSIVE, 0, 0), NULL);
}

void case_extended_lease_of_a_reader(void) {
    extend(options_for(DLOCK_SHARED, 0, 0), NULL);
}

void case_extended_lease_of_a_permit(void) {
    struct dlock_options permit = options_for(DLOCK_PERMIT, 1, LONG_LEASE_MS);
    extend(permit, &permit);
}

void case_extension_of_a_renewed_grant(void) {
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, &renewed);
    EXPECT_CODE(DLOCK_EOWNER, dlock_extend(lock, 0, ERR));
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    EXPECT_CODE(DLOCK_EINVAL, dlock_extend(lock, 2 * RENEWED_LEASE_MS, ERR));
    EXPECT_CODE(DLOCK_EINVAL, dlock_extend(lock, -1, ERR));
    EXPECT_CODE(0, dlock_extend(lock, 0, ERR));
    EXPECT_CODE(0, dlock_extend(lock, RENEWED_LEASE_MS, ERR));
    sleep_ms(RENEWED_LEASE_MS * 3 / 2);
    EXPECT(dlock_held(lock));
    EXPECT_CODE(0, dlock_release(lock, ERR));
    EXPECT_FREE(suite.name);
}
