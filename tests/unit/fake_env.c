/* The fake environment: see fake_env.h.
 *
 * Is the process idle? A thread that another one wakes is runnable at once, so "every thread sleeps" would be enough if
 * all of them could be looked at in one instant. They are looked at twice instead: a thread that sleeps in both looks
 * with the same number of context switches slept in between, and the time between the looks is common to all threads.
 */
#include "fake_env.h"

#include <dlock/dlock.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MAX_THREADS = 256, MAX_TIMERS = 64, MAX_STEPS = 200000, PATIENCE_S = 20, PATIENCE_LOOKS = 20000 };

/* A fixed time, far from zero, so that nothing mistakes a duration for a time. */
static const int64_t epoch_us = INT64_C(1000000000000);

struct waiter {
    pthread_cond_t *cond;    /* NULL: a futex or descriptors, and then */
    const atomic_uint *word; /* … what it waits on, or NULL */
    int end;                 /* descriptors: an eventfd beside them, for the end of the wait */
    uint32_t bits;
    atomic_uint woken;
    int64_t until_us;
    pthread_t thread;
    struct waiter *next;
};

struct timer {
    int fd;  /* the core's, which closes it without a word */
    int own; /* ours for the same eventfd, so that a number used again is never written to; -1: slot is free */
    int64_t at_us;
};

struct task {
    bool used, foreign; /* foreign: the test's own */
    pid_t tid;          /* 0: not running yet */
    int status;         /* the file that tells how it is, open from the first look to its end; -1: none */
    pid_t looker;       /* the process that opened it: a child has none of these threads */
    unsigned long switches;
};

struct start {
    void *(*run)(void *);
    void *arg;
    struct task *task;
};

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER; /* of everything below; innermost */
static _Atomic int64_t clock_us = INT64_C(1000000000000);
static struct waiter *waiters;
static pthread_t stopped; /* while is_stopped */
static bool is_stopped;
static int stop_pipe[2];
static atomic_bool goes_on; /* the stopped thread no longer reads the pipe */
static struct timer timers[MAX_TIMERS];
static bool timers_ready;
static struct task tasks[MAX_THREADS];
static unsigned threads_started;
static unsigned threads_refused; /* this many more of the core's are refused */
static uint64_t random_state = 1;

static bool staying;
static unsigned away;
static pthread_cond_t back = PTHREAD_COND_INITIALIZER;

static _Atomic int64_t spin_us;
static atomic_uint spinning;

static int64_t real_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void fail(const char *what) {
    fprintf(stderr, "fake_env: %s\n", what);
    abort();
}

/* ---- env.h ------------------------------------------------------------------------------------------------------- */

int64_t dlock__now_us(void) {
    return atomic_load(&clock_us);
}

void dlock__sleep_us(int64_t us) {
    atomic_fetch_add(&clock_us, us);
}

int dlock__random(void *buf, size_t size) {
    unsigned char *bytes = buf;
    pthread_mutex_lock(&guard);
    for (size_t i = 0; i < size; i++) {
        random_state ^= random_state << 13;
        random_state ^= random_state >> 7;
        random_state ^= random_state << 17;
        bytes[i] = (unsigned char)(random_state >> 24);
    }
    pthread_mutex_unlock(&guard);
    return 0;
}

/* Spinning is off unless a test asks for it, so that tests see every wait. */
bool dlock__spin(const atomic_uint *word, unsigned seen) {
    if (spin_us == 0) return false;
    int64_t until_us = real_us() + spin_us;
    bool changed = false;
    atomic_fetch_add(&spinning, 1);
    while (!changed && real_us() < until_us) {
        sched_yield();
        changed = atomic_load(word) != seen;
    }
    atomic_fetch_sub(&spinning, 1);
    return changed;
}

bool dlock__yield_once(const atomic_uint *word, unsigned seen) {
    return dlock__spin(word, seen);
}

void dlock__yield(void) {
    pthread_mutex_lock(&guard);
    away++;
    while (staying) pthread_cond_wait(&back, &guard);
    away--;
    pthread_mutex_unlock(&guard);
    sched_yield();
}

int dlock__cpu(void) {
    return 0;
}

