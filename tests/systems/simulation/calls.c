/* The calls of dlock.h, with checks of what they answer: see calls.h. */
#include "calls.h"

#include "checker.h"
#include "memory.h"

#include "state/name.h"

#include <stdio.h>

enum { SLACK_US = 100000, BOARD = 8 };

const struct sim_plan *sim_plan;
static char board[BOARD][DLOCK_TICKET_MAX + 1]; /* tickets: grants on their way from one process to another */
static unsigned board_name[BOARD];

enum dlock_mode sim_mode_of(unsigned name) {
    return name % 3 == 2 ? DLOCK_PERMIT : name % 3 == 1 && sim_chance(600) ? DLOCK_SHARED : DLOCK_EXCLUSIVE;
}

static uint32_t limit_of(enum dlock_mode mode) {
    return mode == DLOCK_PERMIT ? 2 : 0;
}

static int64_t draw_timeout(void) {
    switch (sim_random() % 5) {
    case 0: return 0;
    case 1: return sim_between(1, 50);
    case 2: return sim_between(50, 1000);
    case 3: return sim_between(1000, 10000);
    default: return -1;
    }
}

void sim_nap(int64_t most_us) {
    sim_sleep_us(sim_chance(500) ? sim_between(0, 2000) : sim_between(0, most_us));
}

bool sim_hurries(const struct sim_app *app) {
    return sim_now_us() < app->hurry_until_us;
}

void sim_pace(const struct sim_app *app, int64_t most_us) {
    if (!sim_hurries(app)) sim_nap(most_us);
}

void sim_expect(const char *what, int rc) {
    switch (rc) {
    case 0:
    case DLOCK_ETIMEDOUT:
    case DLOCK_EBUSY:
    case DLOCK_EUNAVAILABLE:
    case DLOCK_ECANCELED:
    case DLOCK_ELOST:
    case DLOCK_ENOTREADY:
    case DLOCK_ENOMEM: return;
    default: sim_fail("%s answers %d, %s", what, rc, dlock_strerror(rc));
    }
}

/* As sim_expect(), for calls about a grant that is owned by a handle: another thread may have released it. */
static void expect_held(const char *what, const dlock_lock *lock, int rc) {
    if (rc != DLOCK_EOWNER || lock->owner != DLOCK_OWNER_HANDLE) sim_expect(what, rc);
}

static void lost(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    struct dlock_error again;
    (void)arg;
    if (dlock_fence(lock) == 0 || dlock_lost(lock, &again) <= 0 || strcmp(again.message, err->message) != 0)
        sim_fail("on_lost does not show the grant: %s", err->message);
    if (sim_chance(sim_plan->slow_callbacks)) sim_nap(3000000);
}

/* ---- one acquisition ---- */

static void check_deadline(const struct sim_app *app, const char *what, int64_t from_us, int64_t timeout_ms,
                           unsigned stops) {
    if (timeout_ms < 0 || app->host.stops != stops || sim_plan->allocations) return;
    if (timeout_ms == 0) timeout_ms = app->timeout_ms;
    int64_t late_us = sim_now_us() - from_us - timeout_ms * 1010 - SLACK_US;
    if (late_us > 0) sim_fail("%s with %lld ms ends %lld us late", what, (long long)timeout_ms, (long long)late_us);
}

dlock_lock *sim_handle_new(struct sim_app *app, unsigned name, enum dlock_mode mode, enum dlock_owner owner) {
    char text[16];
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    dlock_lock *lock = NULL;
    snprintf(text, sizeof text, "n%u", name);
    options.mode = mode;
    options.limit = limit_of(mode);
    options.owner = owner;
    options.on_lost = sim_chance(500) ? lost : NULL;
    if (mode != DLOCK_SHARED && sim_chance(sim_plan->fixed)) options.flags = DLOCK_FIXED_LEASE;
    if (sim_chance(sim_plan->shorter)) options.lease_ms = sim_between(DLOCK_LEASE_MIN_MS, app->lease_ms);
    int rc = dlock_new(app->client, text, &options, &lock, NULL);
    sim_expect("dlock_new", rc);
    return lock;
}

