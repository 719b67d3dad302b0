/* dlock-faults-worker URI HISTORY WHO SEED THREADS PACE NAMES LEASE_MS [MODULE]: one process of the fault suite. Its
 * threads take NAMES locks in every way that the library offers, hold them for a while, release them, and append each
 * grant to the history (tests/support/history.h) before they continue. PACE is one of `paces`. One more thread takes
 * the steady lock, which has the number NAMES, in the simplest way and for BRIEFLY_US at most, so that a long wait for
 * it cannot be due to its holder. After SIGTERM each of the other threads takes every lock once more, which must
 * succeed. With MODULE, the library of the URI's backend, the process finally prints how many acquires got no answer.
 * Exits with 0, or with 1 after an error that no fault explains or a lock that was never granted again. */
#include "unheard.h"

#include <dlock/dlock.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum {
    LIMIT = 2,
    LAST_WAIT_MS = 60000,
    THREADS_MAX = 64,
    LOOK_MS = 100,
    STEADY_WAIT_MS = 10000,
    STEADY_PAUSE_US = 3000,
    LUCK = 100000,
    BRIEFLY_US = 2000,
    LONG_US = 40000
};

/* The average pause of a thread between two holds, and the lengths of holds: a random number below LUCK makes a hold
 * last no time if it is below `none`, up to BRIEFLY_US below `briefly`, up to LONG_US below `longer`, and otherwise
 * longer than a lease. */
struct pace {
    const char *name;
    int pause_us;
    uint64_t none, briefly, longer;
};

static const struct pace paces[] = {{"walk", 3000, 50000, 90000, 99800}, {"run", 0, 99000, 99900, 99999}};

struct thread {
    pthread_t id;
    uint64_t random;
};

/* One hold of a lock, from the acquire to the release. */
struct hold {
    dlock_lock *lock;
    int id;
    char mode, name[16];
    int64_t asked, until;
    sem_t ended; /* posted at the end of an asynchronous call */
    int rc;
};

static dlock_client *client;
static bool shares, permits;
static int history, who, names;
static const struct pace *pace;
static int64_t lease_ms;
static atomic_int next_id, wrong;
static atomic_bool stopping;

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void sleep_us(int64_t us) {
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&time, NULL);
}

static uint64_t pick(struct thread *thread, uint64_t n) {
    thread->random ^= thread->random << 13;
    thread->random ^= thread->random >> 7;
    thread->random ^= thread->random << 17;
    return (thread->random >> 11) % n;
}

DLOCK_PRINTF(1, 2) static void note(const char *format, ...) {
    char line[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (write(history, line, (size_t)n) != n) abort();
}

static void complain(const char *call, const char *name, int rc, const struct dlock_error *err) {
    fprintf(stderr, "worker %d: %s of %s: %s: %s\n", who, call, name, dlock_strerror(rc), err ? err->message : "");
    atomic_store(&wrong, 1);
}

/* True if a fault can cause this result. DLOCK_ENOMEM: the disk was full before the lock's file existed. */
static bool explained(int rc) {
    return rc == 0 || rc == DLOCK_EBUSY || rc == DLOCK_ETIMEDOUT || rc == DLOCK_ENOTREADY || rc == DLOCK_EUNAVAILABLE ||
           rc == DLOCK_ELOST || rc == DLOCK_ECANCELED || rc == DLOCK_ENOMEM;
}

/* ---- a hold ------------------------------------------------------------------------------------------------------ */

static void lost(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    const struct hold *hold = arg;
    (void)lock, (void)err;
    note("lost %d %d %lld\n", who, hold->id, (long long)now_ns());
}

/* Returns the time until which the grant is valid, as far as the library knows now; 0 if it has ended. The clock is
 * read first: if the process is stopped in between, the result is too early, never too late. */
static int64_t look(const struct hold *hold) {
    int64_t now = now_ns(), left = dlock_remaining_ms(hold->lock);
    if (left == DLOCK_FOREVER) return INT64_MAX;
    return left ? now + left * 1000000 : 0;
}

static int limit_of(const struct hold *hold) {
    return hold->mode == 'p' ? LIMIT : 0;
}

static void hold_init(struct hold *hold, char mode, int number, uint32_t flags, enum dlock_owner owner) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    memset(hold, 0, sizeof *hold);
    hold->id = atomic_fetch_add(&next_id, 1) + 1;
    hold->mode = mode;
    snprintf(hold->name, sizeof hold->name, "%s%d", mode == 'p' ? "permit" : "lock", number);
    options.mode = mode == 'x' ? DLOCK_EXCLUSIVE : mode == 's' ? DLOCK_SHARED : DLOCK_PERMIT;
    options.limit = (uint32_t)limit_of(hold);
    options.owner = owner;
    options.flags = flags;
    options.on_lost = lost;
    options.on_lost_arg = hold;
    sem_init(&hold->ended, 0, 0);
    struct dlock_error err;
    int rc = dlock_new(client, hold->name, &options, &hold->lock, &err);
    if (rc == 0) return;
    complain("new", hold->name, rc, &err);
    exit(1);
}

