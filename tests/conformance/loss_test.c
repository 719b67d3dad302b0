/* Losing a lock: by a break, by the death of its holder, by a holder that is stopped. */
#include "actor.h"
#include "thread.h"

#include <stdatomic.h>

static atomic_int losses;

static void count_loss(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)lock;
    EXPECT(err && err->code == DLOCK_ELOST && err->message[0]);
    EXPECT(arg == &losses);
    atomic_fetch_add(&losses, 1);
}

static struct dlock_options reporting(void) {
    struct dlock_options options = options_with(LEASE_MS, 0);
    options.on_lost = count_loss;
    options.on_lost_arg = &losses;
    return options;
}

static void await_loss(dlock_lock *lock) {
    int64_t until = now_ms() + LEASE_MS + SLACK_MS;
    while (dlock_held(lock) || atomic_load(&losses) == 0) {
        if (now_ms() > until) FAIL("the loss is not reported (%s)", dlock_held(lock) ? "still held" : "no on_lost");
        sleep_ms(5);
    }
}

/* Breaks `name` as an operator does, with another client. */
static void take_away(const char *name) {
    SCOPED_CLIENT *operator_client = open_client();
    EXPECT_CODE(0, dlock_break(operator_client, name, ERR));
}

void case_break_is_reported(void) {
    SCOPED_CLIENT *client = open_client(), *other = open_client();
    struct dlock_options options = reporting();
    SCOPED_LOCK *lock = new_lock(client, suite.name, &options), *next = new_lock(other, suite.name, NULL);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    uint64_t fence = dlock_fence(lock);
    take_away(suite.name);
    EXPECT_CODE(0, dlock_acquire(next, PATIENCE_MS, ERR));
    EXPECT(dlock_fence(next) > fence);
    await_loss(lock);
    EXPECT(dlock_remaining_ms(lock) == 0);
    EXPECT(dlock_fence(lock) == fence);
    EXPECT_CODE(DLOCK_ELOST, dlock_release(lock, ERR));
    EXPECT(dlock_fence(lock) == 0);
    EXPECT_CODE(DLOCK_EOWNER, dlock_release(lock, ERR));
    EXPECT(dlock_held(next));
    EXPECT_TAKEN(suite.name);
    EXPECT_CODE(0, dlock_release(next, ERR));
    EXPECT_CODE(0, dlock_acquire(lock, SLACK_MS, ERR));
    EXPECT(dlock_fence(lock) > fence);
    EXPECT_CODE(0, dlock_release(lock, ERR));
    EXPECT(atomic_load(&losses) == 1);
}

/* Every counted acquisition gets ELOST once, and so does re-entry until all of them have. */
void case_break_counts_down(void) {
    SCOPED_CLIENT *client = open_client();
    struct dlock_options options = reporting();
    SCOPED_LOCK *lock = new_lock(client, suite.name, &options), *again = new_lock(client, suite.name, &options);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    EXPECT_CODE(0, dlock_acquire(again, 0, ERR));
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    take_away(suite.name);
    await_loss(lock);
    EXPECT(!dlock_held(again) && dlock_remaining_ms(again) == 0);
    EXPECT_CODE(DLOCK_ELOST, dlock_acquire(lock, 0, ERR));
    EXPECT_CODE(DLOCK_ELOST, dlock_release(lock, ERR));
    EXPECT_CODE(DLOCK_ELOST, dlock_acquire(again, SLACK_MS, ERR));
    EXPECT_CODE(DLOCK_ELOST, dlock_release(again, ERR));
    EXPECT_CODE(DLOCK_ELOST, dlock_acquire(lock, DLOCK_FOREVER, ERR));
    EXPECT_CODE(DLOCK_ELOST, dlock_release(lock, ERR));
    EXPECT_CODE(DLOCK_EOWNER, dlock_release(lock, ERR));
    EXPECT_CODE(0, dlock_acquire(lock, SLACK_MS, ERR));
    EXPECT(dlock_held(lock));
    EXPECT_CODE(0, dlock_release(lock, ERR));
    EXPECT_CODE(DLOCK_EOWNER, dlock_release(lock, ERR));
}

/* A loss that its owner has not noticed yet does not block the other threads of the client. */
void case_other_thread_after_loss(void) {
    SCOPED_CLIENT *client = open_client();
    struct dlock_options options = reporting();
    SCOPED_LOCK *lock = new_lock(client, suite.name, &options), *other = new_lock(client, suite.name, NULL);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    take_away(suite.name);
    await_loss(lock);
    struct call calls[] = {{.lock = lock, .timeout_ms = PATIENCE_MS}, {.lock = other, .timeout_ms = PATIENCE_MS}};
    run_threads(acquire_here, calls, sizeof *calls, 2);
    for (int i = 0; i < 2; i++) EXPECT(calls[i].code == 0 && calls[i].held);
    EXPECT_CODE(DLOCK_ELOST, dlock_release(lock, ERR));
    EXPECT_FREE(suite.name);
}

/* After a break that was not noticed, with the lock held by another client, a waiting thread does not get the ended
 * grant. */
