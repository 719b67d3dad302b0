/* core/base/env.h on a clock that only the test moves. Threads are fibers (tests/support/scheduler.h): one runs at a
 * time, and the next one is drawn from a seed, so that each run of a test is the same. With another number in
 * DLOCK_TEST_SEED it is another one.
 *
 * One thread, the test's own, calls the functions below; the program ends with a message where that waits for what only
 * the clock would bring. Every other thread is started with dlock__thread_start() (the core's) or fake_thread_start()
 * (the test's). What blocks in the kernel, as a read of a pipe, blocks all of them.
 */
#ifndef DLOCK_TESTS_FAKE_ENV_H
#define DLOCK_TESTS_FAKE_ENV_H

#include "base/env.h"

#include <stdbool.h>
#include <stdint.h>

/* Begins a test: the clock stands at a fixed time and random numbers follow from `seed`. The former test must have left
 * neither threads nor descriptors. */
void fake_env_reset(uint64_t seed);

/* Lets all threads run until every one waits and no deadline at or before the fake clock's time is unserved. */
void fake_settle(void);

/* Moves the clock by `ms`, stopping and settling at every deadline on the way. */
void fake_advance_ms(int64_t ms);
void fake_advance_us(int64_t us);

/* Moves the clock to the next deadline. False when there is none: nothing would ever happen again. */
bool fake_advance_next(void);

/* Moves the clock at once and wakes no thread, as if the process were stopped or the machine asleep. Execution resumes
 * with the next fake_settle(). */
void fake_jump_ms(int64_t ms);

/* The same while the machine sleeps: waits, which are measured by another clock than timers, then last as much longer.
 */
void fake_suspend_ms(int64_t ms);

/* The time of the next deadline, or DLOCK__NEVER. */
int64_t fake_next_deadline_us(void);

/* A thread of the test. fake_thread_join() moves no clock: the thread must end without that. */
int fake_thread_start(pthread_t *thread, void *(*run)(void *), void *arg);
void fake_thread_join(pthread_t thread);

/* Stops one of the test's own threads wherever it is, as SIGSTOP would stop a process, and resumes it. */
void fake_thread_stop(pthread_t thread);
void fake_thread_continue(void);

/* How long a thread spins before it sleeps: 0, as after a reset, not at all. And how many spin now. */
void fake_spin_us(int64_t us);
unsigned fake_spinning(void);

/* A thread that yields stays away until fake_come_back(). How many do now. */
void fake_stay_away(void);
void fake_come_back(void);
unsigned fake_away(void);

/* How many threads were started through env.h since fake_env_reset(), the test's own not counted. */
unsigned fake_threads_started(void);

/* The next `times` threads that the core wants cannot be started. */
void fake_refuse_threads(unsigned times);

#endif