bool dlock__spin_then_yield(const atomic_uint *word, unsigned seen) {
    return dlock__spin(word, seen);
}

void dlock__mutex_init(pthread_mutex_t *mutex) {
    pthread_mutex_init(mutex, NULL);
}

void dlock__cond_init(pthread_cond_t *cond) {
    pthread_cond_init(cond, NULL);
}

/* With the guard. */
static void wake(struct waiter *waiter) {
    if (waiter->cond) {
        pthread_cond_broadcast(waiter->cond);
    } else if (!waiter->word) {
        eventfd_write(waiter->end, 1);
    } else {
        atomic_store(&waiter->woken, 1);
        syscall(SYS_futex, &waiter->woken, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    }
}

static void waiter_add(struct waiter *self) {
    self->next = waiters;
    waiters = self;
}

static void waiter_remove(struct waiter *self) {
    struct waiter **at = &waiters;
    while (*at != self) at = &(*at)->next;
    *at = self->next;
}

void dlock__cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t until_us) {
    struct waiter self = {.cond = cond, .until_us = until_us, .thread = pthread_self()};
    if (until_us <= dlock__now_us()) {
        pthread_mutex_unlock(mutex);
        sched_yield();
        pthread_mutex_lock(mutex);
        return;
    }
    pthread_mutex_lock(&guard);
    waiter_add(&self);
    pthread_mutex_unlock(&guard);

    pthread_cond_wait(cond, mutex);

    pthread_mutex_lock(&guard);
    waiter_remove(&self);
    pthread_mutex_unlock(&guard);
}

