/* The memory that the processes of one run share: the owner of each lock, and the counts of each worker. It is zeroed
 * at the beginning of a run. */
#ifndef DLOCK_CLI_BENCH_ARENA_H
#define DLOCK_CLI_BENCH_ARENA_H

#include "bench/bench.h"

#include <stdatomic.h>

/* Most grants of a run whose time stamps are kept. The array takes memory only where it is written. */
enum { BENCH_SPANS = 1 << 20 };

/* Checks the exclusion of one lock: a worker that is granted the lock writes its id to `owner`, and finds the id of any
 * other worker that is still there. */
struct bench_word {
    _Alignas(64) _Atomic uint32_t owner; /* id of the worker that holds the lock; 0: none */
    _Atomic uint32_t left_by;            /* id of the worker that released it last */
    _Atomic int64_t left_ns;             /* when that worker began its release */
    _Atomic uint64_t fence;              /* of the latest grant */
};

/* The time from after a grant to before its release, on the clock that all processes share. */
struct bench_span {
    int64_t got_ns, left_ns;
};

struct bench_worker {
    _Alignas(64) struct bench_arena *arena;
    const struct bench_case *c;
    uint32_t id; /* from 1 */
    struct histogram samples;
    uint64_t grants, overlaps, stale_fences, lost;
    int64_t held_ns, cpu_ns; /* cpu_ns: of the whole process; set in the first worker of a process only */
};

struct bench_arena {
    _Atomic uint32_t ready;              /* number of workers that wait for the start */
    _Atomic int64_t stop_ns;             /* end of the run; set before the start */
    _Atomic uint32_t killed;             /* id of the worker that was killed while it held the lock; 0: none */
    _Atomic int64_t taken_ns, killed_ns; /* when that worker was granted the lock, and when it was killed */
    _Atomic bool counted;                /* the number of the server's commands has been read */
    _Atomic int error_code;              /* of the first worker that failed */
    char error[BENCH_ERROR];
    char backend[BENCH_SERVER];
    struct bench_word words[BENCH_WORKERS];
    struct bench_worker workers[BENCH_WORKERS];
    int64_t elapsed_ns;
    _Atomic uint64_t n_spans; /* number of grants; those beyond BENCH_SPANS are not in `spans` */
    struct bench_span spans[BENCH_SPANS];
};

/* Returns a new arena; NULL: out of memory. */
struct bench_arena *bench_arena_new(const struct bench_case *c);
void bench_out_of_memory(struct bench_cell *cell);

/* Adds the counts of the workers to `cell`, copies the backend's name to `target`, and frees the arena. Adds no counts
 * if the run was interrupted. */
void bench_arena_end(struct bench_arena *arena, int workers, struct bench_target *target, struct bench_cell *cell);

/* Keeps the error, unless a worker has failed before. To be called by any worker. */
void bench_failed(struct bench_arena *arena, const struct dlock_error *err);

/* Counts a violation if `word` has another owner or a fence that is not smaller; then makes the worker the owner. To be
 * called after a grant of `lock`. */
void bench_enter(struct bench_worker *worker, struct bench_word *word, dlock_lock *lock);
/* Ends the ownership; counts a violation if `word` has another owner. To be called before the release. Returns the
 * time. */
int64_t bench_leave(struct bench_worker *worker, struct bench_word *word);
/* Keeps the time stamps of a grant of the lock that all workers share. */
void bench_span(struct bench_arena *arena, int64_t got_ns, int64_t left_ns);

/* Releases the lock. Counts a lost lock; any other error ends the run, and the result is false. */
bool bench_release(struct bench_worker *worker, dlock_lock *lock);

/* Open a client for a worker's process, and make a handle. NULL: the error is kept in the arena. */
dlock_client *bench_open(struct bench_arena *arena, const char *uri);
dlock_lock *bench_lock(struct bench_arena *arena, dlock_client *client, const struct bench_case *c, int number,
                       int64_t lease_ms);

#endif
