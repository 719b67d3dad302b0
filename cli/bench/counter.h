/* What the server is sent, by its own count, which a floor program reads: FOLDER/floor-BACKEND commands. */
#ifndef DLOCK_CLI_BENCH_COUNTER_H
#define DLOCK_CLI_BENCH_COUNTER_H

#include "bench/bench.h"
#include "bench/program.h"

struct bench_counter {
    struct bench_program program; /* no process: nothing is counted */
    int64_t first, begun_ns;      /* first < 0: it could not be read */
};

/* Nothing is counted unless the case is one that is, and there is a program for it. */
struct bench_counter bench_counter_open(const struct bench *bench, const struct bench_target *target,
                                        const struct bench_case *c);
void bench_counter_begin(struct bench_counter *counter);
/* Adds what has come since to a cell. */
void bench_counter_end(struct bench_counter *counter, struct bench_cell *cell);
void bench_counter_close(struct bench_counter *counter);

#endif
