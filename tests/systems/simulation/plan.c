/* The values that a seed draws, and how a plan is reduced to the parts that a fault needs: see actors.h. */
#include "actors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SETTING(member, least) \
    { #member, offsetof(struct sim_plan, member), least, false, 0 }

/* `least` is the smallest value that a run can do with. */
static struct setting {
    const char *name;
    size_t at;
    unsigned least;
    bool set;
    unsigned to;
} settings[] = {
    SETTING(stops, 0),
    SETTING(suspends, 0),
    SETTING(kills, 0),
    SETTING(restarts, 0),
    SETTING(forgets, 0),
    SETTING(drift_ppm, 0),
    SETTING(allocations, 0),
    SETTING(descriptors, 0),
    SETTING(slow_callbacks, 0),
    SETTING(shorter, 0),
    SETTING(breaks, 0),
    SETTING(hurries, 0),
    SETTING(faults.lose_request, 0),
    SETTING(faults.lose_answer, 0),
    SETTING(faults.late_request, 0),
    SETTING(faults.twice, 0),
    SETTING(faults.stray, 0),
    SETTING(faults.reset, 0),
    SETTING(faults.silent, 0),
    SETTING(faults.refuse, 0),
    SETTING(faults.stall, 0),
    SETTING(faults.latency_us, 0),
    SETTING(names, 1),
    SETTING(hosts, 1),
    SETTING(busy_ms, 100),
};
enum { SETTINGS = sizeof settings / sizeof *settings };

static unsigned *place(struct sim_plan *plan, const struct setting *setting) {
    return (unsigned *)(void *)((char *)plan + setting->at);
}

/* A number of faults of one kind: in most runs none, in some a few, in a few many. */
static unsigned some(unsigned most) {
    if (!sim_chance(400)) return 0;
    unsigned n = (unsigned)sim_between(1, most) * (sim_chance(250) ? 6 : 1);
    return n < 900 ? n : 900;
}

/* Now and then, a combination of faults that occur together. */
static void draw_weather(struct sim_plan *plan, const struct sim_kind *queue) {
    switch (sim_random() % 10) {
    case 0: /* connections that hardly come up, and break */
        plan->faults.refuse = 300;
        plan->faults.reset = 200;
        break;
    case 1:
    case 2: /* far away, answers are lost, and all clients want the same */
        plan->names = (unsigned)sim_between(1, 2);
        plan->faults.latency_us = 60000;
        plan->faults.lose_answer = 40;
        break;
    case 3: /* requests come late while clients are stopped or leases of all lengths end */
        plan->faults.late_request = 120;
        plan->stops = 300;
        plan->fixed = 600;
        break;
    case 4: /* hand-overs lapse before their wake-ups arrive, and others follow them */
        plan->kind = queue;
        plan->names = (unsigned)sim_between(1, 2);
        plan->faults.latency_us = 60000;
        plan->faults.stall = 300;
        plan->faults.lose_request = 100;
        plan->stops = 300;
        plan->shorter = 1000;
        break;
    default: break;
    }
}

static struct sim_plan draw(void) {
    const struct sim_kind *kinds;
    size_t n = sim_kinds(&kinds);
    struct sim_plan plan = {.kind = &kinds[sim_random() % n],
                            .hosts = (unsigned)sim_between(1, 5),
                            .names = (unsigned)sim_between(1, sim_chance(500) ? 2 : 6),
                            .busy_ms = (unsigned)sim_between(1, 40) * 500,
                            .handover_ms = sim_chance(300) ? (unsigned)sim_between(3, 10) * 100 : 3000,
                            .calm_ms = 4000,
                            .stops = some(300),
                            .suspends = some(200),
                            .kills = some(200),
                            .restarts = some(100),
                            .drift_ppm = sim_chance(400) ? (unsigned)sim_between(1, 4900)
                                                         : 0, /* between two clocks: twice as much */
                            .allocations = sim_chance(400) ? (unsigned)sim_between(1, 3000) : 0,
                            .descriptors = some(100),
                            .slow_callbacks = some(300),
                            .breaks = sim_chance(200) ? 500 : 0,
                            .fixed = sim_chance(300) ? 600 : 150,
                            .shorter = 200,
                            .hold_ms = sim_chance(200)   ? 400
                                       : sim_chance(250) ? 2
                                                         : 50,
                            .hurries = sim_chance(300) ? 50 : 0,
                            .faults = {some(50), some(50), some(30), some(30), some(30), some(20), some(20), some(100),
                                       some(30), sim_chance(500) ? 500 : (unsigned)sim_between(100, 60000)}};
    draw_weather(&plan, &kinds[0]);
    if (plan.kind->caps & DLOCK_CAP_VOLATILE) plan.restarts = (unsigned)sim_between(20, 400), plan.forgets = 700;
    if (strcmp(plan.kind->scheme, "simlocal") == 0) { /* like files: never away */
        plan.faults = (struct sim_faults){.latency_us = 500};
        plan.restarts = 0;
    }
    return plan;
}

struct sim_plan sim_draw(uint64_t seed) {
    sim_seed(seed);
    struct sim_plan plan = draw();
    for (size_t i = 0; i < SETTINGS; i++)
        if (settings[i].set) *place(&plan, &settings[i]) = settings[i].to;
    return plan;
}

bool sim_set(const char *text) {
    for (size_t i = 0; i < SETTINGS; i++) {
        size_t length = strlen(settings[i].name);
        if (strncmp(text, settings[i].name, length) != 0 || text[length] != '=') continue;
        settings[i].set = true;
        settings[i].to = (unsigned)strtoul(text + length + 1, NULL, 0);
        return true;
    }
    return false;
}

/* True if a seed near *seed still fails, which is stored: with something left out the schedule changes, so another seed
 * may show the fault. */
static bool still_fails(uint64_t *seed, bool (*fails)(uint64_t seed)) {
    enum { TRIES = 250 };
    for (uint64_t next = *seed; next < *seed + TRIES; next++) {
        if (!fails(next)) continue;
        *seed = next;
        return true;
    }
    return false;
}

uint64_t sim_shrink(uint64_t seed, bool (*fails)(uint64_t seed)) {
    for (size_t i = 0; i < SETTINGS; i++) {
        struct setting before = settings[i];
        for (unsigned to = before.least;; to = to ? to * 2 : 1) {
            struct sim_plan plan = sim_draw(seed);
            unsigned is = *place(&plan, &settings[i]);
            if (is <= to || (to > 0 && before.least == 0)) break; /* a kind of fault is left out wholly or stays */
            settings[i].set = true;
            settings[i].to = to;
            if (still_fails(&seed, fails)) break;
            settings[i] = before;
        }
    }
    return seed;
}

void sim_print_settings(void) {
    for (size_t i = 0; i < SETTINGS; i++)
        if (settings[i].set) printf(" --set %s=%u", settings[i].name, settings[i].to);
}
