/* Counts the commands that reach the server. The server counts them itself; a floor program reads that:
 * FOLDER/floor-BACKEND commands. */
#ifndef DLOCK_CLI_BENCH_COUNTER_H
#define DLOCK_CLI_BENCH_COUNTER_H

#include "bench/bench.h"
#include "bench/program.h"

struct bench_counter {
    struct bench_program program; /* pid 0: nothing is counted */
    int64_t first, begun_ns;      /* the count at the start, negative if it could not be read; and when it was read */
    int64_t machine_ns;           /* processor time of this machine at the start; negative: unknown */
};

/* Starts the program, unless the case is not one that is counted or there is no program for the backend: then no commands
 * are counted. */
struct bench_counter bench_counter_open(const struct bench *bench, const struct bench_target *target,
                                        const struct bench_case *c);
void bench_counter_begin(struct bench_counter *counter);
/* Adds the commands, and the machine's processor time, since bench_counter_begin() to `cell`. */
void bench_counter_end(struct bench_counter *counter, struct bench_cell *cell);
void bench_counter_close(struct bench_counter *counter);

#endif
