/* What the applications of a run do.
 */
#ifndef DLOCK_TESTS_SIMULATION_ACTORS_H
#define DLOCK_TESTS_SIMULATION_ACTORS_H

#include "network.h"
#include "scheduler.h"

/* The draw of a run. */
struct sim_plan {
    const struct sim_kind *kind;
    unsigned hosts, names;
    unsigned busy_ms; /* for so long faults happen, */
    unsigned calm_ms; /* and then none for so long; then everything has to come to an end */
    unsigned stops, suspends, kills, restarts, forgets, drift_ppm; /* per mille of the nemesis' turns */
    unsigned allocations, descriptors, slow_callbacks;
    unsigned breaks;  /* per mille of the looks at a name */
    unsigned fixed;   /* per mille of the locks have a lease that nobody renews, */
    unsigned shorter; /* and so many one that is shorter than their client's */
    unsigned hold_ms; /* at most, as a rule */
    struct sim_faults faults;
};

/* ---- plan.c ---- */

/* What this seed runs: sim_random() goes on from there. */
struct sim_plan sim_draw(uint64_t seed);
/* Overrules the draws that follow, as "stops=0" says. False: there is no such setting. */
bool sim_set(const char *text);
/* Looks for less that fails as well: fewer kinds of faults, actors, names, less time. `fails` runs a seed with what is
 * set. Returns the seed that shows it; what it needs is set then. */
uint64_t sim_shrink(uint64_t seed, bool (*fails)(uint64_t seed));
/* As options of dlock-simulate. */
void sim_print_settings(void);

/* ---- actors.c ---- */

/* Runs all of it, and checks what is left. */
void sim_run(const struct sim_plan *plan);

#endif
