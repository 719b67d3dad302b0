/* Threads with real-time priorities, in the real environment. The library's threads have none. When priorities differ
 * on one processor, the woken thread may run before its waker has continued, and must not wait for that. */
#include "support/test.h"

#include <dlock/backend.h>

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 1000, ROUNDS_IN_A_ROW = 100, PATIENCE_S = 60 };

extern const struct dlock_backend dlock_backend_toy;

static dlock_client *client;
static dlock_lock *locks[2];
static unsigned had;
static atomic_bool over, resting;

static dlock_lock *new_lock(void) {
    dlock_lock *lock;
    if (dlock_new(client, "n", NULL, &lock, NULL) != 0) abort();
    return lock;
}

static void set_priority(int priority) {
    struct sched_param param = {.sched_priority = priority};
    cpu_set_t first;
    CPU_ZERO(&first);
    if (sched_getaffinity(0, sizeof first, &first) != 0) abort();
    int cpu = 0;
    while (!CPU_ISSET(cpu, &first)) cpu++;
    CPU_ZERO(&first);
    CPU_SET(cpu, &first);
    if (pthread_setaffinity_np(pthread_self(), sizeof first, &first) != 0) abort();
    if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &param) != 0) abort();
}

static void spend_us(int64_t us) {
    struct timespec begun, now;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - begun.tv_sec) * 1000000 + (now.tv_nsec - begun.tv_nsec) / 1000 < us);
}

static void sleep_for_us(int us) {
    nanosleep(&(struct timespec){0, us * 1000L}, NULL);
}

/* Leaves the processor to other programs: they may be tests that measure time. */
static void rest(void) {
    atomic_store(&resting, true);
    sleep_for_us(100000);
    atomic_store(&resting, false);
}

/* Has the lock nearly always, and works while it does. */
static void *low(void *arg) {
    dlock_lock *lock = arg;
    set_priority(1);
    for (unsigned i = 0; !atomic_load(&over); i++) {
        if (dlock_acquire(lock, -1, NULL) != 0) continue;
        spend_us(900 + i * 7 % 200); /* about as long as the other one waits: releases and time-outs coincide */
        dlock_release(lock, NULL);
        while (atomic_load(&resting)) sleep_for_us(1000);
    }
    return NULL;
}

static void *high(void *arg) {
    dlock_lock *lock = arg;
    set_priority(10);
    for (int i = 0; i < ROUNDS; i++) {
        sleep_for_us(50); /* the other one takes the lock */
        if (dlock_acquire(lock, 1, NULL) == 0) {
            had++;
            dlock_release(lock, NULL);
        }
        if (i % ROUNDS_IN_A_ROW == 0) rest();
    }
    atomic_store(&over, true);
    return NULL;
}

static bool may_be_realtime(void) {
    struct sched_param param = {.sched_priority = 1}, none = {0};
    if (sched_setscheduler(0, SCHED_FIFO, &param) != 0) return false;
    return sched_setscheduler(0, SCHED_OTHER, &none) == 0;
}

static void need_realtime(void) {
    if (may_be_realtime()) return;
    print_message("skipped: this user may not have real-time priorities (ulimit -r)\n");
    skip();
}

/* How many threads this process has, and how many of them have a real-time priority. */
struct census {
    int threads, realtime;
};

static void take_census(struct census *census) {
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks) abort();
    *census = (struct census){0};
    for (const struct dirent *task; (task = readdir(tasks));) {
        if (task->d_name[0] == '.') continue;
        int policy = sched_getscheduler(atoi(task->d_name));
        if (policy < 0) continue; /* it has ended */
        census->threads++;
        if (policy == SCHED_FIFO || policy == SCHED_RR) census->realtime++;
    }
    closedir(tasks);
}

static void ignore_loss(dlock_lock *lock, const struct dlock_error *why, void *arg) {
    (void)lock;
    (void)why;
    (void)arg;
}

/* It starts the keeper and the callback thread. */
static void *first_to_lock(void *arg) {
    struct sched_param param = {.sched_priority = 1};
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    dlock_lock *lock;
    options.on_lost = ignore_loss;
    if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &param) != 0) abort();
    if (dlock_open("toy:", NULL, &client, NULL) != 0) abort();
    if (dlock_new(client, "n", &options, &lock, NULL) != 0 || dlock_acquire(lock, 0, NULL) != 0) abort();
    take_census(arg);
    dlock_release(lock, NULL);
    dlock_free(lock);
    dlock_close(client);
    return NULL;
}

/* A real-time thread may never yield to the other threads of its process. */
TEST(the_librarys_threads_are_ordinary_ones) {
    struct census before, census;
    pthread_t thread;
    need_realtime();
    take_census(&before);
    assert_int_equal(pthread_create(&thread, NULL, first_to_lock, &census), 0);
    pthread_join(thread, NULL);
    assert_true(census.threads >= before.threads + 3); /* a sanitizer may also have started one */
    assert_int_equal(census.realtime, 1);
}

TEST(a_waiter_does_not_wait_for_a_releaser_of_lower_priority) {
    need_realtime();
    pthread_t threads[2];
    struct timespec until;
    assert_int_equal(dlock_open("toy:", NULL, &client, NULL), 0);
    for (int i = 0; i < 2; i++) locks[i] = new_lock();
    /* The library's threads start here: as children of `low`, which never blocks, they would never run. */
    assert_int_equal(dlock_acquire(locks[0], 0, NULL), 0);
    assert_int_equal(dlock_release(locks[0], NULL), 0);
    set_priority(20); /* else `low` leaves this thread no time to start `high` */
    assert_int_equal(pthread_create(&threads[0], NULL, low, locks[0]), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, high, locks[1]), 0);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    if (pthread_timedjoin_np(threads[1], NULL, &until) != 0) {
        print_error("the thread of higher priority runs for ever\n");
        _Exit(1);
    }
    pthread_join(threads[0], NULL);
    print_message("granted in time: %u of %d\n", had, ROUNDS);
    assert_true(had > 0 && had < ROUNDS);
    for (int i = 0; i < 2; i++) dlock_free(locks[i]);
    dlock_close(client);
}

static int begin(void **state) {
    (void)state;
    return dlock_register(&dlock_backend_toy, NULL);
}

TESTS(NULL, NULL, begin, NULL)
