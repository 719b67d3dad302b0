/* Time, randomness and threads: everything the core takes from the machine. Unit tests link a fake instead. */
#ifndef DLOCK_CORE_BASE_ENV_H
#define DLOCK_CORE_BASE_ENV_H

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "No deadline", for every *_us argument below. */
#define DLOCK__NEVER INT64_MAX

/* CLOCK_BOOTTIME in microseconds: advances during suspend, as the servers' clocks do. No system call (vDSO). */
int64_t dlock__now_us(void);

/* The time from now_us to deadline_us as a backend's timeout_ms: rounded up, at least 1. */
static inline int dlock__timeout_ms(int64_t now_us, int64_t deadline_us) {
    if (deadline_us <= now_us) return 1;
    int64_t left = (deadline_us - now_us - 1) / 1000 + 1;
    return left > INT_MAX ? INT_MAX : (int)left;
}

/* Sleeps for `us` microseconds. For short pauses, and for the guardian, which has no other thread. */
void dlock__sleep_us(int64_t us);

/* Fills `buf` with at most 256 random bytes that cannot be guessed. Returns 0, or DLOCK_EUNAVAILABLE if the kernel has
 * none. */
int dlock__random(void *buf, size_t size);

/* Initializes a condition variable for dlock__cond_wait. */
void dlock__cond_init(pthread_cond_t *cond);

/* Waits for a signal or until `until_us`; spurious returns happen. */
void dlock__cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t until_us);

/* Waits while *word is `seen`, until a dlock__futex_wake that shares a bit with `bits`, or until `until_us`; spurious
 * returns happen. */
void dlock__futex_wait(const atomic_uint *word, unsigned seen, uint32_t bits, int64_t until_us);

/* Wakes all threads that wait on this word with one of these bits, in one system call. Does not read the word, which a
 * thread that saw it change may already have freed. */
void dlock__futex_wake(const atomic_uint *word, uint32_t bits);

/* As poll() of n descriptors (at most 4), until `until_us`; spurious returns happen. */
void dlock__poll(struct pollfd *fds, nfds_t n, int64_t until_us);

/* Reads *word repeatedly for about 10 us, without a system call. True as soon as it is no longer `seen`. */
bool dlock__spin(const atomic_uint *word, unsigned seen);

/* As dlock__spin when the waker runs on this processor: yields instead of spinning. Measured with two threads that
 * share a lock on a Redis server, on one processor: 1.37 times as many turns (`dlock bench -w one-lock --threads 2`);
 * no difference with 16 threads, nor with two processors. */
bool dlock__yield_once(const atomic_uint *word, unsigned seen);

/* Yields to every thread that is ready to run on this processor. */
void dlock__yield(void);

/* The number of the processor that the calling thread runs on. */
int dlock__cpu(void);

/* As dlock__spin for ten times as long, with yields in between, for a waker on any processor. Measured with two threads
 * that share a lock: 1.5 times as many turns on two processors, on files and with a Redis server; on one processor 1.2
 * times as many with Redis. No difference with 16 threads. */
bool dlock__spin_then_yield(const atomic_uint *word, unsigned seen);

/* Initializes a mutex for short critical sections: a thread that finds it taken spins before it sleeps. */
void dlock__mutex_init(pthread_mutex_t *mutex);

/* The calling thread's number, which is never given to another thread. */
uint64_t dlock__thread_id(void);

/* What base/forking.c knows about the calling thread: zeroed at its begin. */
struct dlock__forking {
    unsigned calls; /* of foreign code in progress; it may fork within them, in a callback */
    bool loads;     /* a module; what that does then may fork as well */
};
struct dlock__forking *dlock__forking(void);

/* Starts a thread with every signal blocked, so that the application's handlers never run on it, and with ordinary
 * scheduling, whatever the calling thread has. Returns 0 or DLOCK_ENOMEM. */
int dlock__thread_start(pthread_t *thread, void *(*run)(void *), void *arg);

/* Opens a timer: a descriptor that polls readable from the time of the last dlock__timer_set on. -1 if no descriptor is
 * left. */
int dlock__timer_open(void);
void dlock__timer_set(int fd, int64_t at_us);

#endif
