/* Applications that call the functions of dlock.h in random order, and the nemesis, which disturbs them: see
 * actors.h. */
#include "actors.h"

#include "checker.h"

#include "state/name.h"

#include <stdio.h>
#include <stdlib.h>

enum { HOSTS = 12, NAMES = 6, THREADS = 4, SLACK_US = 100000, BOARD = 8 };

struct app {
    struct sim_host host;
    char name[8];
    dlock_client *client;
    dlock_lock *shared[NAMES]; /* owned by the handle, for all threads */
    unsigned threads;
    bool over; /* its threads are to end */
    int64_t lease_ms, timeout_ms;
    unsigned actors[THREADS];
};

struct actor {
    struct app *app;
    dlock_lock *own[NAMES]; /* owned by the thread */
};

static const struct sim_plan *plan;
static struct app apps[HOSTS];
static size_t n_apps;
static bool ending;                             /* nobody begins anything any more */
static char board[BOARD][DLOCK_TICKET_MAX + 1]; /* tickets: grants on their way from one process to another */
static unsigned board_name[BOARD];

static enum dlock_mode mode_of(unsigned name) {
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

static void nap(int64_t most_us) {
    sim_sleep_us(sim_chance(500) ? sim_between(0, 2000) : sim_between(0, most_us));
}

static void expect(const char *what, int rc) {
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

/* As expect(), for calls about a grant that is owned by a handle: another thread may have released it. */
static void expect_held(const char *what, const dlock_lock *lock, int rc) {
    if (rc != DLOCK_EOWNER || lock->owner != DLOCK_OWNER_HANDLE) expect(what, rc);
}

static void lost(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)lock;
    (void)err;
    (void)arg;
    if (sim_chance(plan->slow_callbacks)) nap(3000000);
}

/* ---- one acquisition ---- */

static void check_deadline(const struct app *app, const char *what, int64_t from_us, int64_t timeout_ms,
                           unsigned stops) {
    if (timeout_ms < 0 || app->host.stops != stops || plan->allocations) return;
    if (timeout_ms == 0) timeout_ms = app->timeout_ms;
    int64_t late_us = sim_now_us() - from_us - timeout_ms * 1010 - SLACK_US;
    if (late_us > 0) sim_fail("%s with %lld ms ends %lld us late", what, (long long)timeout_ms, (long long)late_us);
}

static dlock_lock *handle_new(struct app *app, unsigned name, enum dlock_mode mode, enum dlock_owner owner) {
    char text[16];
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    dlock_lock *lock = NULL;
    snprintf(text, sizeof text, "n%u", name);
    options.mode = mode;
    options.limit = limit_of(mode);
    options.owner = owner;
    options.on_lost = sim_chance(500) ? lost : NULL;
    if (mode != DLOCK_SHARED && sim_chance(plan->fixed)) options.flags = DLOCK_FIXED_LEASE;
    if (sim_chance(plan->shorter)) options.lease_ms = sim_between(DLOCK_LEASE_MIN_MS, app->lease_ms);
    int rc = dlock_new(app->client, text, &options, &lock, NULL);
    expect("dlock_new", rc);
    return lock;
}

static void downgrade(struct app *app, dlock_lock *lock, unsigned hold) {
    int64_t from_us = sim_now_us();
    int rc = dlock_downgrade(lock, NULL);
    sim_say("downgrade %s: %s", app->name, dlock_strerror(rc));
    if (rc == 0) sim_held_downgraded(hold, from_us);
    expect_held("dlock_downgrade", lock, rc);
}

static void export(struct app *app, dlock_lock *lock, unsigned name, unsigned hold) {
    size_t at = sim_random() % BOARD;
    char ticket[DLOCK_TICKET_MAX + 1];
    if (*board[at]) return;
    int rc = dlock_export(lock, ticket, sizeof ticket, NULL);
    if (rc != DLOCK_ENOTSUP) expect_held("dlock_export", lock, rc);
    if (rc != 0) return;
    sim_held_end(hold);
    sim_exported(ticket);
    sim_say("%s exports n%u", app->name, name);
    snprintf(board[at], sizeof board[at], "%s", ticket);
    board_name[at] = name;
}

static void extend(struct app *app, dlock_lock *lock) {
    int64_t lease_ms = sim_between(DLOCK_LEASE_MIN_MS, app->lease_ms);
    int rc = dlock_extend(lock, lease_ms, NULL);
    sim_say("extend by %lld ms: %s", (long long)lease_ms, dlock_strerror(rc));
    if (rc != DLOCK_ENOTSUP && rc != DLOCK_EINVAL) expect_held("dlock_extend", lock, rc);
}

/* Checks that dlock_held agrees with what the core believes. */
static void check_shown(dlock_lock *lock, unsigned hold) {
    if (plan->breaks) return; /* after dlock_break the holder believes in its grant until the next renewal */
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
static void hold(struct app *app, dlock_lock *lock, unsigned name, enum dlock_mode mode, enum dlock_owner owner,
                 int64_t asked_us, unsigned stops) {
    unsigned number = sim_held_begin(lock, name, asked_us), again = 0;
    if (app->host.stops == stops) check_prompt(number);
    sim_say("holds n%u, fence %llu", name, (unsigned long long)dlock_fence(lock));
    bool is_fixed = lock->flags & DLOCK_FIXED_LEASE;
    nap(sim_chance(is_fixed ? 300 : 100) ? app->lease_ms * 2500 : plan->hold_ms * 1000);
    check_shown(lock, number);
    if (owner == DLOCK_OWNER_THREAD && mode == DLOCK_EXCLUSIVE && sim_chance(100)) {
        int rc = dlock_acquire(lock, draw_timeout(), NULL);
        expect("dlock_acquire, again", rc);
        again = rc == 0;
    }
    if (!again && mode == DLOCK_EXCLUSIVE && sim_chance(100)) downgrade(app, lock, number);
    for (int i = is_fixed ? 4 : 1; i > 0 && sim_chance(i > 1 ? 700 : 150); i--) {
        extend(app, lock);
        if (i > 1) nap(100000);
    }
    check_shown(lock, number);
    if (sim_chance(50)) dlock_remaining_ms(lock);
    nap(20000);
    for (; again > 0; again--) expect("dlock_release, of two", dlock_release(lock, NULL));
    if (sim_chance(50)) export(app, lock, name, number);
    int64_t until_us = sim_held_until(number);
    sim_held_end(number);
    int rc = dlock_release(lock, NULL);
    sim_say("released n%u: %s", name, dlock_strerror(rc));
    /* Whether a release that says "lost" before the grant's end is a fault: the server keeps the grant, whatever
     * breaks, and what is answered was not executed before, as a copy. */
    bool kept = !plan->breaks && !plan->restarts && !plan->faults.twice && !(plan->kind->caps & DLOCK_CAP_SESSION);
    if (rc == DLOCK_ELOST && kept && sim_now_us() < until_us)
        sim_fail("n%u: its release says that it was lost, %lld us before its end", name,
                 (long long)(until_us - sim_now_us()));
}

static void once(struct app *app, dlock_lock *lock, unsigned name, enum dlock_mode mode, enum dlock_owner owner) {
    int64_t timeout_ms = draw_timeout(), from_us = sim_now_us();
    unsigned stops = app->host.stops;
    struct dlock_error err;
    sim_say("acquire n%u, mode %d, %lld ms", name, (int)mode, (long long)timeout_ms);
    int rc = dlock_acquire(lock, timeout_ms, &err);
    if (rc == DLOCK_EDEADLK || (rc == DLOCK_EINVAL && owner == DLOCK_OWNER_HANDLE)) return;
    if (rc != 0) sim_say("acquire n%u: %s", name, err.message);
    expect("dlock_acquire", rc);
    check_deadline(app, "dlock_acquire", from_us, timeout_ms, stops);
    if (rc == 0) hold(app, lock, name, mode, owner, from_us, stops);
}

static void several(struct app *app) {
    dlock_lock *locks[NAMES];
    unsigned numbers[NAMES], n = 0;
    for (unsigned name = 0; name < plan->names; name++)
        if (sim_chance(500) && (locks[n] = handle_new(app, name, mode_of(name), DLOCK_OWNER_THREAD)))
            numbers[n++] = name;
    int64_t timeout_ms = draw_timeout(), from_us = sim_now_us();
    unsigned stops = app->host.stops;
    int rc = n == 0 ? DLOCK_ENOMEM : dlock_acquire_all(locks, n, timeout_ms, NULL);
    sim_say("acquire_all of %u: %s", n, dlock_strerror(rc));
    expect("dlock_acquire_all", rc);
    check_deadline(app, "dlock_acquire_all", from_us, timeout_ms, stops);
    if (rc == 0) {
        unsigned held[NAMES];
        for (unsigned i = 0; i < n; i++) held[i] = sim_held_begin(locks[i], numbers[i], from_us);
        nap(30000);
        for (unsigned i = 0; i < n; i++) sim_held_end(held[i]);
        if (sim_chance(800)) expect("dlock_release_all", dlock_release_all(locks, n, NULL));
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
    if (sim_chance(plan->slow_callbacks)) nap(1000000);
}

static int await(struct pending *pending) {
    while (!pending->done) sim_wait(pending, 1, SIM_NEVER);
    return pending->rc;
}

static void unattended(struct app *app, unsigned name) {
    enum dlock_mode mode = mode_of(name);
    dlock_lock *lock = handle_new(app, name, mode, DLOCK_OWNER_HANDLE);
    struct pending pending = {false, 0};
    if (!lock) return;
    int64_t timeout_ms = draw_timeout(), from_us = sim_now_us();
    unsigned stops = app->host.stops;
    int rc = dlock_acquire_async(lock, timeout_ms, ended, &pending);
    sim_say("acquire_async n%u: %s", name, dlock_strerror(rc));
    if (rc == 0 && sim_chance(300)) {
        nap(20000);
        dlock_cancel(lock);
    }
    if (rc == 0) rc = await(&pending);
    expect("dlock_acquire_async", rc);
    if (!plan->slow_callbacks) check_deadline(app, "dlock_acquire_async", from_us, timeout_ms, stops);
    if (rc == 0) {
        unsigned held = sim_held_begin(lock, name, from_us);
        nap(30000);
        sim_held_end(held);
        pending.done = false;
        if (sim_chance(700) && dlock_release_async(lock, ended, &pending) == 0) await(&pending);
    }
    dlock_free(lock);
}

/* ---- free and cancel during a wait ---- */

static void *wait_in_vain(void *arg) {
    int rc = dlock_acquire(arg, -1, NULL);
    expect("dlock_acquire of what is freed", rc);
    return NULL;
}

static void freed_meanwhile(struct app *app, unsigned name) {
    dlock_lock *lock = handle_new(app, name, mode_of(name), DLOCK_OWNER_HANDLE);
    unsigned thread = lock ? sim_start(&app->host, wait_in_vain, lock) : 0;
    if (!thread) {
        dlock_free(lock);
        return;
    }
    while (!sim_ended(thread) && lock->inside == 0) sim_sleep_us(100);
    nap(100000);
    sim_say("frees n%u", name);
    int64_t from_us = sim_now_us();
    unsigned stops = app->host.stops;
    dlock_free(lock);
    if (!plan->slow_callbacks) check_deadline(app, "dlock_free", from_us, 0, stops);
    sim_join(thread, SIM_NEVER);
}

static void take_ticket(struct app *app) {
    size_t at = sim_random() % BOARD;
    if (!*board[at]) return;
    char ticket[sizeof board[0]];
    unsigned name = board_name[at];
    memcpy(ticket, board[at], sizeof ticket);
    *board[at] = '\0';
    dlock_lock *lock = NULL;
    struct dlock_error err;
    int rc = dlock_import(app->client, ticket, NULL, &lock, &err);
    sim_say("import of n%u: %s", name, rc ? err.message : "done");
    if (rc == DLOCK_EINVAL)
        return; /* its lease is longer than this client's quarantine, or it has changed hands too often */
    expect("dlock_import", rc);
    if (rc != 0) return;
    unsigned held = sim_held_begin(lock, name, SIM_BEGIN_US); /* asked for by the exporter, at an unknown time */
    nap(30000);
    sim_held_end(held);
    dlock_free(lock);
}

static int seen(const struct dlock_info *info, void *arg) {
    unsigned *n = arg;
    if (strncmp(info->name, "n", 1) != 0 || !info->token) sim_fail("a holder of %s is shown", info->name);
    return ++*n == 5;
}

static void look_around(struct app *app, unsigned name) {
    char text[16];
    unsigned n = 0;
    snprintf(text, sizeof text, "n%u", name);
    if (sim_chance(plan->breaks)) {
        int broke = dlock_break(app->client, text, NULL);
        sim_say("breaks n%u: %s", name, dlock_strerror(broke));
        if (broke != DLOCK_EOWNER) expect("dlock_break", broke);
        return;
    }
    int rc = sim_chance(500) ? dlock_inspect(app->client, text, seen, &n, NULL)
                             : dlock_list(app->client, sim_chance(500) ? "" : text, seen, &n, NULL);
    sim_say("sees %u holders: %s", n, dlock_strerror(rc));
    expect("dlock_inspect or dlock_list", rc);
}

/* ---- applications ---- */

static void act(struct actor *actor) {
    struct app *app = actor->app;
    unsigned name = (unsigned)(sim_random() % plan->names), draw = (unsigned)(sim_random() % 100);
    enum dlock_mode mode = mode_of(name);
    if (draw < 60) {
        if (actor->own[name] && sim_chance(30)) {
            dlock_free(actor->own[name]);
            actor->own[name] = NULL;
        }
        if (!actor->own[name]) actor->own[name] = handle_new(app, name, mode, DLOCK_OWNER_THREAD);
        if (actor->own[name]) once(app, actor->own[name], name, actor->own[name]->mode, DLOCK_OWNER_THREAD);
    } else if (draw < 70) {
        if (app->shared[name] && !app->shared[name]->holds)
            once(app, app->shared[name], name, app->shared[name]->mode, DLOCK_OWNER_HANDLE);
    } else if (draw < 80) {
        several(app);
    } else if (draw < 88) {
        unattended(app, name);
    } else if (draw < 92) {
        freed_meanwhile(app, name);
    } else if (draw < 95) {
        if (app->shared[name]) dlock_cancel(app->shared[name]);
    } else if (draw < 98) {
        take_ticket(app);
    } else {
        look_around(app, name);
    }
    nap(20000);
}

static void *run_actor(void *arg) {
    struct actor actor = {.app = arg};
    while (!actor.app->over) act(&actor);
    for (unsigned i = 0; i < NAMES; i++) dlock_free(actor.own[i]);
    return NULL;
}

static void close_client(struct app *app) {
    sim_client_end(app->client);
    dlock_close(app->client);
}

/* The life of one client: its threads end by themselves, or it is closed while they are in calls. */
static void session(struct app *app, const char *uri) {
    struct dlock_error err;
    int rc = dlock_open(uri, NULL, &app->client, &err);
    sim_say("open %s: %s", uri, rc ? err.message : "done");
    expect("dlock_open", rc);
    if (rc != 0) {
        nap(500000);
        return;
    }
    app->over = false;
    sim_client_begin(app->client);
    for (unsigned i = 0; i < plan->names; i++) app->shared[i] = handle_new(app, i, mode_of(i), DLOCK_OWNER_HANDLE);
    for (unsigned i = 0; i < app->threads; i++) app->actors[i] = sim_start(&app->host, run_actor, app);
    int64_t until_us = sim_now_us() + (sim_chance(500) ? sim_between(100000, 10000000) : (int64_t)plan->busy_ms * 4000);
    while (!ending && sim_now_us() < until_us) sim_sleep_us(100000);
    app->over = true;
    bool early = sim_chance(400);
    if (early) close_client(app);
    for (unsigned i = 0; i < app->threads; i++)
        if (app->actors[i]) sim_join(app->actors[i], SIM_NEVER);
    for (unsigned i = 0; i < plan->names; i++) {
        dlock_free(app->shared[i]);
        app->shared[i] = NULL;
    }
    if (!early) close_client(app);
}

static void *run_app(void *arg) {
    struct app *app = arg;
    char keys[128], uri[192];
    snprintf(keys, sizeof keys, "lease=%lldms&timeout=%lldms&connections=%d%s", (long long)app->lease_ms,
             (long long)app->timeout_ms, (int)sim_between(1, 6),
             plan->kind->caps & DLOCK_CAP_WANTED && sim_chance(300) ? "&linger=200ms" : "");
    sim_uri(uri, sizeof uri, keys);
    while (!ending) session(app, uri);
    unsigned pieces;
    size_t bytes = sim_allocated(&app->host, &pieces);
    if (pieces) sim_fail("%s leaks %zu bytes in %u pieces", app->name, bytes, pieces);
    return NULL;
}

static unsigned mains[HOSTS];

static void start_app(size_t at) {
    static unsigned started;
    struct app *app = &apps[at];
    int number = (int)(++started % 1000);
    snprintf(app->name, sizeof app->name, "p%d", number);
    app->host =
        (struct sim_host){.name = app->name, .number = number, .offset_us = sim_between(-1000000000, 1000000000)};
    if (plan->drift_ppm) app->host.drift_ppm = sim_between(-(int64_t)plan->drift_ppm, plan->drift_ppm);
    app->lease_ms = sim_between(1, 6) * 500;
    app->timeout_ms = sim_between(1, 4) * 250;
    app->threads = (unsigned)sim_between(1, THREADS);
    mains[at] = sim_start(&app->host, run_app, app);
    if (!mains[at]) sim_fail("too many threads");
}

/* ---- the nemesis ---- */

static void strike(void) {
    size_t at = sim_random() % n_apps;
    struct app *app = &apps[at];
    if (sim_chance(plan->stops)) sim_stop(&app->host, false);
    if (sim_chance(plan->suspends)) sim_stop(&app->host, true);
    if (sim_chance(500)) sim_continue(&apps[sim_random() % n_apps].host);
    if (sim_chance(plan->restarts))
        sim_server_restart(sim_between(0, sim_chance(500) ? 100000 : 3000000), sim_chance(plan->forgets));
    if (n_apps < HOSTS && sim_chance(plan->kills) && sim_kill(&app->host)) {
        sim_say("%s is killed", app->name);
        sim_held_gone(&app->host);
        sim_host_gone(&app->host);
        start_app(n_apps++);
    }
}

static void calm(void) {
    static const struct sim_faults none;
    unsigned latency_us = sim_faults.latency_us;
    sim_faults = none;
    sim_faults.latency_us = latency_us;
    sim_allocations_fail(0);
    sim_descriptors_fail(0);
    sim_calm();
    for (size_t i = 0; i < n_apps; i++) sim_continue(&apps[i].host);
    sim_say("no more faults");
}

void sim_run(const struct sim_plan *drawn) {
    plan = drawn;
    sim_faults = plan->faults;
    sim_prompt = !plan->slow_callbacks && !plan->allocations && !plan->descriptors && !plan->restarts;
    sim_network_start(plan->kind, plan->handover_ms);
    sim_allocations_fail(plan->allocations);
    sim_descriptors_fail(plan->descriptors);
    for (n_apps = 0; n_apps < plan->hosts; n_apps++) start_app(n_apps);
    int64_t busy_us = sim_now_us() + plan->busy_ms * INT64_C(1000), calm_us = busy_us + plan->calm_ms * INT64_C(1000);
    while (sim_now_us() < busy_us) {
        strike();
        sim_sleep_us(sim_between(1000, 1000000));
    }
    calm();
    sim_sleep_us(calm_us - sim_now_us());
    ending = true;
    sim_say("everybody ends");
    for (size_t i = 0; i < n_apps; i++) {
        if (apps[i].host.dead || sim_join(mains[i], calm_us + 120000000)) continue;
        sim_verbose = true;
        sim_fail("%s does not come to an end", apps[i].name);
    }
    sim_sleep_us(10000000);
    sim_check_end();
}
