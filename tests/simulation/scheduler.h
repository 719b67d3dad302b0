/* Simulated time, machines and threads. All threads of a run are fibers of one real thread, which change places only
 * where the program calls into the threads library, the clock or the network; which of them goes on there, and when,
 * is drawn from the seed. A run is therefore repeated exactly by its seed.
 */
#ifndef DLOCK_TESTS_SIMULATION_SCHEDULER_H
#define DLOCK_TESTS_SIMULATION_SCHEDULER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_NEVER INT64_MAX
#define SIM_BEGIN_US INT64_C(1000000000000) /* when each run begins; the story counts from there */

/* A simulated process on a host of its own: what runs there sees its clock, and stands still while it is stopped. */
struct sim_host {
    const char *name;
    int number;                   /* of applications: the one in the name */
    int64_t offset_us, drift_ppm; /* of its clock */
    int64_t stopped_us;           /* since when it is stopped; 0: it runs */
    unsigned stops;               /* so often it was stopped */
    bool suspended;               /* stopped as a machine is: waits by CLOCK_MONOTONIC do not go on meanwhile */
    bool dead;
};

/* ---- chance ---- */

void sim_seed(uint64_t seed);
uint64_t sim_random(void);
/* In [low, high]. */
int64_t sim_between(int64_t low, int64_t high);
bool sim_chance(unsigned per_mille);

/* ---- time ---- */

int64_t sim_now_us(void); /* everybody's, which no host sees */
/* What the host's clock shows at the time `us`, and when it shows `local_us`. */
int64_t sim_local_us(const struct sim_host *host, int64_t us);
int64_t sim_global_us(const struct sim_host *host, int64_t local_us);
/* Runs `act` then, on no host. */
void sim_at(int64_t us, void (*act)(void *arg), void *arg);

/* ---- hosts and their threads ---- */

struct sim_host *sim_host(void);       /* the running one's */
void sim_visit(struct sim_host *host); /* the running fiber goes on there */
void sim_stop(struct sim_host *host, bool suspend);
void sim_continue(struct sim_host *host);
/* Its threads never run again. False: one of them has something that all hosts share here, try again later. */
bool sim_kill(struct sim_host *host);
/* A thread of that host. Returns its number, from 1 on; 0: there are too many. */
unsigned sim_start(struct sim_host *host, void *(*run)(void *arg), void *arg);
unsigned sim_self(void);
void sim_sleep_us(int64_t us);
/* Another thread may go on in place of the caller. */
void sim_pause(void);
/* Waits for sim_wake(on, …) with one of these bits, or for the time. True: it was woken. */
bool sim_wait(const void *on, uint32_t bits, int64_t until_us);
void sim_wake(const void *on, uint32_t bits, unsigned most);
bool sim_ended(unsigned thread);
/* Waits for the end of the thread; false: the time came first. */
bool sim_join(unsigned thread, int64_t until_us);
/* Where each thread stands. */
void sim_print_threads(void);

/* ---- what can run out ---- */

/* Of so many allocations (descriptors) one fails; 0: none does. */
void sim_allocations_fail(unsigned per_million);
void sim_descriptors_fail(unsigned per_mille);
/* Memory of the simulation's own, which is zeroed and never runs out. */
void *sim_new(size_t size);
void sim_free(void *memory);
/* Bytes that this host has allocated and not freed, in how many pieces. */
size_t sim_allocated(const struct sim_host *host, unsigned *pieces);

/* ---- descriptors ---- */

int sim_descriptor(void); /* as eventfd(); -1 when they are used up */
void sim_signal(int fd);
void sim_drain(int fd);
void sim_close(int fd);

/* ---- the story ---- */

extern bool sim_verbose;
extern uint64_t sim_seed_now;
__attribute__((format(printf, 1, 2))) void sim_say(const char *format, ...);
/* The run has shown a fault: tells it and ends the program. */
__attribute__((format(printf, 1, 2), noreturn)) void sim_fail(const char *format, ...);

#endif
