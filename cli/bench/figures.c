/* Computes the figures that are reported from the counts. */
#include "bench/bench.h"

static double share(uint64_t part, uint64_t whole) {
    return whole ? (double)part / (double)whole : -1;
}

static double per_second(uint64_t count, int64_t ns) {
    return ns > 0 && count > 0 ? (double)count * 1e9 / (double)ns : -1;
}

/* Returns the number of violations. The two kinds of overlaps are about the same grants, so only the greater counts. */
static uint64_t violations(const struct bench_cell *cell) {
    return (cell->overlaps > cell->time_overlaps ? cell->overlaps : cell->time_overlaps) + cell->stale_fences;
}

/* Returns the grants of the worker that got the fewest, as a share of those of the worker that got the most. */
static double fairness(const struct bench_case *c, const struct bench_cell *cell) {
    int workers = c->processes * c->threads;
    uint64_t fewest = cell->of_worker[0], most = fewest;
    for (int i = 1; i < workers; i++) {
        if (cell->of_worker[i] < fewest) fewest = cell->of_worker[i];
        if (cell->of_worker[i] > most) most = cell->of_worker[i];
    }
    return share(fewest, most);
}

void bench_figures(const struct bench_case *c, const struct bench_cell *cell, struct bench_figures *figures) {
    bool timed = cell->elapsed_ns > 0 && cell->grants > 0;
    bool one_lock = timed && c->processes * c->threads > 1 && !c->workload->own_locks;
    *figures = (struct bench_figures){
        .median_ns = histogram_at(&cell->samples, 0.5),
        .p90_ns = histogram_at(&cell->samples, 0.9),
        .p99_ns = histogram_at(&cell->samples, 0.99),
        .longest_ns = cell->samples.n ? cell->samples.longest_ns : -1,
        .floor_median_ns = histogram_at(&cell->floor, 0.5),
        .floor_p99_ns = histogram_at(&cell->floor, 0.99),
        .per_second = timed ? per_second(cell->grants, cell->elapsed_ns) : -1,
        .floor_per_second = per_second(cell->floor.n, cell->floor_elapsed_ns),
        .ratio = -1,
        .fairness = one_lock ? fairness(c, cell) : -1,
        .in_use = one_lock ? (double)cell->held_ns / (double)cell->elapsed_ns : -1,
        .handed_over = one_lock ? share(cell->samples.n, cell->grants) : -1,
        .commands_per_second = per_second((uint64_t)cell->commands, cell->counted_ns),
        .commands_per_grant = cell->counted_ns > 0 ? share((uint64_t)cell->commands, cell->grants) : -1,
        .cpu = cell->elapsed_ns > 0 ? (double)cell->cpu_ns / (double)cell->elapsed_ns : -1,
        .others_cpu = cell->elapsed_ns > 0 && cell->machine_ns > cell->cpu_ns
                          ? (double)(cell->machine_ns - cell->cpu_ns) / (double)cell->elapsed_ns
                          : -1,
        .violations = violations(cell),
    };
    /* Threads that compete for connections have cycles of very different length: compare their rates, not medians. */
    if (c->threads > 1 && figures->per_second > 0)
        figures->ratio = figures->floor_per_second > 0 ? figures->floor_per_second / figures->per_second : -1;
    else if (figures->median_ns >= 0 && figures->floor_median_ns > 0)
        figures->ratio = (double)figures->median_ns / (double)figures->floor_median_ns;
}

uint64_t bench_violations(const struct bench *bench) {
    uint64_t all = 0;
    for (size_t i = 0; i < bench->n_targets; i++)
        for (size_t k = 0; k < bench->n_cases; k++) all += violations(&bench->targets[i].cells[k]);
    return all;
}