static void downgrade(struct sim_app *app, dlock_lock *lock, unsigned hold) {
    int64_t from_us = sim_now_us();
    int rc = dlock_downgrade(lock, NULL);
    sim_say("downgrade %s: %s", app->name, dlock_strerror(rc));
    if (rc == 0) sim_held_downgraded(hold, from_us);
    expect_held("dlock_downgrade", lock, rc);
}

/* Copies a ticket to the board, or from it, which is not the core's work. */
static void copy(char *to, const char *from) {
    SIM_UNSEEN;
    memcpy(to, from, sizeof *board);
}

static void export(struct sim_app *app, dlock_lock *lock, unsigned name, unsigned hold) {
    size_t at = sim_random() % BOARD;
    char ticket[DLOCK_TICKET_MAX + 1];
    if (*board[at]) return;
    int rc = dlock_export(lock, ticket, sizeof ticket, NULL);
    if (rc != DLOCK_ENOTSUP) expect_held("dlock_export", lock, rc);
    if (rc != 0) return;
    sim_held_end(hold);
    sim_exported(ticket);
    sim_say("%s exports n%u", app->name, name);
    copy(board[at], ticket);
    board_name[at] = name;
}

static void extend(struct sim_app *app, dlock_lock *lock) {
    int64_t lease_ms = sim_between(DLOCK_LEASE_MIN_MS, app->lease_ms);
    int rc = dlock_extend(lock, lease_ms, NULL);
    sim_say("extend by %lld ms: %s", (long long)lease_ms, dlock_strerror(rc));
    if (rc != DLOCK_ENOTSUP && rc != DLOCK_EINVAL) expect_held("dlock_extend", lock, rc);
}

/* Checks that dlock_held agrees with what the core believes. */
static void check_shown(dlock_lock *lock, unsigned hold) {
    if (sim_plan->breaks) return; /* after dlock_break the holder believes in its grant until the next renewal */
    bool before = sim_held_until(hold) > sim_now_us(), shown = dlock_held(lock),
         after = sim_held_until(hold) > sim_now_us();
    if (before == after && shown != after)
        sim_fail("dlock_held says %s of a lock that is %s", shown ? "yes" : "no", after ? "held" : "not held");
}

/* Checks that the thread was woken for the grant. */
static void check_prompt(unsigned hold) {
    int64_t since_us = sim_held_since(hold), late_us = since_us ? sim_now_us() - since_us : 0;
    if (late_us > SLACK_US) sim_fail("a thread is told of its grant %lld us late", (long long)late_us);
}

/* Uses the lock, which the caller holds, and releases it. */
static void hold(struct sim_app *app, dlock_lock *lock, unsigned name, enum dlock_mode mode, enum dlock_owner owner,
                 int64_t asked_us, unsigned stops) {
    unsigned number = sim_held_begin(lock, name, asked_us), again = 0;
    if (app->host.stops == stops) check_prompt(number);
    sim_say("holds n%u, fence %llu", name, (unsigned long long)dlock_fence(lock));
    bool is_fixed = lock->flags & DLOCK_FIXED_LEASE;
    sim_pace(app, sim_chance(is_fixed ? 300 : 100) ? app->lease_ms * 2500 : sim_plan->hold_ms * 1000);
    check_shown(lock, number);
    if (owner == DLOCK_OWNER_THREAD && mode == DLOCK_EXCLUSIVE && sim_chance(100)) {
        int rc = dlock_acquire(lock, draw_timeout(), NULL);
        sim_expect("dlock_acquire, again", rc);
        again = rc == 0;
    }
    if (!again && mode == DLOCK_EXCLUSIVE && sim_chance(100)) downgrade(app, lock, number);
    for (int i = is_fixed ? 4 : 1; i > 0 && sim_chance(i > 1 ? 700 : 150); i--) {
        extend(app, lock);
        if (i > 1) sim_pace(app, 100000);
    }
    check_shown(lock, number);
    if (sim_chance(50)) dlock_remaining_ms(lock);
    sim_pace(app, 20000);
    for (; again > 0; again--) sim_expect("dlock_release, of two", dlock_release(lock, NULL));
    if (sim_chance(50)) export(app, lock, name, number);
    int64_t until_us = sim_held_until(number);
    sim_held_end(number);
    int rc = dlock_release(lock, NULL);
    sim_say("released n%u: %s", name, dlock_strerror(rc));
    /* Whether a release that says "lost" before the grant's end is a fault: the server keeps the grant, whatever
     * breaks, and what is answered was not executed before, as a copy. */
    bool kept = !sim_plan->breaks && !sim_plan->restarts && !sim_plan->faults.twice &&
                !(sim_plan->kind->caps & DLOCK_CAP_SESSION);
    if (rc == DLOCK_ELOST && kept && sim_now_us() < until_us)
        sim_fail("n%u: its release says that it was lost, %lld us before its end", name,
                 (long long)(until_us - sim_now_us()));
}

