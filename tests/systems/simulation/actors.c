/* Applications whose threads call the functions of dlock.h in random order, and the nemesis, which disturbs them: see
 * actors.h. */
#include "actors.h"

#include "calls.h"
#include "checker.h"
#include "memory.h"

#include "state/name.h"

#include <stdio.h>
#include <stdlib.h>

enum { HOSTS = 12, UNATTENDED = 80 /* the first draw that means sim_unattended() */ };

struct actor {
    struct sim_app *app;
    dlock_lock *own[SIM_NAMES]; /* owned by the thread */
};

static struct sim_app apps[HOSTS];
static size_t n_apps;
static bool ending; /* no thread begins anything any more */

/* ---- applications ---- */

static void act(struct actor *actor) {
    struct sim_app *app = actor->app;
    unsigned name = (unsigned)(sim_random() % sim_plan->names), draw = (unsigned)(sim_random() % 100);
    if (sim_hurries(app)) {
        name = app->hurry_name;
        draw = draw < 70 ? 0 : UNATTENDED;
    } else if (sim_chance(sim_plan->hurries)) {
        app->hurry_until_us = sim_now_us() + sim_between(1000, 20000);
        app->hurry_name = name;
    }
    enum dlock_mode mode = sim_mode_of(name);
    if (draw < 60) {
        if (actor->own[name] && sim_chance(30)) {
            dlock_free(actor->own[name]);
            actor->own[name] = NULL;
        }
        if (!actor->own[name]) actor->own[name] = sim_handle_new(app, name, mode, DLOCK_OWNER_THREAD);
        if (actor->own[name]) sim_once(app, actor->own[name], name, actor->own[name]->mode, DLOCK_OWNER_THREAD);
    } else if (draw < 70) {
        if (app->shared[name] && !app->shared[name]->holds)
            sim_once(app, app->shared[name], name, app->shared[name]->mode, DLOCK_OWNER_HANDLE);
    } else if (draw < UNATTENDED) {
        sim_several(app);
    } else if (draw < 88) {
        sim_unattended(app, name);
    } else if (draw < 92) {
        sim_freed_meanwhile(app, name);
    } else if (draw < 95) {
        if (app->shared[name]) dlock_cancel(app->shared[name]);
    } else if (draw < 98) {
        sim_take_ticket(app);
    } else {
        sim_look_around(app, name);
    }
    sim_pace(app, 20000);
}

static void *run_actor(void *arg) {
    struct actor actor = {.app = arg};
    while (!actor.app->over) act(&actor);
    for (unsigned i = 0; i < SIM_NAMES; i++) dlock_free(actor.own[i]);
    return NULL;
}

static void close_client(struct sim_app *app) {
    sim_client_end(app->client);
    dlock_close(app->client);
}

/* The life of one client: its threads end by themselves, or it is closed while they are in calls. */
static void session(struct sim_app *app, const char *uri) {
    struct dlock_error err;
    int rc = dlock_open(uri, NULL, &app->client, &err);
    sim_say("open %s: %s", uri, rc ? err.message : "done");
    sim_expect("dlock_open", rc);
    if (rc != 0) {
        sim_nap(500000);
        return;
    }
    app->over = false;
    sim_client_begin(app->client);
    for (unsigned i = 0; i < sim_plan->names; i++)
        app->shared[i] = sim_handle_new(app, i, sim_mode_of(i), DLOCK_OWNER_HANDLE);
    for (unsigned i = 0; i < app->threads; i++) app->actors[i] = sim_start(&app->host, run_actor, app);
    int64_t until_us =
        sim_now_us() + (sim_chance(500) ? sim_between(100000, 10000000) : (int64_t)sim_plan->busy_ms * 4000);
    while (!ending && sim_now_us() < until_us) sim_sleep_us(100000);
    app->over = true;
    bool early = sim_chance(400);
    if (early) close_client(app);
    for (unsigned i = 0; i < app->threads; i++)
        if (app->actors[i]) sim_join(app->actors[i], SIM_NEVER);
    for (unsigned i = 0; i < sim_plan->names; i++) {
        dlock_free(app->shared[i]);
        app->shared[i] = NULL;
    }
    if (!early) close_client(app);
}

static void *run_app(void *arg) {
    struct sim_app *app = arg;
    char keys[128], uri[192];
    snprintf(keys, sizeof keys, "lease=%lldms&timeout=%lldms&connections=%d%s", (long long)app->lease_ms,
             (long long)app->timeout_ms, (int)sim_between(1, 6),
             sim_plan->kind->caps & DLOCK_CAP_WANTED && sim_chance(300) ? "&linger=200ms" : "");
    sim_uri(uri, sizeof uri, keys);
    while (!ending) session(app, uri);
    unsigned pieces;
    size_t bytes = sim_allocated(&app->host, &pieces);
    /* A request that was in progress ends after a close that had nothing to wait for. */
    for (int64_t until_us = sim_now_us() + app->timeout_ms * 1000 + 1000000; pieces && sim_now_us() < until_us;) {
        sim_sleep_us(10000);
        bytes = sim_allocated(&app->host, &pieces);
    }
    if (pieces) sim_fail("%s leaks %zu bytes in %u pieces", app->name, bytes, pieces);
    return NULL;
}

static unsigned mains[HOSTS];

static void start_app(size_t at) {
    static unsigned started;
    struct sim_app *app = &apps[at];
    int number = (int)(++started % 1000);
    snprintf(app->name, sizeof app->name, "p%d", number);
    app->host =
        (struct sim_host){.name = app->name, .number = number, .offset_us = sim_between(-1000000000, 1000000000)};
    if (sim_plan->drift_ppm) app->host.drift_ppm = sim_between(-(int64_t)sim_plan->drift_ppm, sim_plan->drift_ppm);
    app->lease_ms = sim_between(1, 6) * 500;
    app->timeout_ms = sim_between(1, 4) * 250;
    app->threads = (unsigned)sim_between(1, SIM_THREADS);
    mains[at] = sim_start(&app->host, run_app, app);
    if (!mains[at]) sim_fail("too many threads");
}

/* ---- the nemesis ---- */

static void strike(void) {
    size_t at = sim_random() % n_apps;
    struct sim_app *app = &apps[at];
    if (sim_chance(sim_plan->stops)) sim_stop(&app->host, false);
    if (sim_chance(sim_plan->suspends)) sim_stop(&app->host, true);
    if (sim_chance(500)) sim_continue(&apps[sim_random() % n_apps].host);
    if (sim_chance(sim_plan->restarts))
        sim_server_restart(sim_between(0, sim_chance(500) ? 100000 : 3000000), sim_chance(sim_plan->forgets));
    if (n_apps < HOSTS && sim_chance(sim_plan->kills) && sim_kill(&app->host)) {
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
    sim_plan = drawn;
    sim_on_step = sim_note_losses;
    sim_faults = sim_plan->faults;
    sim_prompt = !sim_plan->slow_callbacks && !sim_plan->allocations && !sim_plan->descriptors && !sim_plan->restarts;
    sim_network_start(sim_plan->kind, sim_plan->handover_ms);
    sim_allocations_fail(sim_plan->allocations);
    sim_descriptors_fail(sim_plan->descriptors);
    for (n_apps = 0; n_apps < sim_plan->hosts; n_apps++) start_app(n_apps);
    int64_t busy_us = sim_now_us() + sim_plan->busy_ms * INT64_C(1000),
            calm_us = busy_us + sim_plan->calm_ms * INT64_C(1000);
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
