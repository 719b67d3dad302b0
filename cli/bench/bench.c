/* bench: measures the same work on several servers, in turns. */
#include "bench/bench.h"
#include "bench/html.h"
#include "bench/process.h"
#include "bench/program.h"
#include "cli.h"

#include <dlock/backend.h>
#include <getopt.h>
#include <unistd.h>

enum { NAMES = 32, TIMES = 5 };

struct request {
    struct bench bench;
    const char *names[NAMES]; /* the wanted workloads; none: all */
    size_t n_names;
    bool as_json, as_csv;
    const char *page; /* the file of --html, or NULL */
};

/* Returns the length of one run in ms: all runs of a server, and those of its floor, together take bench->time_ms. */
static int64_t slice(const struct bench *bench, const struct bench_target *target) {
    int64_t runs = 0;
    for (size_t k = 0; k < bench->n_cases; k++)
        runs += bench->rounds * (bench_has_floor(bench, target, &bench->cases[k]) ? 2 : 1);
    int64_t ms = bench->time_ms / runs;
    return ms > 0 ? ms : 1;
}

static bool gives_samples(const struct bench_case *c) {
    switch (c->workload->crowd) {
    case BENCH_LOCKS:
    case BENCH_IDLE: return false;
    case BENCH_PROCESSES:
    case BENCH_WAITERS:
    case BENCH_THREADS: return c->processes * c->threads > 1;
    default: return true;
    }
}

/* Runs a case's floor, and repeats it as run() does the case. */
static void run_floor(const struct bench *bench, struct bench_target *target, size_t n_case, int64_t ms) {
    const struct bench_case *c = &bench->cases[n_case];
    for (int times = 0; times < TIMES && !bench_interrupted(); times++, ms *= 2)
        if (!bench_floor(bench, target, n_case, c, ms) || target->cells[n_case].floor.n > 0 || !gives_samples(c))
            return;
}

/* Runs a case. On a busy machine or a slow server a run may end before any sample: it is then repeated, up to TIMES
 * times and each time twice as long. */
static void run(const struct bench *bench, struct bench_target *target, size_t n_case, int64_t ms) {
    const struct bench_case *c = &bench->cases[n_case];
    const struct bench_cell *cell = &target->cells[n_case];
    for (int times = 0; times < TIMES && !bench_interrupted(); times++, ms *= 2) {
        (target->peer ? target->peer->run : c->workload->run)(bench, target, n_case, c, ms);
        if (cell->samples.n > 0 || cell->overlaps > 0 || cell->error_code || !gives_samples(c)) return;
    }
}

/* Runs all cases in rounds. In each round every server runs each case once, and another server is first: so other load
 * of the machine affects all servers alike. */
static void measure(struct bench *bench) {
    int done = 0, all = bench->rounds * (int)(bench->n_cases * bench->n_targets);
    for (int round = 0; round < bench->rounds; round++) {
        for (size_t k = 0; k < bench->n_cases; k++) {
            const struct bench_case *c = &bench->cases[k];
            for (size_t i = 0; i < bench->n_targets && !bench_interrupted(); i++, done++) {
                struct bench_target *target = &bench->targets[(i + (size_t)round) % bench->n_targets];
                if (target->cells[k].error_code || !bench_has_row(target, c)) continue;
                bench_progress(bench, done, all, target->server, c->label);
                int64_t ms = slice(bench, target - target->behind);
                if (bench_has_floor(bench, target, c)) run_floor(bench, target, k, ms);
                run(bench, target, k, ms);
            }
        }
    }
    bench_peers_share_floors(bench);
    bench->interrupted = bench_interrupted();
    bench_progress_end(bench);
}

static int first_error(const struct bench *bench) {
    for (size_t i = 0; i < bench->n_targets; i++)
        for (size_t k = 0; k < bench->n_cases; k++)
            if (bench->targets[i].cells[k].error_code) return bench->targets[i].cells[k].error_code;
    return 0;
}