static void hold_end(struct hold *hold) {
    dlock_free(hold->lock);
    sem_destroy(&hold->ended);
}

static void held(struct hold *hold) {
    int64_t now = now_ns();
    hold->until = look(hold);
    note("held %d %d %lld %lld %lld %s %c %d %llu\n", who, hold->id, (long long)now, (long long)hold->asked,
         (long long)hold->until, hold->name, hold->mode, limit_of(hold), (unsigned long long)dlock_fence(hold->lock));
}

static int64_t some_time_us(struct thread *thread) {
    uint64_t luck = pick(thread, LUCK);
    if (luck < pace->none) return 0;
    if (luck >= pace->longer) return 1500 * lease_ms;
    return (int64_t)pick(thread, luck < pace->briefly ? BRIEFLY_US : LONG_US);
}

static void work(struct thread *thread, struct hold *hold) {
    int64_t us = some_time_us(thread);
    for (int64_t end = now_ns() + us * 1000, now; (now = now_ns()) < end && !stopping;) {
        int64_t left_us = (end - now) / 1000;
        sleep_us(left_us < LOOK_MS * 1000 ? left_us : LOOK_MS * 1000);
        if (us < LOOK_MS * 1000) continue;
        int64_t until = look(hold);
        if (until > hold->until) note("still %d %d %lld\n", who, hold->id, (long long)until);
        if (until > hold->until) hold->until = until;
    }
}

/* Notes that a release begins now. Returns the time. */
static int64_t leave(const struct hold *hold) {
    int64_t now = now_ns();
    note("free %d %d %lld\n", who, hold->id, (long long)now);
    return now;
}

static void left(const struct hold *hold, int64_t at, int rc, const struct dlock_error *err) {
    if (rc == 0 && at > hold->until) note("freed %d %d\n", who, hold->id);
    if (!explained(rc)) complain("release", hold->name, rc, err);
}

static void give_back(struct hold *hold) {
    struct dlock_error err;
    int64_t at = leave(hold);
    left(hold, at, dlock_release(hold->lock, &err), &err);
}

/* ---- the ways to take a lock ------------------------------------------------------------------------------------- */

static int64_t some_timeout(struct thread *thread) {
    static const int64_t timeouts_ms[] = {0, 20, 500, 5000, 10000};
    return timeouts_ms[pick(thread, sizeof timeouts_ms / sizeof *timeouts_ms)];
}

static int take(struct hold *hold, int64_t timeout_ms) {
    struct dlock_error err;
    hold->asked = now_ns();
    int rc = dlock_acquire(hold->lock, timeout_ms, &err);
    if (rc == 0)
        held(hold);
    else if (!explained(rc))
        complain("acquire", hold->name, rc, &err);
    return rc;
}

