#include "base/env.h"

#include <dlock/backend_thread.h>
#include <dlock/dlock.h>

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static int64_t clock_us(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int64_t dlock__now_us(void) {
    return clock_us(CLOCK_BOOTTIME);
}

void dlock__sleep_us(int64_t us) {
    const struct timespec time = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&time, NULL);
}

int dlock__random(void *buf, size_t size) {
    return getentropy(buf, size) == 0 ? 0 : DLOCK_EUNAVAILABLE;
}

void dlock__cond_init(pthread_cond_t *cond) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); /* BOOTTIME is not allowed here */
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

/* Stores `until_us` (CLOCK_BOOTTIME) in *t as a time of CLOCK_MONOTONIC, the clock that timed waits use. False if that
 * time has passed. */
static bool monotonic(int64_t until_us, struct timespec *t) {
    int64_t left = until_us - dlock__now_us();
    if (left <= 0) return false;
    int64_t now = clock_us(CLOCK_MONOTONIC);
    int64_t at = left > INT64_MAX - now ? INT64_MAX : now + left;
    t->tv_sec = (time_t)(at / 1000000);
    t->tv_nsec = (long)(at % 1000000) * 1000;
    return true;
}

void dlock__cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t until_us) {
    struct timespec t;
    if (until_us == DLOCK__NEVER)
        pthread_cond_wait(cond, mutex);
    else if (monotonic(until_us, &t))
        pthread_cond_timedwait(cond, mutex, &t);
}

void dlock__futex_wait(const atomic_uint *word, unsigned seen, uint32_t bits, int64_t until_us) {
    struct timespec t;
    bool ends = until_us != DLOCK__NEVER;
    if (ends && !monotonic(until_us, &t)) return;
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, seen, ends ? &t : NULL, NULL, bits);
}

void dlock__futex_wake(const atomic_uint *word, uint32_t bits) {
    syscall(SYS_futex, word, FUTEX_WAKE_BITSET_PRIVATE, INT_MAX, NULL, NULL, bits);
}

void dlock__poll(struct pollfd *fds, nfds_t n, int64_t until_us) {
    struct timespec left = {0};
    int64_t us = until_us == DLOCK__NEVER ? 0 : until_us - dlock__now_us();
    if (us > 0) left = (struct timespec){.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};
    if (ppoll(fds, n, until_us == DLOCK__NEVER ? NULL : &left, NULL) >= 0) return;
    for (nfds_t i = 0; i < n; i++) fds[i].revents = 0;
}

/* True if this process may run on one processor only: the awaited thread cannot run while this one spins. */
static bool alone(void) {
    static atomic_int answer; /* 0: not asked yet */
    int known = atomic_load_explicit(&answer, memory_order_relaxed);
    if (known == 0) {
        cpu_set_t set;
        known = sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 1 ? 1 : 2;
        atomic_store_explicit(&answer, known, memory_order_relaxed);
    }
    return known == 2;
}

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("isb");
#endif
}

static bool changed(const atomic_uint *word, unsigned seen, int looks) {
    for (int i = 0; i < looks; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != seen) return true;
        relax();
    }
    return false;
}

bool dlock__spin(const atomic_uint *word, unsigned seen) {
    return !alone() && changed(word, seen, 400); /* about 10 us, the cost of one sleep and wake-up */
}

static bool yielded(const atomic_uint *word, unsigned seen) {
    sched_yield();
    return changed(word, seen, 1);
}

bool dlock__yield_once(const atomic_uint *word, unsigned seen) {
    return yielded(word, seen) || yielded(word, seen); /* a second yield, since the thread that ran in between may have
                                                        * yielded, too */
}

void dlock__yield(void) {
    sched_yield();
}

int dlock__cpu(void) {
    return sched_getcpu();
}

bool dlock__spin_then_yield(const atomic_uint *word, unsigned seen) {
    for (int i = 0; i < 100; i++) /* about 100 us */
        if ((!alone() && changed(word, seen, 20)) || yielded(word, seen)) return true;
    return false;
}

void dlock__mutex_init(pthread_mutex_t *mutex) {
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
#ifdef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
#endif
    pthread_mutex_init(mutex, &attr);
    pthread_mutexattr_destroy(&attr);
}

uint64_t dlock__thread_id(void) {
    /* pthread_self() and thread ids are reused: a new thread would own the grants of a dead one. */
    static atomic_uint_fast64_t last;
    static _Thread_local uint64_t id;
    if (id == 0) id = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
    return id;
}

struct dlock__forking *dlock__forking(void) {
    static _Thread_local struct dlock__forking own;
    return &own;
}

int dlock__thread_start(pthread_t *thread, void *(*run)(void *), void *arg) {
    return dlock_start_thread(thread, run, arg) == 0 ? 0 : DLOCK_ENOMEM;
}

int dlock__timer_open(void) {
    return timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
}

void dlock__timer_set(int fd, int64_t at_us) {
    if (at_us < 1) at_us = 1; /* zero would disarm it */
    struct itimerspec at = {
        .it_value = {.tv_sec = (time_t)(at_us / 1000000), .tv_nsec = (long)(at_us % 1000000) * 1000}};
    timerfd_settime(fd, TFD_TIMER_ABSTIME, &at, NULL);
}
