/* The floors: runs the barest client of the same server for comparison. */
#include "bench/bench.h"
#include "bench/process.h"
#include "bench/program.h"
#include "cli.h"

#include <inttypes.h>
#include <string.h>
#include <sys/wait.h>

enum { NUMBER = 24 };

bool bench_has_floor(const struct bench *bench, const struct bench_target *target, const struct bench_case *c) {
    return c->workload->floor && !target->peer && !target->no_floor && bench_has_program(bench, target);
}

/* Adds the samples and each worker's grants that the program prints. True if the output is complete. */
static bool read_samples(FILE *in, struct bench_cell *told) {
    char line[128];
    int worker = 0;
    while (fgets(line, sizeof line, in)) {
        int64_t ns;
        uint64_t count, grants, overlaps;
        if (strcmp(line, "end\n") == 0) return true;
        if (sscanf(line, "%" SCNd64 " %" SCNu64, &ns, &count) == 2) {
            histogram_add(&told->samples, ns, count);
        } else if (sscanf(line, "worker %" SCNu64 " %" SCNu64, &grants, &overlaps) == 2 && worker < BENCH_WORKERS) {
            told->of_worker[worker++] += grants;
            told->grants += grants;
            told->overlaps += overlaps;
        }
    }
    return false;
}

int bench_floor_run(const struct bench *bench, const struct bench_target *target, const struct bench_case *c,
                    int64_t ms, struct bench_cell *told) {
    struct bench_program program;
    char duration[NUMBER], workers[NUMBER], hold[NUMBER];
    snprintf(duration, sizeof duration, "%" PRId64, ms);
    snprintf(workers, sizeof workers, "%d", c->processes * c->threads);
    snprintf(hold, sizeof hold, "%" PRId64, c->workload->hold_ms);
    const char *const arguments[] = {c->workload->floor, duration, workers, hold, NULL};
    if (!bench_program_start(bench, target, arguments, &program)) return -1;
    bench_program_hang_up(&program);
    bool whole = read_samples(program.out, told);
    int status = bench_program_end(&program);
    return status == 0 && !whole ? -1 : status;
}

bool bench_floor(const struct bench *bench, struct bench_target *target, size_t n_case, const struct bench_case *c,
                 int64_t ms) {
    struct bench_cell *cell = &target->cells[n_case], told = {0};
    int status = bench_floor_run(bench, target, c, ms, &told);
    if (bench_interrupted() || (WIFEXITED(status) && WEXITSTATUS(status) == BENCH_SKIPPED)) return false;
    if (status == 0) {
        histogram_merge(&cell->floor, &told.samples);
        cell->floor_elapsed_ns += ms * 1000000;
        return true;
    }
    target->no_floor = true;
    bench_progress_end(bench);
    note("%s has no floor: floor-%s %s failed", target->server, target->backend, c->workload->floor);
    return false;
}
