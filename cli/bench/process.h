/* The processes of a run. */
#ifndef DLOCK_CLI_BENCH_PROCESS_H
#define DLOCK_CLI_BENCH_PROCESS_H

#include "bench/arena.h"
#include "bench/interrupt.h"

#include <sys/types.h>

/* Longest time for workers to get ready, and to end. It includes the quarantine of a server that has just been started
 * and the lease of an earlier run that was killed. */
enum { BENCH_READY_MS = 30000, BENCH_END_MS = 30000 };

/* Forks a process that calls `body(arg)` and ends; it is killed when this process ends. Returns its pid; -1 on failure,
 * which is kept in the arena. */
pid_t bench_fork(struct bench_arena *arena, void (*body)(void *arg), void *arg);

/* Waits until `workers` workers are ready. False if a worker has failed or died, if it takes too long, or if the bench
 * is interrupted. */
bool bench_all_ready(struct bench_arena *arena, uint32_t workers);

/* Waits for the processes to end by themselves, or kills them at once if `by_themselves` is false or the bench is
 * interrupted. Keeps an error if one has died or does not end. */
void bench_reap(struct bench_arena *arena, const pid_t *pids, int n, bool by_themselves);

/* Returns the processor time that this process has used. */
int64_t bench_cpu_ns(void);

#endif
