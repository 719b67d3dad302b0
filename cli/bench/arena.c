#include "bench/arena.h"
#include "bench/interrupt.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct bench_arena *bench_arena_new(const struct bench_case *c) {
    struct bench_arena *arena =
        mmap(NULL, sizeof *arena, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (arena == MAP_FAILED) return NULL;
    for (uint32_t i = 0; i < BENCH_WORKERS; i++) {
        arena->workers[i].arena = arena;
        arena->workers[i].c = c;
        arena->workers[i].id = i + 1;
    }
    return arena;
}

void bench_out_of_memory(struct bench_cell *cell) {
    cell->error_code = DLOCK_ENOMEM;
    snprintf(cell->error, sizeof cell->error, "%s", dlock_strerror(DLOCK_ENOMEM));
}

static int by_time(const void *a, const void *b) {
    const struct bench_span *first = a, *second = b;
    return (first->got_ns > second->got_ns) - (first->got_ns < second->got_ns);
}

/* Returns the number of grants that began before an earlier one had ended. */
static uint64_t time_overlaps(struct bench_arena *arena) {
    uint64_t n = atomic_load(&arena->n_spans), found = 0;
    int64_t left_ns = INT64_MIN;
    if (n > BENCH_SPANS) n = BENCH_SPANS;
    if (n > 1) qsort(arena->spans, n, sizeof arena->spans[0], by_time);
    for (uint64_t i = 0; i < n; i++) {
        if (arena->spans[i].got_ns < left_ns) found++;
        if (arena->spans[i].left_ns > left_ns) left_ns = arena->spans[i].left_ns;
    }
    return found;
}

static void add(struct bench_arena *arena, int workers, struct bench_cell *cell) {
    cell->elapsed_ns += arena->elapsed_ns;
    cell->time_overlaps += time_overlaps(arena);
    for (int i = 0; i < workers; i++) {
        const struct bench_worker *worker = &arena->workers[i];
        histogram_merge(&cell->samples, &worker->samples);
        cell->grants += worker->grants;
        cell->overlaps += worker->overlaps;
        cell->stale_fences += worker->stale_fences;
        cell->lost += worker->lost;
        cell->held_ns += worker->held_ns;
        cell->cpu_ns += worker->cpu_ns;
        cell->of_worker[i] += worker->grants;
    }
    if (arena->error_code != 0 && cell->error_code == 0) {
        cell->error_code = arena->error_code;
        snprintf(cell->error, sizeof cell->error, "%s", arena->error);
    }
}

void bench_arena_end(struct bench_arena *arena, int workers, struct bench_target *target, struct bench_cell *cell) {
    if (!bench_interrupted()) add(arena, workers, cell);
    if (arena->backend[0]) memcpy(target->backend, arena->backend, sizeof target->backend);
    munmap(arena, sizeof *arena);
}

void bench_failed(struct bench_arena *arena, const struct dlock_error *err) {
    int none = 0;
    if (!atomic_compare_exchange_strong(&arena->error_code, &none, err->code)) return;
    snprintf(arena->error, sizeof arena->error, "%s", err->message[0] ? err->message : dlock_strerror(err->code));
}

void bench_enter(struct bench_worker *worker, struct bench_word *word, dlock_lock *lock) {
    uint32_t found = atomic_exchange(&word->owner, worker->id);
    if (found != 0 && found != atomic_load(&worker->arena->killed)) worker->overlaps++;
    uint64_t fence = dlock_fence(lock);
    if (atomic_exchange(&word->fence, fence) >= fence) worker->stale_fences++;
}

int64_t bench_leave(struct bench_worker *worker, struct bench_word *word) {
    uint32_t me = worker->id;
    int64_t now = now_ns();
    atomic_store(&word->left_ns, now);
    atomic_store(&word->left_by, me);
    if (!atomic_compare_exchange_strong(&word->owner, &me, 0)) worker->overlaps++;
    return now;
}

void bench_span(struct bench_arena *arena, int64_t got_ns, int64_t left_ns) {
    uint64_t place = atomic_fetch_add_explicit(&arena->n_spans, 1, memory_order_relaxed);
    if (place < BENCH_SPANS) arena->spans[place] = (struct bench_span){got_ns, left_ns};
}

bool bench_release(struct bench_worker *worker, dlock_lock *lock) {
    struct dlock_error err = {0, ""};
    int rc = dlock_release(lock, &err);
    if (rc == DLOCK_ELOST) worker->lost++;
    if (rc != 0 && rc != DLOCK_ELOST) bench_failed(worker->arena, &err);
    return rc == 0 || rc == DLOCK_ELOST;
}

dlock_client *bench_open(struct bench_arena *arena, const char *uri) {
    struct dlock_error err = {0, ""};
    dlock_client *client;
    if (dlock_open(uri, NULL, &client, &err) != 0) {
        bench_failed(arena, &err);
        return NULL;
    }
    /* All processes write the same bytes at once, so the writes are atomic. */
    const char *backend = dlock_client_backend(client)->name;
    for (size_t i = 0; i + 1 < sizeof arena->backend && backend[i]; i++)
        __atomic_store_n(&arena->backend[i], backend[i], __ATOMIC_RELAXED);
    return client;
}

dlock_lock *bench_lock(struct bench_arena *arena, dlock_client *client, const struct bench_case *c, int number,
                       int64_t lease_ms) {
    struct dlock_error err = {0, ""};
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.lease_ms = lease_ms;
    options.owner = c->waiters ? DLOCK_OWNER_HANDLE : DLOCK_OWNER_THREAD; /* nobody's thread waits */
    char name[64];
    /* All runs use the same names, since some servers keep data of each name forever. */
    snprintf(name, sizeof name, "dlock-bench:%s:%d", c->workload->name, c->workload->own_locks ? number : 0);
    dlock_lock *lock;
    if (dlock_new(client, name, &options, &lock, &err) == 0) return lock;
    bench_failed(arena, &err);
    return NULL;
}