static void plain(struct thread *thread, char mode, uint32_t flags) {
    struct hold hold;
    hold_init(&hold, mode, (int)pick(thread, (uint64_t)names), flags, (enum dlock_owner)pick(thread, 2));
    if (take(&hold, some_timeout(thread)) == 0) {
        work(thread, &hold);
        if ((flags & DLOCK_FIXED_LEASE) && pick(thread, 2)) dlock_extend(hold.lock, lease_ms, NULL);
        give_back(&hold);
    }
    hold_end(&hold);
}

/* Downgrades an exclusive hold to a shared one. In the history these are two successive holds. */
static void downgrade(struct thread *thread) {
    struct hold hold;
    hold_init(&hold, 'x', (int)pick(thread, (uint64_t)names), 0, DLOCK_OWNER_THREAD);
    if (take(&hold, some_timeout(thread)) == 0) {
        int64_t at = leave(&hold);
        struct dlock_error err;
        int rc = dlock_downgrade(hold.lock, &err);
        left(&hold, at, rc, &err);
        if (rc == 0) {
            hold.id = atomic_fetch_add(&next_id, 1) + 1;
            hold.mode = 's';
            held(&hold);
            work(thread, &hold);
            give_back(&hold);
        } else {
            dlock_release(hold.lock, NULL);
        }
    }
    hold_end(&hold);
}

static void ended(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    struct hold *hold = arg;
    (void)lock;
    hold->rc = err ? err->code : 0;
    sem_post(&hold->ended);
}

static int await(struct hold *hold) {
    while (sem_wait(&hold->ended) != 0) {
    }
    return hold->rc;
}

static void asynchronous(struct thread *thread) {
    struct hold hold;
    hold_init(&hold, 'x', (int)pick(thread, (uint64_t)names), 0, DLOCK_OWNER_HANDLE);
    hold.asked = now_ns();
    int rc = dlock_acquire_async(hold.lock, some_timeout(thread), ended, &hold);
    if (rc == 0) {
        if (pick(thread, 4) == 0) {
            sleep_us((int64_t)pick(thread, 3000));
            dlock_cancel(hold.lock);
        }
        rc = await(&hold);
    }
    if (!explained(rc)) complain("acquire_async", hold.name, rc, NULL);
    if (rc == 0) {
        held(&hold);
        work(thread, &hold);
        int64_t at = leave(&hold);
        rc = dlock_release_async(hold.lock, ended, &hold);
        left(&hold, at, rc == 0 ? await(&hold) : rc, NULL);
    }
    hold_end(&hold);
}

static void all(struct thread *thread) {
    struct hold holds[THREADS_MAX];
    dlock_lock *locks[THREADS_MAX];
    struct dlock_error err;
    size_t n = 0;
    for (int i = 0; i < names; i++) {
        hold_init(&holds[n], shares && pick(thread, 2) ? 's' : 'x', i, 0, DLOCK_OWNER_THREAD);
        locks[n] = holds[n].lock;
        n++;
    }
    int64_t asked = now_ns();
    int rc = dlock_acquire_all(locks, n, some_timeout(thread), &err);
    if (!explained(rc)) complain("acquire_all", "all", rc, &err);
    for (size_t i = 0; i < n && rc == 0; i++) {
        holds[i].asked = asked;
        held(&holds[i]);
    }
    if (rc == 0) work(thread, &holds[0]);
    for (size_t i = 0; i < n; i++) {
        if (rc == 0) give_back(&holds[i]);
        hold_end(&holds[i]);
    }
}

static void use(struct thread *thread) {
    switch (pick(thread, 10)) {
    case 0: asynchronous(thread); break;
    case 1: all(thread); break;
    case 2: plain(thread, 'x', DLOCK_FIXED_LEASE); break;
    case 3:
    case 4:
        if (permits) plain(thread, 'p', 0);
        break;
    case 5:
    case 6:
        if (shares) plain(thread, 's', 0);
        break;
    case 7:
        if (shares) downgrade(thread);
        break;
    default: plain(thread, 'x', 0);
    }
}

