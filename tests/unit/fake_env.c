/* The fake environment: see fake_env.h. Threads are fibers of tests/support/scheduler.c, whose environment.c has most of
 * base/env.h. */
#include "fake_env.h"

#include "support/scheduler.h"

#include <dlock/dlock.h>

#include <stdio.h>
#include <stdlib.h>

enum { MAX_STEPS = 200000, MAX_SPINNING = 64 };

struct spin {
    const atomic_uint *word; /* NULL: not in use */
    unsigned seen;
};

static struct spin spins[MAX_SPINNING];
static int64_t spin_us;
static struct sim_host stopped = {.name = "stopped", .stopped_us = 1};
static struct sim_host *stopped_from;
static unsigned stopped_thread;
static unsigned threads_started, threads_refused; /* so many more of the core's are refused */
static bool staying;
static unsigned away;

/* ---- env.h ------------------------------------------------------------------------------------------------------- */

void dlock__sleep_us(int64_t us) {
    sim_move_us(us);
    sim_yield();
}

/* A thread that spins sees a change as soon as it runs. */
static void look_at_words(void) {
    for (size_t i = 0; i < MAX_SPINNING; i++)
        if (spins[i].word && atomic_load(spins[i].word) != spins[i].seen) sim_wake(&spins[i], 1, 1);
}

/* Spinning is off unless a test asks for it, so that tests see every wait. */
bool dlock__spin(const atomic_uint *word, unsigned seen) {
    struct spin *spin = spins;
    if (spin_us == 0) return false;
    while (spin->word) spin++;
    *spin = (struct spin){word, seen};
    sim_wait(spin, 1, sim_now_us() + spin_us);
    spin->word = NULL;
    return atomic_load(word) != seen;
}

bool dlock__yield_once(const atomic_uint *word, unsigned seen) {
    return dlock__spin(word, seen);
}

bool dlock__spin_then_yield(const atomic_uint *word, unsigned seen) {
    return dlock__spin(word, seen);
}

void dlock__yield(void) {
    away++;
    while (staying) sim_wait(&staying, 1, SIM_NEVER);
    away--;
    sim_yield();
}

int dlock__cpu(void) {
    return 0;
}

int dlock__thread_start(pthread_t *thread, void *(*run)(void *), void *arg) {
    bool refused = threads_refused > 0;
    threads_refused -= refused;
    if (refused || fake_thread_start(thread, run, arg) != 0) return DLOCK_ENOMEM;
    threads_started++;
    return 0;
}

/* ---- the test's side --------------------------------------------------------------------------------------------- */

void fake_env_reset(uint64_t seed) {
    static bool watched;
    const char *other = getenv("DLOCK_TEST_SEED");
    if (!watched)
        pthread_atfork(NULL, NULL, sim_forked); /* the first such handler of this program, hence the first to run */
    watched = true;
    fake_settle();
    if (sim_descriptors() > 0) sim_fail("the former test has left %u descriptors", sim_descriptors());
    sim_begin_anew(seed + (other ? strtoull(other, NULL, 10) << 20 : 0));
    sim_on_step = look_at_words;
    threads_started = threads_refused = 0;
    spin_us = 0;
}

void fake_settle(void) {
    sim_settle();
}

int64_t fake_next_deadline_us(void) {
    int64_t wait_us = sim_next_us(), timer_us = sim_next_timer_us();
    return wait_us < timer_us ? wait_us : timer_us;
}

void fake_advance_us(int64_t us) {
    int64_t target = dlock__now_us() + us;
    fake_settle();
    for (int steps = 0; dlock__now_us() < target; steps++) {
        int64_t next = fake_next_deadline_us();
        if (steps > MAX_STEPS) sim_fail("the core goes on setting deadlines a moment ahead");
        sim_move_us((next < target ? next : target) - dlock__now_us());
        fake_settle();
    }
}

void fake_advance_ms(int64_t ms) {
    fake_advance_us(ms * 1000);
}

bool fake_advance_next(void) {
    int64_t next = fake_next_deadline_us();
    if (next == DLOCK__NEVER) return false;
    sim_move_us(next - dlock__now_us());
    fake_settle();
    return true;
}

void fake_jump_ms(int64_t ms) {
    sim_move_us(ms * 1000);
}

void fake_suspend_ms(int64_t ms) {
    sim_stop(sim_host(), true);
    sim_move_us(ms * 1000);
    sim_continue(sim_host());
}

int fake_thread_start(pthread_t *thread, void *(*run)(void *), void *arg) {
    *thread = sim_start(sim_host(), run, arg);
    return *thread ? 0 : DLOCK_ENOMEM;
}

void fake_thread_join(pthread_t thread) {
    sim_join((unsigned)thread, SIM_NEVER);
}

void fake_thread_stop(pthread_t thread) {
    if (stopped_thread) sim_fail("a second thread is stopped");
    stopped_thread = (unsigned)thread;
    stopped_from = sim_host();
    sim_place(stopped_thread, &stopped);
    fake_settle();
}

void fake_thread_continue(void) {
    sim_place(stopped_thread, stopped_from);
    stopped_thread = 0;
    fake_settle();
}

void fake_stay_away(void) {
    staying = true;
}

void fake_come_back(void) {
    staying = false;
    sim_wake(&staying, 1, UINT32_MAX);
}

unsigned fake_away(void) {
    return away;
}

void fake_spin_us(int64_t us) {
    spin_us = us;
}

unsigned fake_spinning(void) {
    unsigned n = 0;
    for (size_t i = 0; i < MAX_SPINNING; i++) n += spins[i].word != NULL;
    return n;
}

unsigned fake_threads_started(void) {
    return threads_started;
}

void fake_refuse_threads(unsigned times) {
    threads_refused = times;
}