void sim_once(struct sim_app *app, dlock_lock *lock, unsigned name, enum dlock_mode mode, enum dlock_owner owner) {
    int64_t timeout_ms = draw_timeout(), from_us = sim_now_us();
    unsigned stops = app->host.stops;
    struct dlock_error err;
    sim_say("acquire n%u, mode %d, %lld ms", name, (int)mode, (long long)timeout_ms);
    int rc = dlock_acquire(lock, timeout_ms, &err);
    if (rc == DLOCK_EDEADLK || (rc == DLOCK_EINVAL && owner == DLOCK_OWNER_HANDLE)) return;
    if (rc != 0) sim_say("acquire n%u: %s", name, err.message);
    sim_expect("dlock_acquire", rc);
    check_deadline(app, "dlock_acquire", from_us, timeout_ms, stops);
    if (rc == 0) hold(app, lock, name, mode, owner, from_us, stops);
}

void sim_several(struct sim_app *app) {
    dlock_lock *locks[SIM_NAMES];
    unsigned numbers[SIM_NAMES], n = 0;
    for (unsigned name = 0; name < sim_plan->names; name++)
        if (sim_chance(500) && (locks[n] = sim_handle_new(app, name, sim_mode_of(name), DLOCK_OWNER_THREAD)))
            numbers[n++] = name;
    int64_t timeout_ms = draw_timeout(), from_us = sim_now_us();
    unsigned stops = app->host.stops;
    int rc = n == 0 ? DLOCK_ENOMEM : dlock_acquire_all(locks, n, timeout_ms, NULL);
    sim_say("acquire_all of %u: %s", n, dlock_strerror(rc));
    sim_expect("dlock_acquire_all", rc);
    check_deadline(app, "dlock_acquire_all", from_us, timeout_ms, stops);
    if (rc == 0) {
        unsigned held[SIM_NAMES];
        for (unsigned i = 0; i < n; i++) held[i] = sim_held_begin(locks[i], numbers[i], from_us);
        sim_pace(app, 30000);
        for (unsigned i = 0; i < n; i++) sim_held_end(held[i]);
        if (sim_chance(800)) sim_expect("dlock_release_all", dlock_release_all(locks, n, NULL));
    }
    for (unsigned i = 0; i < n; i++) dlock_free(locks[i]);
}

/* ---- asynchronous calls ---- */

struct pending {
    bool done;
    int rc;
};

static void ended(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    struct pending *pending = arg;
    (void)lock;
    pending->rc = err ? err->code : 0;
    pending->done = true;
    sim_wake(pending, 1, 1);
    if (sim_chance(sim_plan->slow_callbacks)) sim_nap(1000000);
}

static int await(struct pending *pending) {
    while (!pending->done) sim_wait(pending, 1, SIM_NEVER);
    return pending->rc;
}

