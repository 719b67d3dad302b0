/* Waiting in turn, and waiters that die, stop or give up. */
#include "actor.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { WAITERS = 20 };

/* In shared memory: which actors were granted the lock, in order. */
struct order_of_grants {
    atomic_int n;
    atomic_int who[WAITERS];
    _Atomic uint64_t fences[WAITERS];
};
static struct order_of_grants *grants;

static void note_grant(int who, uint64_t fence) {
    int at = atomic_fetch_add(&grants->n, 1);
    if (at >= WAITERS) FAIL("more grants than waiters");
    atomic_store(&grants->who[at], who);
    atomic_store(&grants->fences[at], fence);
}

static void expect_arrival_order(uint64_t first_fence) {
    uint64_t fence = first_fence;
    EXPECT_BETWEEN(WAITERS, WAITERS, atomic_load(&grants->n));
    for (int i = 0; i < WAITERS; i++) {
        if (atomic_load(&grants->who[i]) != i)
            FAIL("waiter %d was served as number %d", atomic_load(&grants->who[i]), i);
        EXPECT(atomic_load(&grants->fences[i]) > fence);
        fence = atomic_load(&grants->fences[i]);
    }
}

struct waiter {
    int number;
    sem_t *go; /* in shared memory: the signal to begin to wait */
    dlock_client *client;
};

static void wait_in_line(const struct waiter *waiter) {
    SCOPED_LOCK *lock = new_lock(waiter->client, suite.name, NULL);
    EXPECT_CODE(0, dlock_acquire(lock, PATIENCE_MS, ERR));
    note_grant(waiter->number, dlock_fence(lock));
    EXPECT_CODE(0, dlock_release(lock, ERR));
}

static void waiting_process(void *arg) {
    struct waiter *waiter = arg;
    waiter->client = open_client();
    signal_wait(waiter->go);
    wait_in_line(waiter);
    dlock_close(waiter->client);
}

static void *waiting_thread(void *arg) {
    wait_in_line(arg);
    return NULL;
}

void case_fifo_processes(void) {
    grants = shared_memory(sizeof *grants);
    sem_t *go = shared_memory(WAITERS * sizeof *go);
    pid_t pids[WAITERS];
    for (int i = 0; i < WAITERS; i++) {
        struct waiter waiter = {i, &go[i], NULL};
        signal_init(&go[i]);
        pids[i] = start_process(waiting_process, &waiter, sizeof waiter);
    }
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, NULL);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    uint64_t fence = dlock_fence(lock);
    for (int i = 0; i < WAITERS; i++) {
        sem_post(&go[i]);
        await_waiters(client, suite.name, (uint32_t)i + 1);
    }
    EXPECT(atomic_load(&grants->n) == 0);
    EXPECT_CODE(0, dlock_release(lock, ERR));
    for (int i = 0; i < WAITERS; i++) join_process(pids[i]);
    expect_arrival_order(fence);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
}

void case_fifo_threads(void) {
    grants = shared_memory(sizeof *grants);
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, NULL);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    uint64_t fence = dlock_fence(lock);
    pthread_t threads[WAITERS];
    struct waiter waiters[WAITERS];
    for (int i = 0; i < WAITERS; i++) {
        waiters[i] = (struct waiter){i, NULL, open_client()};
        threads[i] = start_thread(waiting_thread, &waiters[i]);
        await_waiters(client, suite.name, (uint32_t)i + 1);
    }
    EXPECT(atomic_load(&grants->n) == 0);
    EXPECT_CODE(0, dlock_release(lock, ERR));
    for (int i = 0; i < WAITERS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < WAITERS; i++) dlock_close(waiters[i].client);
    expect_arrival_order(fence);
}

/* A holder that releases and acquires again while another client waits must wait its turn. */
void case_nobody_barges(void) {
    SCOPED_ACTOR waiter;
    actor_start(&waiter, suite.name, NULL);
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, NULL);
    for (int i = 0; i < 10; i++) {
        EXPECT_CODE(0, dlock_acquire(lock, PATIENCE_MS, ERR));
        actor_begin(&waiter, ACTOR_ACQUIRE, PATIENCE_MS);
        await_waiters(client, suite.name, 1);
        EXPECT_CODE(0, dlock_release(lock, ERR));
        EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(lock, 0, ERR));
        ACTOR_FINISH(0, &waiter);
        ACTOR_DO(0, &waiter, ACTOR_RELEASE, 0);
    }
}