void dlock__futex_wait(const atomic_uint *word, unsigned seen, uint32_t bits, int64_t until_us) {
    struct waiter self = {.word = word, .bits = bits, .until_us = until_us, .thread = pthread_self()};
    pthread_mutex_lock(&guard);
    bool waits = atomic_load(word) == seen && until_us > dlock__now_us();
    if (waits) waiter_add(&self);
    pthread_mutex_unlock(&guard);
    if (!waits) {
        sched_yield();
        return;
    }
    while (atomic_load(&self.woken) == 0) syscall(SYS_futex, &self.woken, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    pthread_mutex_lock(&guard);
    waiter_remove(&self);
    pthread_mutex_unlock(&guard);
}

void dlock__futex_wake(const atomic_uint *word, uint32_t bits) {
    const atomic_uint *woken[MAX_THREADS];
    size_t n = 0;
    pthread_mutex_lock(&guard);
    for (struct waiter *waiter = waiters; waiter; waiter = waiter->next) {
        if (waiter->word != word || !(waiter->bits & bits)) continue;
        atomic_store(&waiter->woken, 1);
        woken[n++] = &waiter->woken;
    }
    pthread_mutex_unlock(&guard);
    /* As the real one does it: a system call, and nothing that the woken thread would have to wait for. */
    for (size_t i = 0; i < n; i++) syscall(SYS_futex, woken[i], FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void dlock__poll(struct pollfd *fds, nfds_t n, int64_t until_us) {
    struct waiter self = {.end = eventfd(0, EFD_CLOEXEC), .until_us = until_us, .thread = pthread_self()};
    struct pollfd all[8];
    if (self.end < 0 || n >= sizeof all / sizeof *all) fail("cannot poll");
    memcpy(all, fds, n * sizeof *fds);
    all[n] = (struct pollfd){.fd = self.end, .events = POLLIN};
    pthread_mutex_lock(&guard);
    bool waits = until_us > dlock__now_us();
    if (waits) waiter_add(&self);
    pthread_mutex_unlock(&guard);
    for (nfds_t i = 0; i <= n; i++) all[i].revents = 0;
    if (poll(all, n + 1, waits ? -1 : 0) < 0)
        for (nfds_t i = 0; i < n; i++) all[i].revents = 0;
    memcpy(fds, all, n * sizeof *fds);
    pthread_mutex_lock(&guard);
    if (waits) waiter_remove(&self);
    pthread_mutex_unlock(&guard);
    close(self.end);
}

static void *trampoline(void *arg) {
    struct start start = *(struct start *)arg;
    free(arg);
    pthread_mutex_lock(&guard);
    start.task->tid = (pid_t)syscall(SYS_gettid);
    bool foreign = start.task->foreign;
    pthread_mutex_unlock(&guard);
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGUSR1);
    if (foreign) pthread_sigmask(SIG_UNBLOCK, &stop, NULL);
    return start.run(start.arg);
}

/* A slot stays in use until /proc no longer shows its thread: only then has the thread's joiner woken up. */
static struct task *task_claim(bool foreign) {
    pthread_mutex_lock(&guard);
    struct task *task = NULL;
    for (size_t i = 0; i < MAX_THREADS && !task; i++)
        if (!tasks[i].used) task = &tasks[i];
    if (!task) fail("too many threads");
    *task = (struct task){.used = true, .foreign = foreign, .status = -1};
    if (!foreign) threads_started++;
    pthread_mutex_unlock(&guard);
    return task;
}

static int thread_start(pthread_t *thread, void *(*run)(void *), void *arg, bool foreign) {
    struct start *start = malloc(sizeof *start);
    if (!start) return DLOCK_ENOMEM;
    *start = (struct start){run, arg, task_claim(foreign)};
    struct task *task = start->task;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, trampoline, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!error) return 0;
    free(start);
    pthread_mutex_lock(&guard);
    task->used = false;
    pthread_mutex_unlock(&guard);
    return DLOCK_ENOMEM;
}

uint64_t dlock__thread_id(void) {
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
    pthread_mutex_lock(&guard);
    bool refused = threads_refused > 0;
    threads_refused -= refused;
    pthread_mutex_unlock(&guard);
    return refused ? DLOCK_ENOMEM : thread_start(thread, run, arg, false);
}

static void timers_prepare(void) {
    for (size_t i = 0; i < MAX_TIMERS && !timers_ready; i++) timers[i].own = -1;
    timers_ready = true;
}

static struct timer *timer_find(int fd) {
    for (size_t i = 0; i < MAX_TIMERS; i++)
        if (timers[i].own >= 0 && timers[i].fd == fd) return &timers[i];
    fail("a timer that was never opened");
    return NULL;
}

int dlock__timer_open(void) {
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) return -1;
    pthread_mutex_lock(&guard);
    timers_prepare();
    struct timer *slot = NULL;
    for (size_t i = 0; i < MAX_TIMERS; i++) {
        if (timers[i].own >= 0 && timers[i].fd == fd) { /* the descriptor was closed in the meantime */
            close(timers[i].own);
            timers[i].own = -1;
        }
        if (timers[i].own < 0 && !slot) slot = &timers[i];
    }
    if (!slot) fail("too many timers");
    *slot = (struct timer){fd, dup(fd), DLOCK__NEVER};
    pthread_mutex_unlock(&guard);
    return fd;
}

static void timer_signal(struct timer *timer) {
    timer->at_us = DLOCK__NEVER;
    eventfd_write(timer->own, 1);
}

void dlock__timer_set(int fd, int64_t at_us) {
    eventfd_t drained;
    pthread_mutex_lock(&guard);
    struct timer *timer = timer_find(fd);
    timer->at_us = at_us;
    if (at_us <= dlock__now_us())
        timer_signal(timer);
    else
        eventfd_read(timer->own, &drained);
    pthread_mutex_unlock(&guard);
}

/* ---- the test's side --------------------------------------------------------------------------------------------- */

void fake_env_reset(uint64_t seed) {
    fake_settle();
    pthread_mutex_lock(&guard);
    if (waiters) fail("reset while a thread waits");
    timers_prepare();
    for (size_t i = 0; i < MAX_TIMERS; i++) {
        if (timers[i].own >= 0) close(timers[i].own);
        timers[i].own = -1;
    }
    threads_started = threads_refused = 0;
    spin_us = 0;
    random_state = seed * 2 + 1;
    atomic_store(&clock_us, epoch_us);
    pthread_mutex_unlock(&guard);
}

static void status_open(struct task *task) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/status", (int)task->tid);
    task->status = open(path, O_RDONLY | O_CLOEXEC);
    task->looker = getpid();
}

