/* The memory that the processes of one run share: who owns each lock, what each worker has counted. Zeroed at the
 * beginning of a run. */
#ifndef DLOCK_CLI_BENCH_ARENA_H
#define DLOCK_CLI_BENCH_ARENA_H

#include "bench/bench.h"

#include <stdatomic.h>

/* Grants of a run whose time stamps are kept; only what is written takes memory. */
enum { BENCH_SPANS = 1 << 20 };

/* Stands for one lock: whoever is granted it writes itself in, and finds out whether anybody else is there. */
struct bench_word {
    _Alignas(64) _Atomic uint32_t owner; /* a worker's id; 0: nobody */
    _Atomic uint32_t left_by;            /* who released it last */
    _Atomic int64_t left_ns;             /* when it began to release */
    _Atomic uint64_t fence;              /* of the latest grant */
};

/* From after a grant to before its release, on the clock that all processes share. */
struct bench_span {
    int64_t got_ns, left_ns;
};

struct bench_worker {
    _Alignas(64) struct bench_arena *arena;
    const struct bench_case *c;
    uint32_t id; /* from 1 */
    struct histogram samples;
    uint64_t grants, overlaps, stale_fences, lost;
    int64_t held_ns, cpu_ns; /* cpu_ns: of the whole process, which the first of its workers tells */
};

struct bench_arena {
    _Atomic uint32_t ready;              /* workers that wait for the beginning */
    _Atomic int64_t stop_ns;             /* set before the beginning */
    _Atomic uint32_t killed;             /* the worker that was killed while it held */
    _Atomic int64_t taken_ns, killed_ns; /* when that one was granted the lock, and when it was killed */
    _Atomic bool counted;                /* the server's commands have been read */
    _Atomic int error_code;              /* of the first worker that failed */
    char error[BENCH_ERROR];
    char backend[BENCH_SERVER];
    struct bench_word words[BENCH_WORKERS];
    struct bench_worker workers[BENCH_WORKERS];
    int64_t elapsed_ns;
    _Atomic uint64_t n_spans; /* may be more than there is space for */
    struct bench_span spans[BENCH_SPANS];
};

/* NULL: out of memory. */
struct bench_arena *bench_arena_new(const struct bench_case *c);
void bench_out_of_memory(struct bench_cell *cell);

/* Adds what the workers have counted to a cell, notes what the target's backend is called, and frees the arena. Of a
 * run that was interrupted nothing is added. */
void bench_arena_end(struct bench_arena *arena, int workers, struct bench_target *target, struct bench_cell *cell);

/* The first error is the one that is told. Any worker. */
void bench_failed(struct bench_arena *arena, const struct dlock_error *err);

/* Notes a grant of `lock`, and whether it is exclusive and its fence greater than all before. */
void bench_enter(struct bench_worker *worker, struct bench_word *word, dlock_lock *lock);
/* Notes that the worker is about to release. Returns the time. */
int64_t bench_leave(struct bench_worker *worker, struct bench_word *word);
/* Keeps the time stamps of a grant of the lock that all workers share. */
void bench_span(struct bench_arena *arena, int64_t got_ns, int64_t left_ns);

/* Releases; a lost lock is counted, any other error ends the run. */
bool bench_release(struct bench_worker *worker, dlock_lock *lock);

/* Opens a client for a worker's process, and a lock. NULL: it has been noted why not. */
dlock_client *bench_open(struct bench_arena *arena, const char *uri);
dlock_lock *bench_lock(struct bench_arena *arena, dlock_client *client, const struct bench_case *c, int number,
                       int64_t lease_ms);

#endif
