/* Measures how long it takes until a waiter has the lock after its holder was killed. */
#include "bench/arena.h"
#include "bench/process.h"

#include <signal.h>
#include <unistd.h>

enum {
    LEASE_MS = 1000,
    HOLDER = 0,    /* index of the worker that holds the lock */
    WAITER = 1,    /* index of the worker that waits for it */
    SETTLE_MS = 60 /* enough for the waiter's request to be in the server's queue */
};

struct trial {
    struct bench_arena *arena;
    const struct bench_case *c;
    const char *uri;
};

static bool take(const struct trial *trial, int number, dlock_lock *lock) {
    struct dlock_error err = {0, ""};
    if (dlock_acquire(lock, BENCH_READY_MS, &err) != 0) {
        bench_failed(trial->arena, &err);
        return false;
    }
    int64_t got = now_ns();
    if (number == HOLDER) atomic_store(&trial->arena->taken_ns, got);
    bench_enter(&trial->arena->workers[number], &trial->arena->words[0], lock);
    return true;
}

static void hold(void *arg) {
    const struct trial *trial = arg;
    dlock_client *client = bench_open(trial->arena, trial->uri);
    dlock_lock *lock = client ? bench_lock(trial->arena, client, trial->c, 0, LEASE_MS) : NULL;
    if (!lock || !take(trial, HOLDER, lock)) return;
    atomic_fetch_add(&trial->arena->ready, 1);
    for (;;) pause();
}

static void wait_for_it(void *arg) {
    const struct trial *trial = arg;
    struct bench_worker *worker = &trial->arena->workers[WAITER];
    dlock_client *client = bench_open(trial->arena, trial->uri);
    dlock_lock *lock = client ? bench_lock(trial->arena, client, trial->c, 0, LEASE_MS) : NULL;
    if (!lock) return;
    atomic_fetch_add(&trial->arena->ready, 1);
    if (take(trial, WAITER, lock)) {
        int64_t got = now_ns();
        worker->grants++;
        /* Otherwise it was granted while the holder lived, a violation that bench_enter() has counted. */
        if (atomic_load(&trial->arena->killed)) histogram_add(&worker->samples, got - trial->arena->killed_ns, 1);
        bench_span(trial->arena, got, bench_leave(worker, &trial->arena->words[0]));
        bench_release(worker, lock);
    }
    dlock_free(lock);
    dlock_close(client);
}

static void try_once(struct bench_arena *arena, struct trial *trial) {
    pid_t holder = bench_fork(arena, hold, trial), waiter = -1;
    if (holder < 0) return;
    if (bench_all_ready(arena, HOLDER + 1)) waiter = bench_fork(arena, wait_for_it, trial);
    bool begins = waiter > 0 && bench_all_ready(arena, WAITER + 1);
    if (begins) bench_sleep_ms(SETTLE_MS);
    atomic_store(&arena->killed_ns, now_ns());
    atomic_store(&arena->killed, HOLDER + 1);
    bench_reap(arena, &holder, 1, false);
    if (begins) bench_span(arena, atomic_load(&arena->taken_ns), atomic_load(&arena->killed_ns));
    if (waiter > 0) bench_reap(arena, &waiter, 1, begins);
}

void bench_crash(const struct bench *bench, struct bench_target *target, size_t n_case, const struct bench_case *c,
                 int64_t ms) {
    struct bench_cell *cell = &target->cells[n_case];
    (void)bench;
    int64_t end = now_ns() + ms * 1000000;
    do {
        struct trial trial = {bench_arena_new(c), c, target->uri};
        if (!trial.arena) {
            bench_out_of_memory(cell);
            return;
        }
        try_once(trial.arena, &trial);
        bench_arena_end(trial.arena, WAITER + 1, target, cell);
    } while (cell->error_code == 0 && !bench_interrupted() && now_ns() < end);
}