static int tell(struct request *request) {
    struct bench *bench = &request->bench;
    uint64_t violations = bench_violations(bench);
    int status = STATUS_OK;
    bench_describe(bench);
    if (request->as_json)
        bench_json(bench, stdout);
    else if (request->as_csv)
        bench_csv(bench, stdout);
    else if (!bench_table(bench, stdout)) {
        note("%s", dlock_strerror(DLOCK_ENOMEM));
        status = STATUS_OS;
    }
    if (bench->interrupted) note("interrupted: these are the results so far");
    if (first_error(bench)) {
        note("some workloads did not finish; see the lines marked with *");
        /* A wait that timed out in a workload is not the conflict that STATUS_CONFLICT stands for. */
        status = error_status(first_error(bench));
        if (status == STATUS_CONFLICT) status = STATUS_UNAVAILABLE;
    }
    if (bench->interrupted) status = 128 + bench->interrupted; /* as a shell reports a death by signal */
    if (violations) {
        note("exclusion was violated %llu times", (unsigned long long)violations);
        status = STATUS_BROKEN;
    }
    return status;
}

static int take_number(int *number, const char *option, int max) {
    long value;
    if (!read_number(optarg, 1, max, &value))
        return usage_error(&command_bench, "%s takes a number from 1 to %d", option, max);
    *number = (int)value;
    return STATUS_OK;
}

static int take_time(int64_t *ms, const char *option, int64_t least_ms) {
    struct dlock_error err = {0, ""};
    char least[32];
    if (dlock_parse_duration(optarg, ms, &err) != 0) return usage_error(&command_bench, "%s: %s", option, err.message);
    if (*ms >= least_ms && *ms <= 86400000) return STATUS_OK;
    return usage_error(&command_bench, "%s must be at least %s, and at most a day", option,
                       dlock_duration_text(least, least_ms));
}

static int take_name(struct request *request) {
    if (request->n_names == NAMES) return usage_error(&command_bench, "too many workloads");
    request->names[request->n_names++] = optarg;
    return STATUS_OK;
}

static int take_option(struct request *request, int option) {
    struct bench *bench = &request->bench;
    switch (option) {
    case 't': return take_time(&bench->time_ms, "--time", 1);
    case 'l': return take_time(&bench->lease_ms, "--lease", DLOCK_LEASE_MIN_MS);
    case 'w': return take_name(request);
    case 'r': return take_number(&bench->rounds, "--rounds", 1000);
    case 'P': return take_number(&bench->processes, "--processes", BENCH_THREADS_MAX);
    case 'T': return take_number(&bench->threads, "--threads", BENCH_THREADS_MAX);
    case 'W': return take_number(&bench->waiters, "--waiters", BENCH_WORKERS);
    case 'L': return take_number(&bench->locks, "--locks", 100000);
    case 'N': return bench_add_labelled(bench, optarg);
    case 'F': bench->floors = optarg; return STATUS_OK;
    case 'H': request->page = optarg; return STATUS_OK;
    case 'j': request->as_json = true; return STATUS_OK;
    default: request->as_csv = true; return STATUS_OK;
    }
}

/* Prints that `name` is no workload, without repeating it: it may be a URI with a password. Returns STATUS_USAGE. */
static int unknown_workload(const char *name) {
    const char *words[32] = {NULL};
    char list[400], guess[80];
    for (size_t i = 0; i < bench_n_workloads && i < 31; i++) words[i] = bench_workloads[i].name;
    if (dlock_guess(guess, sizeof guess, name, words))
        return usage_error(&command_bench, "there is no workload of that name%s", guess);
    word_list(list, sizeof list, words);
    return usage_error(&command_bench, "there is no workload of that name; there are: %s", list);
}

static int check_names(const struct request *request) {
    for (size_t i = 0; i < request->n_names; i++)
        if (!bench_find_workload(request->names[i])) return unknown_workload(request->names[i]);
    return STATUS_OK;
}