void case_break_before_a_hand_over(void) {
    SCOPED_CLIENT *client = open_client(), *other = open_client();
    struct dlock_options options = options_with(LONG_LEASE_MS, 0);
    SCOPED_LOCK *lock = new_lock(client, suite.name, &options), *waiting = new_lock(client, suite.name, &options);
    options.owner = DLOCK_OWNER_HANDLE;
    SCOPED_LOCK *next = new_lock(other, suite.name, &options);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    struct call call = {.lock = waiting, .timeout_ms = PATIENCE_MS}, others = {.lock = next, .timeout_ms = PATIENCE_MS};
    pthread_t others_thread = start_thread(acquire_and_keep, &others);
    sleep_ms(MOMENT_MS); /* it waits by now */
    take_away(suite.name);
    pthread_join(others_thread, NULL);
    EXPECT(others.code == 0 && others.held);
    pthread_t thread = start_thread(acquire_and_keep, &call);
    sleep_ms(MOMENT_MS);                  /* it waits, and the last renewal is not recent any more */
    int code = dlock_release(lock, NULL); /* where the server notifies holders it is a loss already */
    EXPECT(code == 0 || code == DLOCK_ELOST);
    sleep_ms(MOMENT_MS);
    int64_t released_us = now_us();
    EXPECT_CODE(0, dlock_release(next, ERR));
    pthread_join(thread, NULL);
    EXPECT(call.code == 0 && call.held);
    EXPECT(call.fence > others.fence);
    EXPECT(call.at_us >= released_us);
}

void case_holder_killed(void) {
    struct dlock_options options = options_with(LEASE_MS, 0);
    struct actor holder, waiter;
    actor_start(&holder, suite.name, &options);
    actor_start(&waiter, suite.name, &options);
    uint64_t fence = ACTOR_DO(0, &holder, ACTOR_ACQUIRE, 0).fence;
    actor_begin(&waiter, ACTOR_ACQUIRE, PATIENCE_MS);
    struct actor_report report;
    EXPECT(!actor_poll(&waiter, 300, &report));
    int64_t killed_us = now_us();
    kill_process(holder.pid);
    report = ACTOR_FINISH(0, &waiter);
    EXPECT(report.held && report.fence > fence);
    EXPECT_BETWEEN(0, LEASE_MS + SLACK_MS, (report.at_us - killed_us) / 1000);
    actor_end(&waiter);
}

/* Stops the holder beyond its lease, so that a client that asks with the options `asked` gets the lock; then checks
 * what the holder finds when it continues. Where a grant ends only with its process, a stopped holder keeps it. */
static void stop_holder(struct dlock_options held, const struct dlock_options *asked, enum actor_verb first_look,
                        int wanted_code) {
    struct actor holder;
    actor_start(&holder, suite.name, &held);
    struct actor_report granted = ACTOR_DO(0, &holder, ACTOR_ACQUIRE, 0);
    dlock_client *client = open_client();
    dlock_lock *lock = new_lock(client, suite.name, asked);
    stop_process(holder.pid);
    if (granted.remaining_ms == DLOCK_FOREVER) {
        EXPECT_CODE(DLOCK_ETIMEDOUT, dlock_acquire(lock, LEASE_MS * 2, ERR));
        continue_process(holder.pid);
        EXPECT(ACTOR_DO(0, &holder, ACTOR_LOOK, 0).held);
        ACTOR_DO(0, &holder, ACTOR_RELEASE, 0);
    } else {
        EXPECT_CODE(0, dlock_acquire(lock, LEASE_MS + SLACK_MS, ERR));
        EXPECT(dlock_fence(lock) > granted.fence);
        sleep_ms(LEASE_MS);
        actor_begin(&holder, first_look, 0); /* it waits in the pipe, as the first thing for the holder to do */
        continue_process(holder.pid);
        EXPECT(!ACTOR_FINISH(wanted_code, &holder).held);
        sleep_ms(LEASE_MS);
        struct actor_report later = ACTOR_DO(0, &holder, ACTOR_LOOK, 0);
        EXPECT(!later.held && later.remaining_ms == 0);
        EXPECT(later.lost == 1 || (later.lost == 0 && first_look == ACTOR_RELEASE)); /* which may come before on_lost */
        ACTOR_DO(first_look == ACTOR_RELEASE ? DLOCK_EOWNER : DLOCK_ELOST, &holder, ACTOR_RELEASE, 0);
        EXPECT(dlock_held(lock));
        if (held.mode != DLOCK_PERMIT) EXPECT_TAKEN(suite.name);
    }
    dlock_free(lock);
    dlock_close(client);
    ACTOR_DO(0, &holder, ACTOR_ACQUIRE, PATIENCE_MS);
    actor_end(&holder);
}

void case_holder_stopped(void) {
    stop_holder(options_with(LEASE_MS, 0), NULL, ACTOR_LOOK, 0);
}

void case_holder_stopped_release(void) {
    stop_holder(options_with(LEASE_MS, 0), NULL, ACTOR_RELEASE, DLOCK_ELOST);
}

void case_reader_stopped(void) {
    stop_holder(options_for(DLOCK_SHARED, 0, LEASE_MS), NULL, ACTOR_LOOK, 0);
}

void case_permit_holder_stopped(void) {
    struct dlock_options permit = options_for(DLOCK_PERMIT, 1, LEASE_MS);
    stop_holder(permit, &permit, ACTOR_RELEASE, DLOCK_ELOST);
}