void case_dead_waiters_are_skipped(void) {
    enum { DEAD = 5 };
    struct dlock_options options = options_with(LONG_LEASE_MS, 0);
    struct actor dead[DEAD], last;
    for (int i = 0; i < DEAD; i++) actor_start(&dead[i], suite.name, &options);
    actor_start(&last, suite.name, &options);
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, &options);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    for (int i = 0; i < DEAD; i++) {
        actor_begin(&dead[i], ACTOR_ACQUIRE, DLOCK_FOREVER);
        await_waiters(client, suite.name, (uint32_t)i + 1);
    }
    actor_begin(&last, ACTOR_ACQUIRE, DLOCK_FOREVER);
    await_waiters(client, suite.name, DEAD + 1);
    for (int i = 0; i < DEAD; i++) kill_process(dead[i].pid);
    sleep_ms(200); /* let the server see their connections end */
    int64_t begun = now_ms();
    EXPECT_CODE(0, dlock_release(lock, ERR));
    struct actor_report report = ACTOR_FINISH(0, &last);
    EXPECT(report.held);
    EXPECT_BETWEEN(0, notice_ms(), report.at_us / 1000 - begun);
    ACTOR_DO(0, &last, ACTOR_RELEASE, 0);
    EXPECT_CODE(0, dlock_acquire(lock, SLACK_MS, ERR));
    actor_end(&last);
}

/* A hand-over lasts min(lease, 3 s) until its first renewal: the second waiter waits no longer for a dead first one. On
 * Redis and MySQL until the waiter has confirmed it, since a message proves nothing there: this one has, and dies as a holder. */
void case_first_waiter_killed_when_granted(void) {
    enum { HAND_OVER_MS = 3000 };
    struct dlock_options options = options_with(LEASE_MS * 10, 0);
    struct actor first, second;
    actor_start(&first, suite.name, &options);
    actor_start(&second, suite.name, &options);
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, &options);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    actor_begin(&first, ACTOR_ACQUIRE_AND_DIE, DLOCK_FOREVER);
    await_waiters(client, suite.name, 1);
    actor_begin(&second, ACTOR_ACQUIRE, DLOCK_FOREVER);
    await_waiters(client, suite.name, 2);
    int64_t begun = now_ms();
    EXPECT_CODE(0, dlock_release(lock, ERR));
    struct actor_report report = ACTOR_FINISH(0, &second);
    EXPECT(report.held);
    printf("# the second waiter waited %d ms for the dead first\n", (int)(report.at_us / 1000 - begun));
    bool asked = strncmp(suite.backend, "redis", 5) == 0 /* also rediss and clusters */ ||
                 strncmp(suite.backend, "mysql", 5) == 0;
    bool short_grant = (suite.caps & DLOCK_CAP_QUEUE) && !(suite.caps & DLOCK_CAP_SESSION) && !asked;
    EXPECT_BETWEEN(0, (short_grant ? HAND_OVER_MS : LEASE_MS * 10) + SLACK_MS, report.at_us / 1000 - begun);
    if (suite.caps & DLOCK_CAP_QUEUE) kill_process(first.pid);
    ACTOR_DO(0, &second, ACTOR_RELEASE, 0);
    actor_end(&second);
}

/* The last of many waiters has moved up when the one before it dies with the lock: it waits no longer than for that
 * lease, whatever its place was when it lined up. */