/* Reads the kernel's state of a thread. False when it is gone. A test does so a hundred thousand times, hence without
 * stdio, and from a file that stays open. */
static bool task_look(struct task *task, char *state, unsigned long *switches) {
    char text[4096];
    *state = '?';
    *switches = 0;
    if (task->status < 0) status_open(task);
    ssize_t n = task->looker == getpid() ? pread(task->status, text, sizeof text - 1, 0) : -1;
    if (n <= 0) {
        if (task->status >= 0) close(task->status);
        task->status = -1;
        return false;
    }
    text[n] = '\0';
    const char *line = strstr(text, "\nState:"), *count = strstr(text, "\nvoluntary_ctxt_switches:");
    if (!line || !count) fail("/proc does not tell how a thread is");
    *state = line[8];
    unsigned long own, taken;
    if (sscanf(count, " voluntary_ctxt_switches: %lu nonvoluntary_ctxt_switches: %lu", &own, &taken) != 2)
        fail("/proc does not tell how often a thread slept");
    *switches = own + taken;
    return true;
}

/* Looks at every thread; true when all sleep and none ran since the look before. */
static bool tasks_unchanged(void) {
    bool same = true;
    for (size_t i = 0; i < MAX_THREADS; i++) {
        struct task *task = &tasks[i];
        char state;
        unsigned long switches;
        if (!task->used) continue;
        if (task->tid == 0) {
            same = false;
        } else if (!task_look(task, &state, &switches)) {
            task->used = false;
            same = false;
        } else {
            if (state != 'S' || switches != task->switches) same = false;
            task->switches = switches;
        }
    }
    return same;
}

/* Serves what is due: timers become readable, waiters are woken. True when a waiter has yet to notice. The waiter's
 * mutex cannot be taken here (it is outside `guard`), so a thread just starting to wait may miss this: call again. */
static bool serve_due(void) {
    int64_t now = dlock__now_us();
    bool due = false;
    for (size_t i = 0; i < MAX_TIMERS && timers_ready; i++)
        if (timers[i].own >= 0 && timers[i].at_us <= now) timer_signal(&timers[i]);
    for (struct waiter *waiter = waiters; waiter; waiter = waiter->next) {
        if (waiter->until_us > now) continue;
        wake(waiter);
        due = due || !(is_stopped && pthread_equal(waiter->thread, stopped));
    }
    return due;
}

static void complain(void) {
    fprintf(stderr, "fake_env: not idle after %d s and %d looks; clock %+.6f s\n", PATIENCE_S, PATIENCE_LOOKS,
            (double)(dlock__now_us() - epoch_us) / 1e6);
    for (size_t i = 0; i < MAX_THREADS; i++) {
        char state;
        unsigned long switches;
        if (!tasks[i].used) continue;
        task_look(&tasks[i], &state, &switches);
        fprintf(stderr, "  thread %d%s: state %c, %lu context switches\n", (int)tasks[i].tid,
                tasks[i].foreign ? " (the test's)" : "", state, switches);
    }
    abort();
}

/* A time limit alone would expire while the machine is suspended or gives us no processor time. */
struct patience {
    int64_t until_us;
    int looks;
};

static struct patience patience_begin(void) {
    return (struct patience){real_us() + PATIENCE_S * INT64_C(1000000), PATIENCE_LOOKS};
}

static void patience_use(struct patience *patience) {
    if (--patience->looks < 0 && real_us() > patience->until_us) complain();
}

void fake_settle(void) {
    struct patience patience = patience_begin();
    for (int quiet = 0; quiet < 2;) {
        pthread_mutex_lock(&guard);
        bool busy = serve_due();
        quiet = tasks_unchanged() && !busy ? quiet + 1 : 0;
        pthread_mutex_unlock(&guard);
        patience_use(&patience);
        if (quiet < 2) nanosleep(&(struct timespec){0, 50000}, NULL);
    }
}