static int bench_main(int argc, char **argv) {
    static const struct option longs[] = {
        {"time", required_argument, NULL, 't'},
        {"workload", required_argument, NULL, 'w'},
        {"rounds", required_argument, NULL, 'r'},
        {"processes", required_argument, NULL, 'P'},
        {"threads", required_argument, NULL, 'T'},
        {"floors", required_argument, NULL, 'F'},
        {"waiters", required_argument, NULL, 'W'},
        {"locks", required_argument, NULL, 'L'},
        {"lease", required_argument, NULL, 'l'},
        {"json", no_argument, NULL, 'j'},
        {"csv", no_argument, NULL, 'c'},
        {"label", required_argument, NULL, 'N'},
        {"html", required_argument, NULL, 'H'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct request request = {.bench = {.rounds = 3,
                                        .time_ms = 5000,
                                        .processes = 4,
                                        .waiters = 16,
                                        .threads = 64,
                                        .locks = 1000,
                                        .lease_ms = 3000}};
    struct bench *bench = &request.bench;
    char floors[PATH_MAX];
    bench_own_programs(floors);
    bench->floors = floors;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":w:h", longs, NULL)) != -1;) {
        if (c == 'h') return print_help(&command_bench);
        if (c == '?' || c == ':') return option_error(&command_bench, argv, longs, c);
        int status = take_option(&request, c);
        if (status != STATUS_OK) return bench_free(bench), status;
    }
    if (request.as_json && request.as_csv) return usage_error(&command_bench, "--json or --csv, not both");
    bench->progress = isatty(STDERR_FILENO);
    int status = check_names(&request);
    if (status == STATUS_OK) status = bench_add_cases(bench, request.names, request.n_names);
    if (status == STATUS_OK) status = bench_add_targets(bench, argv + optind, (size_t)(argc - optind));
    if (status == STATUS_OK && request.page) status = bench_html_check(request.page);
    if (status == STATUS_OK) {
        bench_hear_signals();
        measure(bench);
        status = tell(&request);
        if (request.page) {
            int written = bench_html_write(request.page, bench, argv + 1, (size_t)optind - 1);
            if (status == STATUS_OK) status = written;
        }
    }
    bench_free(bench);
    return status;
}

const struct command command_bench = {
    "bench", "compare the speed of lock servers",
    "Usage: dlock bench [OPTION…] [URI…]\n\n"
    "Runs the same workloads on each server in turn. The first table shows how long a step takes (median and 99th\n"
    "percentile), the steps per second, the median as a multiple of that of a minimal client of the same server\n"
    "(FLOOR), the fairness (the fewest grants of a worker divided by the most), and the number of violations of\n"
    "exclusion. The second table shows the load that waiters and renewals put on the server. The number after a\n"
    "workload's slash is the number of workers or locks. All lock names begin with \"dlock-bench:\". If flock(1),\n"
    "redis-py or kazoo is installed, it gets a row of its own after the server that it uses.\n\n"
    "Workloads: cycle, re-entry, hand-over, hand-over-10ms, distinct, one-lock, crash, crowd, renewal, idle,\n"
    "command; see dlock-bench(1).\n\n"
    "      --time TIME      total time of all workloads on one server, without crash, renewal and idle, whose\n"
    "                       length depends on the lease; default 5s\n"
    "  -w, --workload NAME  run only this workload; may be given several times\n"
    "      --rounds N       rounds of each workload on each server; default 3\n"
    "      --processes N    processes that share the lock in hand-over; default 4, at most 64\n"
    "      --threads N      largest number of threads in distinct and one-lock; default 64, at most 64\n"
    "      --waiters N      processes that share the lock in crowd, waits in idle; default 16, at most 1000\n"
    "      --locks N        locks that renewal and idle hold; default 1000\n"
    "      --lease TIME     lease of the locks in renewal and idle; default 3s\n"
    "      --label NAME=URI  measure URI and call it NAME in the output; may be given several times\n"
    "      --floors FOLDER  folder of the minimal clients, floor-BACKEND, which also read the server's\n"
    "                       counters in crowd, renewal and idle; default: those installed with\n"
    "                       dlock-bench;\n"
    "                       \"\": no floors, no counters, and no rows of other software\n"
    "      --json           print JSON\n"
    "      --csv            print CSV\n"
    "      --html FILE      also write a page with charts to FILE\n"
    "  -h, --help           show this\n\n"
    "Without a URI the server is $DLOCK_URI, else \"file:\".\n\n"
    "Exit status: 0, 1 exclusion was violated, 64 wrong usage, 69 a server cannot be used or a workload did not\n"
    "finish, 74 FILE cannot be written, 130 interrupted: the results so far are printed.\n\n"
    "Examples:\n"
    "  dlock bench file: redis://localhost\n"
    "  dlock bench -w crowd --waiters 100 redis://localhost\n"
    "  dlock bench --json etcd://localhost >results.json\n",
    bench_main};