void case_holder_killed_with_a_long_queue(void) {
    enum { LINE = 8 };
    struct dlock_options options = options_with(RENEWED_LEASE_MS, 0);
    struct actor waiters[LINE];
    for (int i = 0; i < LINE; i++) actor_start(&waiters[i], suite.name, &options);
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, &options);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    for (int i = 0; i < LINE; i++) {
        actor_begin(&waiters[i], i == LINE - 2 ? ACTOR_ACQUIRE_AND_DIE : ACTOR_ACQUIRE, DLOCK_FOREVER);
        await_waiters(client, suite.name, (uint32_t)i + 1);
    }
    EXPECT_CODE(0, dlock_release(lock, ERR));
    uint64_t fence = 0;
    int64_t begun = 0; /* before the one that dies can have the lock */
    for (int i = 0; i < LINE - 2; i++) {
        fence = ACTOR_FINISH(0, &waiters[i]).fence;
        begun = now_ms();
        ACTOR_DO(0, &waiters[i], ACTOR_RELEASE, 0);
    }
    struct actor_report report = ACTOR_FINISH(0, &waiters[LINE - 1]);
    EXPECT(report.fence > fence);
    EXPECT_BETWEEN(0, RENEWED_LEASE_MS + SLACK_MS, report.at_us / 1000 - begun);
    kill_process(waiters[LINE - 2].pid);
    for (int i = 0; i < LINE - 2; i++) actor_end(&waiters[i]);
    actor_end(&waiters[LINE - 1]);
}

void case_stopped_waiter_reports_no_stale_grant(void) {
    struct dlock_options options = options_with(LONG_LEASE_MS, 0), short_lease = options_with(LEASE_MS, 0);
    SCOPED_ACTOR stopped, other;
    actor_start(&stopped, suite.name, &short_lease);
    actor_start(&other, suite.name, &options);
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, &options);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    actor_begin(&stopped, ACTOR_ACQUIRE, PATIENCE_MS);
    await_waiters(client, suite.name, 1);
    stop_process(stopped.pid);
    actor_begin(&other, ACTOR_ACQUIRE, PATIENCE_MS);
    await_waiters(client, suite.name, 2);
    EXPECT_CODE(0, dlock_release(lock, ERR));
    uint64_t fence = ACTOR_FINISH(0, &other).fence;
    sleep_ms(LEASE_MS * 3 / 2);
    continue_process(stopped.pid);
    struct actor_report report;
    if (actor_poll(&stopped, LEASE_MS, &report))
        FAIL("a waiter that was stopped reports \"%s\" while another holds", dlock_strerror(report.code));
    EXPECT(ACTOR_DO(0, &other, ACTOR_LOOK, 0).held);
    ACTOR_DO(0, &other, ACTOR_RELEASE, 0);
    report = ACTOR_FINISH(0, &stopped);
    EXPECT(report.held && report.fence > fence);
    EXPECT_TAKEN(suite.name);
    ACTOR_DO(0, &stopped, ACTOR_RELEASE, 0);
    EXPECT_CODE(0, dlock_acquire(lock, SLACK_MS, ERR));
}

/* A waiter that gives up keeps nothing, and delays no waiter behind it. All is held by one client, `times` times. */
static void waiter_gives_up(struct dlock_options options, int times) {
    SCOPED_ACTOR impatient, patient;
    actor_start(&impatient, suite.name, &options);
    actor_start(&patient, suite.name, &options);
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, &options);
    for (int i = 0; i < times; i++) EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    for (int way = 0; way < 2; way++) {
        actor_begin(&impatient, way == 0 ? ACTOR_ACQUIRE : ACTOR_WAIT_UNTIL_CANCELLED, GIVES_UP_MS);
        await_waiters(client, suite.name, 1);
        actor_begin(&patient, ACTOR_ACQUIRE, PATIENCE_MS);
        if (way == 1) actor_begin(&impatient, ACTOR_CANCEL, 0);
        ACTOR_FINISH(way == 0 ? DLOCK_ETIMEDOUT : DLOCK_ECANCELED, &impatient);
        await_waiters(client, suite.name, 1);
        int64_t begun = now_ms();
        EXPECT_CODE(0, dlock_release(lock, ERR));
        EXPECT_BETWEEN(0, SLACK_MS, ACTOR_FINISH(0, &patient).at_us / 1000 - begun);
        EXPECT(!ACTOR_DO(0, &impatient, ACTOR_LOOK, 0).held);
        ACTOR_DO(0, &patient, ACTOR_RELEASE, 0);
        EXPECT_CODE(0, dlock_acquire(lock, SLACK_MS, ERR));
    }
}

void case_timed_out_waiter_leaves_the_queue(void) {
    waiter_gives_up(options_with(LONG_LEASE_MS, 0), 1);
}

void case_permit_waiter_gives_up(void) {
    enum { LIMIT = 3 };
    waiter_gives_up(options_for(DLOCK_PERMIT, LIMIT, LONG_LEASE_MS), LIMIT);
}
