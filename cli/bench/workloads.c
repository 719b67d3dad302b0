/* The workloads: what the workers of a run do until its end. */
#include "bench/arena.h"
#include "bench/process.h"

#include <string.h>

/* PATIENCE_MS is longer than a queue of all workers takes on a server that hesitates. */
enum { PATIENCE_MS = 10000, REENTRIES = 64 };

static bool acquire(struct bench_worker *worker, dlock_lock *lock) {
    struct dlock_error err = {0, ""};
    if (dlock_acquire(lock, PATIENCE_MS, &err) == 0) return true;
    bench_failed(worker->arena, &err);
    return false;
}

static bool goes_on(const struct bench_worker *worker, int64_t now) {
    return now < atomic_load_explicit(&worker->arena->stop_ns, memory_order_relaxed) &&
           atomic_load_explicit(&worker->arena->error_code, memory_order_relaxed) == 0;
}

/* True if what was done by `done` counts: what the end of the run interrupts does not, or more would be counted than the
 * time of the run has room for. */
static bool counts(const struct bench_worker *worker, int64_t done) {
    return done <= atomic_load_explicit(&worker->arena->stop_ns, memory_order_relaxed);
}

/* A sample is the time of an acquire and of its release, without the time between the two. */
static void cycle(struct bench_worker *worker, dlock_lock *lock, struct bench_word *word) {
    for (int64_t asked = now_ns(), done; goes_on(worker, asked); asked = done) {
        if (!acquire(worker, lock)) return;
        int64_t got = now_ns();
        bench_enter(worker, word, lock);
        int64_t left = bench_leave(worker, word);
        if (!bench_release(worker, lock)) return;
        done = now_ns();
        if (!counts(worker, done)) return;
        histogram_add(&worker->samples, got - asked + done - left, 1);
        worker->grants++;
        worker->held_ns += left - got;
    }
}

/* A sample is the mean of REENTRIES re-entries, since reading the clock takes about as long as one. */
static void reenter(struct bench_worker *worker, dlock_lock *lock, struct bench_word *word) {
    if (!acquire(worker, lock)) return;
    bench_enter(worker, word, lock);
    int64_t first = now_ns();
    for (int64_t begun = first, done; goes_on(worker, begun); begun = done) {
        for (int i = 0; i < REENTRIES; i++)
            if (!acquire(worker, lock) || !bench_release(worker, lock)) return;
        done = now_ns();
        if (atomic_load(&word->owner) != worker->id) worker->overlaps++;
        if (!counts(worker, done)) break;
        histogram_add(&worker->samples, (done - begun) / REENTRIES, REENTRIES);
        worker->grants += REENTRIES;
    }
    worker->held_ns += bench_leave(worker, word) - first;
    bench_release(worker, lock);
}

/* A sample is the time from the beginning of a release to the grant of another worker that was waiting by then. */
static void contend(struct bench_worker *worker, dlock_lock *lock, struct bench_word *word) {
    const struct bench_workload *workload = worker->c->workload;
    for (int64_t asked = now_ns(); goes_on(worker, asked); asked = now_ns()) {
        if (!acquire(worker, lock)) return;
        int64_t got = now_ns();
        int64_t was_left = atomic_load(&word->left_ns);
        uint32_t left_by = atomic_load(&word->left_by);
        bench_enter(worker, word, lock);
        if (workload->hold_ms) bench_sleep_ms(workload->hold_ms);
        int64_t left = bench_leave(worker, word);
        if (!bench_release(worker, lock)) return;
        bench_span(worker->arena, got, left);
        int64_t stop = atomic_load(&worker->arena->stop_ns);
        if (got < stop) worker->held_ns += (left < stop ? left : stop) - got;
        if (counts(worker, left)) {
            worker->grants++;
            if (left_by != worker->id && asked < was_left) histogram_add(&worker->samples, got - was_left, 1);
        }
        if (workload->pause_ms) bench_sleep_ms(workload->pause_ms);
    }
}

const struct bench_workload bench_workloads[] = {
    {"cycle", "cycle", bench_run, cycle, 0, 0, BENCH_ALONE, false, false},
    {"re-entry", NULL, bench_run, reenter, 0, 0, BENCH_ALONE, false, false},
    {"hand-over", "hand-over", bench_run, contend, 0, 0, BENCH_PROCESSES, false, false},
    {"hand-over-10ms", "hand-over", bench_run, contend, 10, 10, BENCH_PROCESSES, false, false},
    {"distinct", "threads", bench_run, cycle, 0, 0, BENCH_THREAD_STEPS, true, false},
    {"one-lock", NULL, bench_run, contend, 0, 0, BENCH_THREADS, false, false},
    {"crash", NULL, bench_crash, NULL, 0, 0, BENCH_ALONE, false, false},
    {"crowd", NULL, bench_run, contend, 1, 0, BENCH_WAITERS, false, true},
    {"renewal", NULL, bench_renewal, NULL, 0, 0, BENCH_LOCKS, true, true},
    {"idle", NULL, bench_renewal, NULL, 0, 0, BENCH_IDLE, true, true},
    {"command", NULL, bench_command, NULL, 0, 0, BENCH_ALONE, false, false},
};
const size_t bench_n_workloads = sizeof bench_workloads / sizeof bench_workloads[0];

const struct bench_workload *bench_find_workload(const char *name) {
    for (size_t i = 0; i < bench_n_workloads; i++)
        if (strcmp(bench_workloads[i].name, name) == 0) return &bench_workloads[i];
    return NULL;
}
