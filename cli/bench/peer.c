/* Locks of other software on the same servers. Each one that is installed has a row after that of its server. */
#include "bench/process.h"
#include "bench/program.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* ---- flock(1) ---------------------------------------------------------------------------------------------------- */

static bool is_command(const struct bench_workload *workload) {
    return workload->run == bench_command;
}

/* Accepts flock(1) of util-linux only: that of BusyBox has no time limit. */
static bool find_flock(const struct bench *bench, struct bench_target *target) {
    static const char expected[] = "flock from ";
    char line[80] = "";
    (void)bench;
    FILE *out = popen("flock --version 2>/dev/null", "re");
    if (!out) return false;
    bool found = fgets(line, sizeof line, out) && strncmp(line, expected, sizeof expected - 1) == 0;
    pclose(out);
    line[strcspn(line, "\n")] = '\0';
    snprintf(target->about, sizeof target->about,
             "flock(1) of %s on a file in a temporary folder, as 'flock FILE true'",
             found ? line + sizeof expected - 1 : "");
    return found;
}

/* ---- the programs beside the floors ------------------------------------------------------------------------------ */

static bool is_of_processes(const struct bench_workload *workload) {
    return workload->floor && workload->crowd != BENCH_THREAD_STEPS;
}

/* Asks the peer program what it measures. It prints nothing if its library is missing or it does not understand the
 * URI. */
static bool find_program(const struct bench *bench, struct bench_target *target) {
    struct bench_program program;
    if (!bench_has_program(bench, target) ||
        !bench_program_start(bench, target, (const char *const[]){"about", "0", NULL}, &program))
        return false;
    bench_program_hang_up(&program);
    bool found = fgets(target->about, sizeof target->about, program.out) != NULL;
    target->about[strcspn(target->about, "\n")] = '\0';
    return bench_program_end(&program) == 0 && found;
}

static void run_program(const struct bench *bench, struct bench_target *target, size_t n_case,
                        const struct bench_case *c, int64_t ms) {
    struct bench_cell *cell = &target->cells[n_case], told = {0};
    int status = bench_floor_run(bench, target, c, ms, &told);
    if (bench_interrupted()) return;
    if (status != 0) {
        cell->error_code = DLOCK_EUNAVAILABLE;
        snprintf(cell->error, sizeof cell->error, "peer-%s %s failed", target->peer->name, c->workload->floor);
        return;
    }
    histogram_merge(&cell->samples, &told.samples);
    for (int i = 0; i < BENCH_WORKERS; i++) cell->of_worker[i] += told.of_worker[i];
    cell->grants += told.grants;
    cell->overlaps += told.overlaps;
    cell->elapsed_ns += ms * 1000000;
}

/* ---- all peers --------------------------------------------------------------------------------------------------- */

const struct bench_peer bench_peers[] = {
    {"flock(1)", "file", is_command, find_flock, bench_command},
    {"redis-py", "redis", is_of_processes, find_program, run_program},
    {"kazoo", "zookeeper", is_of_processes, find_program, run_program},
};
const size_t bench_n_peers = sizeof bench_peers / sizeof bench_peers[0];

bool bench_has_row(const struct bench_target *target, const struct bench_case *c) {
    return !target->peer || target->peer->measures(c->workload);
}

void bench_peers_share_floors(const struct bench *bench) {
    for (size_t i = 0; i < bench->n_targets; i++) {
        const struct bench_target *target = &bench->targets[i], *server = target - target->behind;
        for (size_t k = 0; target->peer && k < bench->n_cases; k++) {
            if (!bench_has_row(target, &bench->cases[k])) continue;
            target->cells[k].floor = server->cells[k].floor;
            target->cells[k].floor_elapsed_ns = server->cells[k].floor_elapsed_ns;
        }
    }
}