void sim_unattended(struct sim_app *app, unsigned name) {
    enum dlock_mode mode = sim_mode_of(name);
    dlock_lock *lock = sim_handle_new(app, name, mode, DLOCK_OWNER_HANDLE);
    struct pending pending = {false, 0};
    if (!lock) return;
    int64_t timeout_ms = draw_timeout(), from_us = sim_now_us();
    unsigned stops = app->host.stops;
    int rc = dlock_acquire_async(lock, timeout_ms, ended, &pending);
    sim_say("acquire_async n%u: %s", name, dlock_strerror(rc));
    if (rc == 0 && sim_chance(300)) {
        sim_pace(app, 20000);
        dlock_cancel(lock);
    }
    if (rc == 0) rc = await(&pending);
    sim_expect("dlock_acquire_async", rc);
    if (!sim_plan->slow_callbacks) check_deadline(app, "dlock_acquire_async", from_us, timeout_ms, stops);
    if (rc == 0) {
        unsigned held = sim_held_begin(lock, name, from_us);
        sim_pace(app, 30000);
        sim_held_end(held);
        pending.done = false;
        if (sim_chance(700) && dlock_release_async(lock, ended, &pending) == 0) await(&pending);
    }
    dlock_free(lock);
}

/* ---- free and cancel during a wait ---- */

static void *wait_in_vain(void *arg) {
    int rc = dlock_acquire(arg, -1, NULL);
    sim_expect("dlock_acquire of what is freed", rc);
    return NULL;
}

void sim_freed_meanwhile(struct sim_app *app, unsigned name) {
    dlock_lock *lock = sim_handle_new(app, name, sim_mode_of(name), DLOCK_OWNER_HANDLE);
    unsigned thread = lock ? sim_start(&app->host, wait_in_vain, lock) : 0;
    if (!thread) {
        dlock_free(lock);
        return;
    }
    while (!sim_ended(thread) && lock->inside == 0) sim_sleep_us(100);
    sim_nap(100000);
    sim_say("frees n%u", name);
    int64_t from_us = sim_now_us();
    unsigned stops = app->host.stops;
    dlock_free(lock);
    if (!sim_plan->slow_callbacks) check_deadline(app, "dlock_free", from_us, 0, stops);
    sim_join(thread, SIM_NEVER);
}

void sim_take_ticket(struct sim_app *app) {
    size_t at = sim_random() % BOARD;
    if (!*board[at]) return;
    char ticket[sizeof board[0]];
    unsigned name = board_name[at];
    copy(ticket, board[at]);
    *board[at] = '\0';
    dlock_lock *lock = NULL;
    struct dlock_error err;
    int rc = dlock_import(app->client, ticket, NULL, &lock, &err);
    sim_say("import of n%u: %s", name, rc ? err.message : "done");
    if (rc == DLOCK_EINVAL)
        return; /* its lease is longer than this client's quarantine, or it has changed hands too often */
    sim_expect("dlock_import", rc);
    if (rc != 0) return;
    unsigned held = sim_held_begin(lock, name, SIM_BEGIN_US); /* asked for by the exporter, at an unknown time */
    sim_nap(30000);
    sim_held_end(held);
    dlock_free(lock);
}

static int seen(const struct dlock_info *info, void *arg) {
    unsigned *n = arg;
    if (strncmp(info->name, "n", 1) != 0 || !info->token) sim_fail("a holder of %s is shown", info->name);
    return ++*n == 5;
}

void sim_look_around(struct sim_app *app, unsigned name) {
    char text[16];
    unsigned n = 0;
    snprintf(text, sizeof text, "n%u", name);
    if (sim_chance(sim_plan->breaks)) {
        int broke = dlock_break(app->client, text, NULL);
        sim_say("breaks n%u: %s", name, dlock_strerror(broke));
        if (broke != DLOCK_EOWNER) sim_expect("dlock_break", broke);
        return;
    }
    int rc = sim_chance(500) ? dlock_inspect(app->client, text, seen, &n, NULL)
                             : dlock_list(app->client, sim_chance(500) ? "" : text, seen, &n, NULL);
    sim_say("sees %u holders: %s", n, dlock_strerror(rc));
    sim_expect("dlock_inspect or dlock_list", rc);
}
