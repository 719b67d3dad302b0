/* The calls of an application's thread with one lock or several. The functions check the results of the calls of
 * dlock.h; actors.c draws their order. */
#ifndef DLOCK_TESTS_SIMULATION_CALLS_H
#define DLOCK_TESTS_SIMULATION_CALLS_H

#include "actors.h"

#include <dlock/dlock.h>

enum { SIM_NAMES = 6, SIM_THREADS = 4 };

struct sim_app {
    struct sim_host host;
    char name[8];
    dlock_client *client;
    dlock_lock *shared[SIM_NAMES]; /* owned by the handle, for all threads */
    unsigned threads;
    bool over; /* its threads are to end */
    int64_t lease_ms, timeout_ms;
    unsigned actors[SIM_THREADS];
    /* Until then its threads pass one lock on without a pause, as threads with short holds do, and request it on
     * different terms, also asynchronously. */
    int64_t hurry_until_us;
    unsigned hurry_name;
};

extern const struct sim_plan *sim_plan; /* of this run */

void sim_nap(int64_t most_us);
bool sim_hurries(const struct sim_app *app);
/* A nap, unless the application is in a hurry. */
void sim_pace(const struct sim_app *app, int64_t most_us);
/* Fails the run if no call answers so, whatever the faults. */
void sim_expect(const char *what, int rc);
/* The mode in which a name is used; it is drawn where there are several. */
enum dlock_mode sim_mode_of(unsigned name);
/* A handle with options that are drawn; NULL: no memory. */
dlock_lock *sim_handle_new(struct sim_app *app, unsigned name, enum dlock_mode mode, enum dlock_owner owner);

/* Acquires the lock, uses and releases it. */
void sim_once(struct sim_app *app, dlock_lock *lock, unsigned name, enum dlock_mode mode, enum dlock_owner owner);
/* Acquires several together. */
void sim_several(struct sim_app *app);
/* Acquires and releases asynchronously. */
void sim_unattended(struct sim_app *app, unsigned name);
/* Frees the handle while another thread waits with it. */
void sim_freed_meanwhile(struct sim_app *app, unsigned name);
/* Imports a grant that a process has exported. */
void sim_take_ticket(struct sim_app *app);
/* Asks who holds the lock, or breaks it. */
void sim_look_around(struct sim_app *app, unsigned name);

#endif
