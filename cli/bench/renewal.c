/* Measures what it costs to keep many locks held by one process, and to wait for them. */
#include "bench/arena.h"
#include "bench/counter.h"
#include "bench/process.h"

#include <stdlib.h>
#include <sys/resource.h>

enum { RENEWALS_IN_A_LEASE = 3, RENEWALS = 2, SETTLE_MS = 200 };

struct keeper {
    struct bench_arena *arena;
    const struct bench_case *c;
    const char *uri;
    int64_t lease_ms;
};

/* Raises the limit of descriptors: some backends need one for each lock. */
static void allow_descriptors(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* Holds the locks until the server's count has been read. Measures the processor time of the run only, not that of the
 * time before and after. */
static void hold(struct bench_arena *arena) {
    atomic_fetch_add(&arena->ready, 1);
    while (atomic_load(&arena->stop_ns) == 0) bench_sleep_ms(1);
    int64_t before = bench_cpu_ns();
    bench_sleep_ms((atomic_load(&arena->stop_ns) - now_ns()) / 1000000);
    arena->workers[0].cpu_ns = bench_cpu_ns() - before;
    while (!atomic_load(&arena->counted)) bench_sleep_ms(1);
}

static void over(dlock_lock *lock, const struct dlock_error *err, void *keeper) {
    (void)lock;
    if (!err || err->code != DLOCK_ECANCELED)
        bench_failed(((struct keeper *)keeper)->arena,
                     err ? err : &(struct dlock_error){DLOCK_EPROTO, "a lock that is held was granted"});
}

/* Begins to wait for the locks in turn, with that client. Returns how many waits there are. */
static int wait_for_locks(struct keeper *keeper, dlock_client *client, dlock_lock **locks) {
    const struct bench_case *c = keeper->c;
    for (int i = 0; i < c->waiters; i++) {
        locks[i] = bench_lock(keeper->arena, client, c, i % c->locks, keeper->lease_ms);
        int rc = locks[i] ? dlock_acquire_async(locks[i], DLOCK_FOREVER, over, keeper) : 0;
        if (rc != 0) bench_failed(keeper->arena, &(struct dlock_error){rc, ""});
        if (!locks[i] || rc != 0) return i;
    }
    return c->waiters;
}

/* Waits for the locks until the server's count has been read. */
static void hold_and_wait(struct keeper *keeper) {
    dlock_lock **locks = calloc((size_t)keeper->c->waiters, sizeof(dlock_lock *));
    dlock_client *client = locks ? bench_open(keeper->arena, keeper->uri) : NULL;
    if (!locks) bench_failed(keeper->arena, &(struct dlock_error){DLOCK_ENOMEM, ""});
    int n = client ? wait_for_locks(keeper, client, locks) : 0;
    bench_sleep_ms(SETTLE_MS + n);
    hold(keeper->arena);
    while (n > 0) dlock_free(locks[--n]);
    dlock_close(client);
    free(locks);
}

static void keep_all(struct keeper *keeper, dlock_lock **locks, size_t n) {
    struct bench_arena *arena = keeper->arena;
    struct bench_worker *worker = &arena->workers[0];
    struct dlock_error err = {0, ""};
    if (dlock_acquire_all(locks, n, BENCH_READY_MS, &err) != 0) {
        bench_failed(arena, &err);
        return;
    }
    if (keeper->c->waiters)
        hold_and_wait(keeper);
    else
        hold(arena);
    for (size_t i = 0; i < n; i++)
        if (!dlock_held(locks[i])) worker->lost++;
    int rc = dlock_release_all(locks, n, &err);
    if (rc != 0 && rc != DLOCK_ELOST) bench_failed(arena, &err);
}

static void process(void *arg) {
    struct keeper *keeper = arg;
    size_t n = 0, wanted = (size_t)keeper->c->locks;
    allow_descriptors();
    dlock_client *client = bench_open(keeper->arena, keeper->uri);
    if (!client) return;
    dlock_lock **locks = calloc(wanted, sizeof(dlock_lock *));
    if (!locks) bench_failed(keeper->arena, &(struct dlock_error){DLOCK_ENOMEM, ""});
    while (locks && n < wanted && (locks[n] = bench_lock(keeper->arena, client, keeper->c, (int)n, keeper->lease_ms)))
        n++;
    if (locks && n == wanted) keep_all(keeper, locks, n);
    while (n > 0) dlock_free(locks[--n]);
    free(locks);
    dlock_close(client);
}

/* Returns the length of the run in ms: a whole number of renewals, at least RENEWALS. All locks are renewed together,
 * so a part of a period would contain all of its requests or none. */
static int64_t length(int64_t ms, int64_t lease_ms) {
    int64_t renewals = ms * RENEWALS_IN_A_LEASE / lease_ms;
    return (renewals > RENEWALS ? renewals : RENEWALS) * lease_ms / RENEWALS_IN_A_LEASE;
}

void bench_renewal(const struct bench *bench, struct bench_target *target, size_t n_case, const struct bench_case *c,
                   int64_t ms) {
    struct bench_cell *cell = &target->cells[n_case];
    struct keeper keeper = {bench_arena_new(c), c, target->uri, bench->lease_ms};
    if (!keeper.arena) {
        bench_out_of_memory(cell);
        return;
    }
    struct bench_counter counter = bench_counter_open(bench, target, c);
    pid_t pid = bench_fork(keeper.arena, process, &keeper);
    bool begins = pid > 0 && bench_all_ready(keeper.arena, 1);
    if (begins) {
        ms = length(ms, bench->lease_ms);
        keeper.arena->elapsed_ns = ms * 1000000;
        bench_counter_begin(&counter);
        atomic_store(&keeper.arena->stop_ns, now_ns() + ms * 1000000);
        bench_sleep_ms(ms);
        bench_counter_end(&counter, cell);
        atomic_store(&keeper.arena->counted, true);
    }
    if (pid > 0) bench_reap(keeper.arena, &pid, 1, begins);
    bench_counter_close(&counter);
    bench_arena_end(keeper.arena, 1, target, cell);
}