int64_t fake_next_deadline_us(void) {
    int64_t now = dlock__now_us(), next = DLOCK__NEVER;
    pthread_mutex_lock(&guard);
    for (size_t i = 0; i < MAX_TIMERS && timers_ready; i++)
        if (timers[i].own >= 0 && timers[i].at_us > now && timers[i].at_us < next) next = timers[i].at_us;
    for (struct waiter *waiter = waiters; waiter; waiter = waiter->next)
        if (waiter->until_us > now && waiter->until_us < next) next = waiter->until_us;
    pthread_mutex_unlock(&guard);
    return next;
}

void fake_advance_us(int64_t us) {
    int64_t target = dlock__now_us() + us;
    fake_settle();
    for (int steps = 0; dlock__now_us() < target; steps++) {
        int64_t next = fake_next_deadline_us();
        if (steps > MAX_STEPS) fail("the core goes on setting deadlines a moment ahead");
        atomic_store(&clock_us, next < target ? next : target);
        fake_settle();
    }
}

void fake_advance_ms(int64_t ms) {
    fake_advance_us(ms * 1000);
}

bool fake_advance_next(void) {
    int64_t next = fake_next_deadline_us();
    if (next == DLOCK__NEVER) return false;
    atomic_store(&clock_us, next);
    fake_settle();
    return true;
}

void fake_jump_ms(int64_t ms) {
    atomic_fetch_add(&clock_us, ms * 1000);
}

void fake_suspend_ms(int64_t ms) {
    pthread_mutex_lock(&guard);
    for (struct waiter *waiter = waiters; waiter; waiter = waiter->next)
        waiter->until_us = waiter->until_us > DLOCK__NEVER - ms * 1000 ? DLOCK__NEVER : waiter->until_us + ms * 1000;
    atomic_fetch_add(&clock_us, ms * 1000);
    pthread_mutex_unlock(&guard);
}

int fake_thread_start(pthread_t *thread, void *(*run)(void *), void *arg) {
    return thread_start(thread, run, arg, true);
}

void fake_thread_join(pthread_t thread) {
    for (struct patience patience = patience_begin(); pthread_tryjoin_np(thread, NULL) != 0; patience_use(&patience))
        nanosleep(&(struct timespec){0, 50000}, NULL);
}

/* On the stopped thread: the interrupted wait continues afterwards. */
static void stop_here(int signal_number) {
    (void)signal_number;
    char byte;
    int before = errno;
    while (read(stop_pipe[0], &byte, 1) < 0 && errno == EINTR) {
    }
    atomic_store(&goes_on, true);
    errno = before;
}

void fake_thread_stop(pthread_t thread) {
    struct sigaction action = {.sa_handler = stop_here};
    if (is_stopped || pipe(stop_pipe) != 0 || sigaction(SIGUSR1, &action, NULL) != 0) fail("cannot stop a thread");
    stopped = thread;
    is_stopped = true;
    atomic_store(&goes_on, false);
    pthread_kill(thread, SIGUSR1);
    fake_settle();
}

void fake_thread_continue(void) {
    is_stopped = false;
    close(stop_pipe[1]);
    for (struct patience patience = patience_begin(); !atomic_load(&goes_on); patience_use(&patience))
        nanosleep(&(struct timespec){0, 50000}, NULL);
    fake_settle();
    close(stop_pipe[0]);
}

void fake_stay_away(void) {
    pthread_mutex_lock(&guard);
    staying = true;
    pthread_mutex_unlock(&guard);
}

void fake_come_back(void) {
    pthread_mutex_lock(&guard);
    staying = false;
    pthread_cond_broadcast(&back);
    pthread_mutex_unlock(&guard);
}

unsigned fake_away(void) {
    pthread_mutex_lock(&guard);
    unsigned n = away;
    pthread_mutex_unlock(&guard);
    return n;
}

void fake_spin_us(int64_t us) {
    atomic_store(&spin_us, us);
}

unsigned fake_spinning(void) {
    return atomic_load(&spinning);
}

unsigned fake_threads_started(void) {
    pthread_mutex_lock(&guard);
    unsigned started = threads_started;
    pthread_mutex_unlock(&guard);
    return started;
}

void fake_refuse_threads(unsigned times) {
    pthread_mutex_lock(&guard);
    threads_refused = times;
    pthread_mutex_unlock(&guard);
}
