/* Time, randomness and threads: everything the core takes from the machine. Unit tests link a fake instead. */
#ifndef DLOCK_CORE_BASE_ENV_H
#define DLOCK_CORE_BASE_ENV_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "No deadline", for every *_us argument below. */
#define DLOCK__NEVER INT64_MAX

/* CLOCK_BOOTTIME in microseconds: it goes on during suspend, as the servers' clocks do. No system call (vDSO). */
int64_t dlock__now_us(void);

/* The time from now_us to deadline_us as a backend's timeout_ms: rounded up, at least 1. */
static inline int dlock__timeout_ms(int64_t now_us, int64_t deadline_us) {
    if (deadline_us <= now_us) return 1;
    int64_t left = (deadline_us - now_us - 1) / 1000 + 1;
    return left > INT_MAX ? INT_MAX : (int)left;
}

/* Sleeps: for the guardian, whose only thread it is, and for a moment. */
void dlock__sleep_us(int64_t us);

/* Fills `buf` with at most 256 random bytes that nobody can guess. 0, or DLOCK_EUNAVAILABLE: the kernel has none. */
int dlock__random(void *buf, size_t size);

/* A condition variable for dlock__cond_wait. */
void dlock__cond_init(pthread_cond_t *cond);

/* Waits for a signal or until `until_us`, whichever is first; spurious returns happen. */
void dlock__cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t until_us);

/* Waits while *word is `seen`, until a dlock__futex_wake with one of these bits or until `until_us`; spurious returns
 * happen. */
void dlock__futex_wait(const atomic_uint *word, unsigned seen, uint32_t bits, int64_t until_us);

/* Wakes all threads that wait on this word with one of these bits, by one system call. The word itself is not looked
 * at: a thread that saw it change may have freed it. */
void dlock__futex_wake(const atomic_uint *word, uint32_t bits);

/* Looks at *word for some microseconds, without a system call: true as soon as it is not `seen` any more. */
bool dlock__spin(const atomic_uint *word, unsigned seen);

/* As dlock__spin when the waker runs on this processor: yields instead of spinning. Two threads that share a lock on a
 * Redis server, on one processor, get through 1.37 times as many turns by that (`dlock bench -w one-lock --threads 2`);
 * 16 threads, and two processors, through as many. */
bool dlock__yield_once(const atomic_uint *word, unsigned seen);

/* Yields to every thread that is ready on this processor. */
void dlock__yield(void);

/* Where the calling thread runs. */
int dlock__cpu(void);

/* As dlock__spin for ten times as long, yielding in between: the waker may run on any processor. Two threads that share
 * a lock get through 1.5 times as many turns by that on two processors, on files and with a Redis server, and 1.2 times
 * as many with the latter on one; 16 threads through as many. */
bool dlock__spin_then_yield(const atomic_uint *word, unsigned seen);

/* A mutex that is never held for long: who finds it taken spins before it sleeps. */
void dlock__mutex_init(pthread_mutex_t *mutex);

/* The calling thread's number, which no other one ever gets. */
uint64_t dlock__thread_id(void);

/* Starts a thread with every signal blocked, so that the application's handlers never run on it. 0 or DLOCK_ENOMEM. */
int dlock__thread_start(pthread_t *thread, void *(*run)(void *), void *arg);

/* A descriptor that polls readable from `at_us` on, until a later dlock__timer_set. -1: none left. */
int dlock__timer_open(void);
void dlock__timer_set(int fd, int64_t at_us);

#endif
