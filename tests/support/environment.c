/* core/base/env.h in simulated time, and the functions of the C library that the core calls directly: the linker
 * replaces those by the functions named __wrap_… (ld --wrap). */
#include "scheduler.h"
#include "tsan.h"

#include "base/env.h"

#include <dlock/dlock.h>

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The linker puts the functions named __wrap_… in the place of others: nothing else names them. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

/* ---- time, random numbers, threads ---- */

int64_t dlock__now_us(void) {
    return sim_local_us(sim_host(), sim_now_us());
}

static int64_t global(int64_t until_us) {
    return sim_global_us(sim_host(), until_us);
}

int dlock__random(void *buf, size_t size) {
    unsigned char *bytes = buf;
    for (size_t i = 0; i < size; i++) bytes[i] = (unsigned char)sim_random();
    return 0;
}

uint64_t dlock__thread_id(void) {
    return sim_self() + UINT64_C(1);
}

struct dlock__forking *dlock__forking(void) {
    return sim_forking();
}

/* ---- mutexes and conditions: a mutex stores the number of the thread that has it ---- */

enum { MUTEXES = 16 };
static const void *held[512][MUTEXES];

static void note(const void *mutex, const void *is) {
    const void **slots = held[sim_self()];
    for (size_t i = 0; i < MUTEXES; i++) {
        if (slots[i] != mutex) continue;
        slots[i] = is;
        return;
    }
}

/* True if the thread has one of the program's own mutexes; those of clients are allocated. */
bool sim_holds_shared(unsigned thread);
bool sim_holds_shared(unsigned thread) {
    extern char __data_start[], _end[];
    for (size_t i = 0; i < MUTEXES; i++)
        if ((const char *)held[thread][i] >= __data_start && (const char *)held[thread][i] < _end) return true;
    return false;
}

static unsigned *owner(pthread_mutex_t *mutex) {
    return (unsigned *)(void *)mutex;
}

void dlock__mutex_init(pthread_mutex_t *mutex) {
    memset(mutex, 0, sizeof *mutex);
    __tsan_mutex_create(mutex, __tsan_mutex_not_static);
}

static unsigned long calls[sizeof held / sizeof *held]; /* by threads */

unsigned long sim_calls(void) {
    return calls[sim_self()];
}

/* Where a real thread would call the kernel. */
static void note_calls(unsigned n) {
    calls[sim_self()] += n;
}

static void lock(pthread_mutex_t *mutex) {
    for (; *owner(mutex); note_calls(1)) sim_wait(mutex, 1, SIM_NEVER);
    *owner(mutex) = sim_self() + 1;
    __tsan_mutex_pre_lock(mutex, 0);
    __tsan_mutex_post_lock(mutex, 0, 0);
    note(NULL, mutex);
}

static void unlock(pthread_mutex_t *mutex) {
    if (*owner(mutex) != sim_self() + 1) sim_fail("a mutex is left by a thread that does not have it");
    *owner(mutex) = 0;
    __tsan_mutex_pre_unlock(mutex, 0);
    __tsan_mutex_post_unlock(mutex, 0);
    note(mutex, NULL);
    note_calls(sim_wake(mutex, 1, 1));
}

int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const void *attributes) {
    (void)attributes;
    dlock__mutex_init(mutex);
    return 0;
}

int __wrap_pthread_mutex_destroy(pthread_mutex_t *mutex) {
    if (*owner(mutex)) sim_fail("a mutex is destroyed that somebody has");
    __tsan_mutex_destroy(mutex, __tsan_mutex_not_static);
    return 0;
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex) {
    sim_pause();
    lock(mutex);
    return 0;
}

int __wrap_pthread_mutex_trylock(pthread_mutex_t *mutex) {
    if (*owner(mutex)) return EBUSY;
    lock(mutex);
    return 0;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex) {
    unlock(mutex);
    sim_pause();
    return 0;
}

void dlock__cond_init(pthread_cond_t *cond) {
    memset(cond, 0, sizeof *cond);
}

void dlock__cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t until_us) {
    unlock(mutex);
    note_calls(1);
    if (global(until_us) > sim_now_us()) sim_wait(cond, 1, global(until_us));
    lock(mutex);
}

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex) {
    dlock__cond_wait(cond, mutex, SIM_NEVER);
    return 0;
}

int __wrap_pthread_cond_destroy(pthread_cond_t *cond) {
    (void)cond;
    return 0;
}

int __wrap_pthread_cond_signal(pthread_cond_t *cond) {
    note_calls(sim_wake(cond, 1, sim_chance(20) ? 2 : 1) > 0); /* POSIX: at least one */
    return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *cond) {
    note_calls(sim_wake(cond, 1, UINT32_MAX) > 0);
    return 0;
}

void dlock__futex_wait(const atomic_uint *word, unsigned seen, uint32_t bits, int64_t until_us) {
    sim_pause();
    note_calls(1);
    if (atomic_load(word) == seen && global(until_us) > sim_now_us()) sim_wait(word, bits, global(until_us));
}

void dlock__futex_wake(const atomic_uint *word, uint32_t bits) {
    sim_pause();
    note_calls(1);
    sim_wake(word, bits, UINT32_MAX);
}

int __wrap_pthread_join(pthread_t thread, void **result) {
    if (result) *result = NULL;
    sim_join((unsigned)thread, SIM_NEVER);
    return 0;
}

int __wrap_pthread_tryjoin_np(pthread_t thread, void **result) {
    if (result) *result = NULL;
    return sim_join((unsigned)thread, 0) ? 0 : EBUSY;
}

pthread_t __wrap_pthread_self(void) {
    return sim_self();
}

int __wrap_pthread_detach(pthread_t thread) {
    (void)thread;
    return 0;
}