static void steady(struct thread *thread) {
    struct hold hold;
    hold_init(&hold, 'x', names, 0, DLOCK_OWNER_THREAD);
    if (take(&hold, STEADY_WAIT_MS) == 0) {
        sleep_us((int64_t)pick(thread, BRIEFLY_US));
        give_back(&hold);
    }
    hold_end(&hold);
}

/* ---- the process ------------------------------------------------------------------------------------------------- */

/* Takes every lock once more. There are no faults any more, so each acquire must succeed. */
static void take_last(char mode) {
    for (int i = 0; i < names; i++) {
        struct hold hold;
        hold_init(&hold, mode, i, 0, DLOCK_OWNER_THREAD);
        struct dlock_error err;
        hold.asked = now_ns();
        int rc = dlock_acquire(hold.lock, LAST_WAIT_MS, &err);
        if (rc == 0) {
            held(&hold);
            give_back(&hold);
        } else {
            complain("last acquire", hold.name, rc, &err);
        }
        hold_end(&hold);
    }
}

static void *run(void *arg) {
    struct thread *thread = arg;
    while (!stopping) {
        use(thread);
        if (pace->pause_us) sleep_us((int64_t)pick(thread, (uint64_t)pace->pause_us * 2));
    }
    take_last('x');
    if (permits) take_last('p');
    return NULL;
}

static void *run_steady(void *arg) {
    struct thread *thread = arg;
    while (!stopping) {
        steady(thread);
        sleep_us((int64_t)pick(thread, 2 * STEADY_PAUSE_US));
    }
    return NULL;
}

static void stop(int signal) {
    (void)signal;
    atomic_store(&stopping, true);
}

/* Opens the client, with retries: a fault may hit the server just now, or stop this process for the whole timeout in
 * which its guardian has to start. */
static void open_client(const char *uri) {
    struct dlock_client_options options = DLOCK_CLIENT_OPTIONS_INIT;
    struct dlock_error err;
    options.flags = DLOCK_CLIENT_LAZY;
    int64_t end = now_ns() + LAST_WAIT_MS * INT64_C(1000000);
    int rc;
    do rc = dlock_open(uri, &options, &client, &err);
    while (rc == DLOCK_EUNAVAILABLE && now_ns() < end);
    if (rc != 0) {
        complain("open", uri, rc, &err);
        exit(1);
    }
    uint32_t caps = dlock_client_backend(client)->caps;
    shares = caps & DLOCK_CAP_SHARED;
    permits = (caps & DLOCK_CAP_PERMIT) && !strstr(uri, "mode=session");
}

int main(int argc, char **argv) {
    static struct thread threads[THREADS_MAX + 1];
    if (argc != 9 && argc != 10) {
        fprintf(stderr, "dlock-faults-worker URI HISTORY WHO SEED THREADS PACE NAMES LEASE_MS [MODULE]\n");
        return 64;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGTERM, stop);
    history = open(argv[2], O_WRONLY | O_APPEND | O_CLOEXEC);
    who = atoi(argv[3]);
    for (size_t i = 0; i < sizeof paces / sizeof *paces; i++)
        if (strcmp(paces[i].name, argv[6]) == 0) pace = &paces[i];
    names = atoi(argv[7]);
    lease_ms = atoi(argv[8]);
    int n = atoi(argv[5]);
    if (history < 0 || !pace || n < 1 || n > THREADS_MAX || names < 1 || names > THREADS_MAX) return 64;
    if (argc == 10 && !unheard_begin(argv[9])) return 64;
    open_client(argv[1]);
    for (int i = 0; i <= n; i++) {
        threads[i].random = strtoull(argv[4], NULL, 10) * 1000003 + (uint64_t)(who * THREADS_MAX + i + 1) * 7919;
        for (int j = 0; j < 10; j++) pick(&threads[i], 2);
        if (pthread_create(&threads[i].id, NULL, i < n ? run : run_steady, &threads[i]) != 0) return 64;
    }
    for (int i = 0; i <= n; i++) pthread_join(threads[i].id, NULL);
    dlock_close(client);
    if (argc == 10) printf("%zu\n", unheard_count());
    return atomic_load(&wrong);
}
