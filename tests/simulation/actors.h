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
    int64_t busy_us; /* for so long faults happen, */
    int64_t calm_us; /* and then none for so long; then everything has to come to an end */
    unsigned stops, suspends, kills, restarts, forgets, drift_ppm; /* per mille of the nemesis' turns */
    unsigned allocations, descriptors, slow_callbacks;
    struct sim_faults faults;
};

/* Runs all of it, and checks what is left. */
void sim_run(const struct sim_plan *plan);

#endif
