/* The processes of a run. */
#ifndef DLOCK_CLI_BENCH_PROCESS_H
#define DLOCK_CLI_BENCH_PROCESS_H

#include "bench/arena.h"
#include "bench/interrupt.h"

#include <sys/types.h>

/* How long workers may take to get ready, and to end. It includes the quarantine of a server that has just been started
 * and the lease of an earlier run that was killed. */
enum { BENCH_READY_MS = 30000, BENCH_END_MS = 30000 };

/* Forks a process that does `body(arg)` and ends; it is killed when this one ends. Its number, or -1, which is noted.
 */
pid_t bench_fork(struct bench_arena *arena, void (*body)(void *arg), void *arg);

/* Waits until `workers` of them are ready; false when one has failed or died, when it takes too long, or when the bench
 * is interrupted. */
bool bench_all_ready(struct bench_arena *arena, uint32_t workers);

/* Waits for processes that are to end by themselves, or kills them at once, as when the bench is interrupted; notes
 * those that have died, or do not end. */
void bench_reap(struct bench_arena *arena, const pid_t *pids, int n, bool by_themselves);

/* What this process has used. */
int64_t bench_cpu_ns(void);

#endif
