/* The behaviour of a run's applications. */
#ifndef DLOCK_TESTS_SIMULATION_ACTORS_H
#define DLOCK_TESTS_SIMULATION_ACTORS_H

#include "network.h"
#include "support/scheduler.h"

/* The values that a seed draws for a run. */
struct sim_plan {
    const struct sim_kind *kind;
    unsigned hosts, names;
    unsigned busy_ms;     /* faults happen for this time */
    unsigned handover_ms; /* the longest time of a hand-over until it is confirmed */
    unsigned calm_ms;     /* then none for this time; then everything has to come to an end */
    unsigned stops, suspends, kills, restarts, forgets, drift_ppm; /* per mille of the nemesis's turns */
    unsigned allocations, descriptors, slow_callbacks;
    unsigned breaks;  /* per mille of the looks at a name */
    unsigned fixed;   /* per mille of the locks have a fixed lease */
    unsigned shorter; /* per mille of the locks have a shorter lease than their client's */
    unsigned hold_ms; /* the usual longest hold */
    unsigned hurries; /* per mille of what a thread does begins a hurry of its application */
    struct sim_faults faults;
};

/* ---- plan.c ---- */

/* Draws the plan of this seed; sim_random() continues from there. */
struct sim_plan sim_draw(uint64_t seed);
/* Overrules later draws by a setting such as "stops=0". False: there is no such setting. */
bool sim_set(const char *text);
/* Looks for less that fails as well: fewer kinds of faults, actors and names, less time. `fails` runs a seed with what
 * is set. Returns the seed that fails; the settings that it needs are set then. */
uint64_t sim_shrink(uint64_t seed, bool (*fails)(uint64_t seed));
/* Prints the settings as options of dlock-simulate. */
void sim_print_settings(void);

/* ---- actors.c ---- */

/* Runs the plan, and checks what is left in the end. */
void sim_run(const struct sim_plan *plan);

#endif
