/* Simulated time, machines and threads. All threads of a run are fibers of one real thread. They switch only where the
 * program calls into the threads library, the clock or the network; which one continues there, and when, is drawn from
 * the seed. So a seed repeats its run exactly. */
#ifndef DLOCK_TESTS_SUPPORT_SCHEDULER_H
#define DLOCK_TESTS_SUPPORT_SCHEDULER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_NEVER INT64_MAX
#define SIM_BEGIN_US INT64_C(1000000000000) /* when each run begins; the story's times count from there */

/* A simulated process on its own host: its threads see the host's clock, and do not run while it is stopped. */
struct sim_host {
    const char *name;
    int number;                   /* for applications, the number in the name */
    int64_t offset_us, drift_ppm; /* of its clock */
    int64_t stopped_us;           /* when it was stopped; 0: it runs */
    unsigned stops;               /* how often it was stopped */
    bool suspended;               /* stopped like a suspended machine: CLOCK_MONOTONIC stops as well */
    bool dead;
};

/* ---- random numbers ---- */

void sim_seed(uint64_t seed);
uint64_t sim_random(void);
/* A number in [low, high]. */
int64_t sim_between(int64_t low, int64_t high);
bool sim_chance(unsigned per_mille);

/* ---- time ---- */

int64_t sim_now_us(void); /* global time, which no host sees */
/* Convert between global time and the time that the host's clock shows. */
int64_t sim_local_us(const struct sim_host *host, int64_t us);
int64_t sim_global_us(const struct sim_host *host, int64_t local_us);
/* Calls `act` at that time, on no host. */
void sim_at(int64_t us, void (*act)(void *arg), void *arg);

/* Or main moves the time, from the first of these calls on. Waits whose time is over then end when no thread can run
 * otherwise. It is a fault if main itself waits for what only time would bring. */
void sim_begin_anew(uint64_t seed); /* at SIM_BEGIN_US, without any thread but main */
void sim_settle(void);              /* lets the others run until each of them waits for something later */
void sim_move_us(int64_t us);       /* and lets nobody run */
int64_t sim_next_us(void);          /* when the next wait ends, or SIM_NEVER */

/* ---- hosts and their threads ---- */

struct sim_host *sim_host(void);       /* of the running fiber */
void sim_visit(struct sim_host *host); /* moves the running fiber to that host */
void sim_stop(struct sim_host *host, bool suspend);
void sim_continue(struct sim_host *host);
/* Ends the host: its threads never run again. False: one of them has a mutex that all hosts share in the simulation;
 * try again later. */
bool sim_kill(struct sim_host *host);
/* Starts a thread on that host. Returns its number, from 1 on; 0: there are too many. */
unsigned sim_start(struct sim_host *host, void *(*run)(void *arg), void *arg);
unsigned sim_self(void);
void sim_sleep_us(int64_t us);
/* Lets another thread run in place of the caller, at random. */
void sim_pause(void);
void sim_yield(void);                                   /* the same, and always one that is drawn, perhaps the caller */
void sim_place(unsigned thread, struct sim_host *host); /* moves it there */
void sim_forked(void);                                  /* in a child: it has no thread but the running one */
/* Waits for sim_wake(on, …) with one of these bits, or for the time. True: it was woken. */
bool sim_wait(const void *on, uint32_t bits, int64_t until_us);
/* The same; the time is a timer's (CLOCK_BOOTTIME), which runs on while the host is suspended. */
bool sim_wait_for_timer(const void *on, uint32_t bits, int64_t until_us);
/* Returns how many it has woken. */
unsigned sim_wake(const void *on, uint32_t bits, unsigned most);
bool sim_ended(unsigned thread);
/* Waits for the end of the thread. False: the time came first. */
bool sim_join(unsigned thread, int64_t until_us);
/* The running thread's data of base/forking.c. */
struct dlock__forking *sim_forking(void);
/* The rest of a function is the simulation's: the thread sanitizer, which sees the C library's functions that it calls,
 * ignores what they read and write. */
#define SIM_UNSEEN __attribute__((cleanup(sim_seen), unused)) char unseen = sim_unseen()
char sim_unseen(void);
void sim_seen(char *unseen);
/* Prints the state of each thread. */
void sim_print_threads(void);

/* ---- descriptors ---- */

/* Lets so many of 1,000 descriptors be refused; 0: none. */
void sim_descriptors_fail(unsigned per_mille);
int sim_descriptor(void);        /* as eventfd(); -1: used up */
unsigned sim_descriptors(void);  /* how many are open */
int64_t sim_next_timer_us(void); /* whether or not anybody waits for it */
void sim_signal(int fd);
void sim_drain(int fd);
void sim_close(int fd);

/* How often the running thread would have called the kernel: to wait, to wake one that waits, or with a descriptor. */
unsigned long sim_calls(void);

/* ---- the story ---- */

extern void (*sim_on_step)(void); /* called before each change to another thread */
extern bool sim_verbose;
extern uint64_t sim_seed_now;
__attribute__((format(printf, 1, 2))) void sim_say(const char *format, ...);
/* Reports a fault of the run and ends the program. */
__attribute__((format(printf, 1, 2), noreturn)) void sim_fail(const char *format, ...);

#endif
