/* Actors: the side that gives orders, and the process that carries them out. */
#include "actor.h"
#include "thread.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct order {
    enum actor_verb verb;
    int64_t argument;
};

/* Parameters of a child. */
struct start {
    const char *name;
    const struct dlock_options *options;
    int orders, reports;
};

static void count_loss(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    atomic_int *losses = arg;
    (void)lock;
    if (!err || err->code != DLOCK_ELOST) FAIL("on_lost without DLOCK_ELOST");
    atomic_fetch_add(losses, 1);
}

static bool read_all(int fd, void *data, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t got = read(fd, (char *)data + done, size - done);
        if (got == 0 || (got < 0 && errno != EINTR)) return false;
        if (got > 0) done += (size_t)got;
    }
    return true;
}

static void write_all(int fd, const void *data, size_t size) {
    if (write(fd, data, size) != (ssize_t)size) FAIL("cannot write to a pipe: %s", strerror(errno));
}

/* ---- the child --------------------------------------------------------------------------------------------------- */

/* Acquires in one thread, while another one awaits the order to cancel that. */
static int wait_until_cancelled(dlock_lock *lock, int orders) {
    struct call wait = {.lock = lock, .timeout_ms = DLOCK_FOREVER};
    pthread_t thread = start_thread(acquire_and_keep, &wait);
    struct order order;
    if (!read_all(orders, &order, sizeof order) || order.verb != ACTOR_CANCEL) FAIL("an order that does not cancel");
    EXPECT_CODE(0, dlock_cancel(lock));
    join_cancelled(lock, thread);
    return wait.code;
}

static int64_t watch_until_lost(dlock_lock *lock, int64_t for_ms) {
    int64_t until = now_us() + for_ms * 1000, last = 0;
    for (;;) {
        int64_t moment = now_us();
        if (!dlock_held(lock)) return last;
        last = moment;
        if (moment > until) return last;
        sleep_ms(1);
    }
}

static int hold_for(dlock_lock *lock, int64_t ms, struct dlock_error *err) {
    int code = dlock_acquire(lock, PATIENCE_MS, err);
    if (code != 0) return code;
    sleep_ms(ms);
    return dlock_release(lock, err);
}

static int carry_out(dlock_lock *lock, const struct order *order, int orders, struct dlock_error *err,
                     struct actor_report *report) {
    switch (order->verb) {
    case ACTOR_ACQUIRE: return dlock_acquire(lock, order->argument, err);
    case ACTOR_ACQUIRE_AND_DIE:
        if (dlock_acquire(lock, order->argument, err) == 0) raise(SIGKILL);
        return err->code;
    case ACTOR_RELEASE: return dlock_release(lock, err);
    case ACTOR_DOWNGRADE: return dlock_downgrade(lock, err);
    case ACTOR_WAIT_UNTIL_CANCELLED: return wait_until_cancelled(lock, orders);
    case ACTOR_WATCH: report->last_held_us = watch_until_lost(lock, order->argument); return 0;
    case ACTOR_HOLD: return hold_for(lock, order->argument, err);
    case ACTOR_CANCEL:
    case ACTOR_LOOK:
    case ACTOR_END: break;
    }
    return 0;
}

static void act(void *arg) {
    const struct start *start = arg;
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    if (start->options) options = *start->options;
    atomic_int losses = 0;
    options.on_lost = count_loss;
    options.on_lost_arg = &losses;
    dlock_client *client = open_client();
    dlock_lock *lock = new_lock(client, start->name, &options);
    struct order order;
    while (read_all(start->orders, &order, sizeof order) && order.verb != ACTOR_END) {
        struct dlock_error err = {0};
        struct actor_report report;
        memset(&report, 0, sizeof report);
        report.code = carry_out(lock, &order, start->orders, &err, &report);
        report.at_us = now_us();
        report.held = dlock_held(lock);
        report.remaining_ms = dlock_remaining_ms(lock);
        report.fence = dlock_fence(lock);
        report.lost = atomic_load(&losses);
        if (report.code != 0) snprintf(report.message, sizeof report.message, "%.150s", err.message);
        write_all(start->reports, &report, sizeof report);
    }
    dlock_free(lock);
    dlock_close(client);
    close(start->orders);
    close(start->reports);
}

/* ---- the case ---------------------------------------------------------------------------------------------------- */

void actor_start(struct actor *actor, const char *name, const struct dlock_options *options) {
    int orders[2], reports[2];
    if (pipe(orders) != 0 || pipe(reports) != 0) FAIL("pipe: %s", strerror(errno));
    struct start start = {name, options, orders[0], reports[1]};
    actor->pid = start_process(act, &start, sizeof start);
    actor->orders = orders[1];
    actor->reports = reports[0];
    if (actor->pid > 0) { /* a child process has its own copies */
        close(orders[0]);
        close(reports[1]);
    }
    actor_begin(actor, ACTOR_LOOK, 0);
    ACTOR_FINISH(0, actor);
}

void actor_begin(struct actor *actor, enum actor_verb verb, int64_t argument) {
    struct order order;
    memset(&order, 0, sizeof order);
    order.verb = verb;
    order.argument = argument;
    write_all(actor->orders, &order, sizeof order);
}

bool actor_poll(struct actor *actor, int64_t ms, struct actor_report *report) {
    struct pollfd wait = {actor->reports, POLLIN, 0};
    int ready = poll(&wait, 1, (int)ms);
    if (ready <= 0) return false;
    if (!read_all(actor->reports, report, sizeof *report)) FAIL("an actor has died");
    return true;
}

struct actor_report actor_finish(const char *file, int line, int wanted, struct actor *actor) {
    struct actor_report report;
    if (!actor_poll(actor, PATIENCE_MS, &report)) fail_at(file, line, "an actor does not answer");
    if (report.code != wanted)
        fail_at(file, line, "an actor reports \"%s\" instead of \"%s\": %s", dlock_strerror(report.code),
                dlock_strerror(wanted), report.message);
    return report;
}

void expect_waiting(const char *file, int line, struct actor *actor, int64_t ms) {
    struct actor_report report;
    if (actor_poll(actor, ms, &report))
        fail_at(file, line, "one that should wait reports \"%s\"", dlock_strerror(report.code));
}

static int take_waiters(const struct dlock_info *info, void *arg) {
    *(uint32_t *)arg = info->waiters;
    return 0;
}

void await_waiters(dlock_client *watcher, const char *name, uint32_t n) {
    if (!(suite.caps & DLOCK_CAP_INSPECT) || !(suite.caps & DLOCK_CAP_QUEUE)) {
        sleep_ms(suite.caps & DLOCK_CAP_QUEUE ? 1000 : 200); /* their order counts, and nothing else tells */
        return;
    }
    int64_t until = now_ms() + PATIENCE_MS;
    for (uint32_t waiters = 0; waiters != n;) {
        if (now_ms() > until) FAIL("%u waiters are queued instead of %u", (unsigned)waiters, (unsigned)n);
        EXPECT_CODE(0, dlock_inspect(watcher, name, take_waiters, &waiters, ERR));
        if (waiters != n) sleep_ms(2);
    }
}

int64_t notice_ms(void) {
    return suite.caps & DLOCK_CAP_SESSION ? PATIENCE_MS : SLACK_MS;
}

void actor_end(struct actor *actor) {
    actor_begin(actor, ACTOR_END, 0);
    join_process(actor->pid);
    close(actor->orders);
    close(actor->reports);
}