/* ---- descriptors: each is a counter, as an eventfd; timers are those with a time ---- */

enum { FIRST_FD = 1 << 20, DESCRIPTORS = 512 };
static struct descriptor {
    bool used;
    uint64_t count;
    int64_t at_us; /* SIM_NEVER: no timer, or not set */
} descriptors[DESCRIPTORS];
static int descriptors_end; /* no element from here on was ever used */
static int changed;         /* threads in poll() wait on its address */
static unsigned descriptors_refused;

static struct descriptor *of(int fd) {
    note_calls(1);
    if (fd < FIRST_FD || fd >= FIRST_FD + DESCRIPTORS || !descriptors[fd - FIRST_FD].used)
        sim_fail("a descriptor is used that is not open: %d", fd);
    return &descriptors[fd - FIRST_FD];
}

void sim_descriptors_fail(unsigned per_mille) {
    descriptors_refused = per_mille;
}

int sim_descriptor(void) {
    if (sim_chance(descriptors_refused)) {
        errno = EMFILE;
        return -1;
    }
    for (int i = 0; i < DESCRIPTORS; i++) {
        if (descriptors[i].used) continue;
        descriptors[i] = (struct descriptor){.used = true, .at_us = SIM_NEVER};
        if (i == descriptors_end) descriptors_end++;
        return FIRST_FD + i;
    }
    sim_fail("descriptors are not closed");
}

void sim_signal(int fd) {
    of(fd)->count++;
    sim_wake(&changed, 1, UINT32_MAX);
}

void sim_drain(int fd) {
    of(fd)->count = 0;
}

void sim_close(int fd) {
    of(fd)->used = false;
}

int __wrap_eventfd(unsigned count, int flags) {
    (void)count;
    (void)flags;
    return sim_descriptor();
}

int dlock__timer_open(void) {
    return sim_descriptor();
}

void dlock__timer_set(int fd, int64_t at_us) {
    of(fd)->at_us = global(at_us);
    sim_drain(fd);
    sim_wake(&changed, 1, UINT32_MAX);
}

ssize_t __real_read(int fd, void *buf, size_t size);
ssize_t __wrap_read(int fd, void *buf, size_t size) {
    if (fd < FIRST_FD) return __real_read(fd, buf, size);
    uint64_t count = of(fd)->count;
    sim_drain(fd);
    if (count == 0) {
        errno = EAGAIN;
        return -1;
    }
    memcpy(buf, &count, sizeof count);
    return sizeof count;
}

ssize_t __real_write(int fd, const void *buf, size_t size);
ssize_t __wrap_write(int fd, const void *buf, size_t size) {
    if (fd < FIRST_FD) return __real_write(fd, buf, size);
    sim_signal(fd);
    return (ssize_t)size;
}

int __real_close(int fd);
int __wrap_close(int fd) {
    if (fd < FIRST_FD) return __real_close(fd);
    sim_close(fd);
    return 0;
}

int __wrap_eventfd_read(int fd, uint64_t *count) {
    return __wrap_read(fd, count, sizeof *count) < 0 ? -1 : 0;
}

int __wrap_eventfd_write(int fd, uint64_t count) {
    return __wrap_write(fd, &count, sizeof count) < 0 ? -1 : 0;
}

int64_t sim_next_timer_us(void) {
    int64_t next_us = SIM_NEVER;
    for (int i = 0; i < descriptors_end; i++) {
        const struct descriptor *d = &descriptors[i];
        if (d->used && d->at_us > sim_now_us() && d->at_us < next_us) next_us = d->at_us;
    }
    return next_us;
}

unsigned sim_descriptors(void) {
    unsigned n = 0;
    for (int i = 0; i < descriptors_end; i++) n += descriptors[i].used;
    return n;
}

static bool is_open(int fd) {
    return fd >= FIRST_FD && fd < FIRST_FD + DESCRIPTORS && descriptors[fd - FIRST_FD].used;
}

/* `waits`: other threads may have closed the descriptors since the wait began, which the kernel does not report. */
static int look(struct pollfd *fds, nfds_t n, bool waits, int64_t *next_us) {
    int ready = 0;
    *next_us = SIM_NEVER;
    for (nfds_t i = 0; i < n; i++) {
        fds[i].revents = 0;
        if (fds[i].fd < 0 || (waits && !is_open(fds[i].fd))) continue;
        struct descriptor *d = of(fds[i].fd);
        if (d->at_us <= sim_now_us()) {
            d->at_us = SIM_NEVER;
            d->count++;
        }
        if (d->at_us < *next_us) *next_us = d->at_us;
        if (d->count == 0) continue;
        fds[i].revents = POLLIN;
        ready++;
    }
    return ready;
}

static int poll_until(struct pollfd *fds, nfds_t n, bool waits, int64_t until_us) {
    int64_t next_us;
    if (sim_chance(descriptors_refused)) {
        errno = sim_chance(500) ? ENOMEM : EINTR;
        return -1;
    }
    for (int ready;;) {
        sim_pause();
        if ((ready = look(fds, n, waits, &next_us)) > 0 || sim_now_us() >= until_us) return ready;
        (next_us < until_us ? sim_wait_for_timer : sim_wait)(&changed, 1, next_us < until_us ? next_us : until_us);
    }
}

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms) {
    return poll_until(fds, n, false, timeout_ms < 0 ? SIM_NEVER : sim_now_us() + timeout_ms * INT64_C(1000));
}

void dlock__poll(struct pollfd *fds, nfds_t n, int64_t until_us) {
    if (poll_until(fds, n, true, global(until_us)) >= 0) return;
    for (nfds_t i = 0; i < n; i++) fds[i].revents = 0;
}
