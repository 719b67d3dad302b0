/* dlock-simulate: runs the whole core against a server in memory, on simulated clocks, threads and networks, by seeds.
 *
 * Each seed is run in its own process and determines everything: the faults and their number, the calls of each
 * application, which thread runs when. So a seed that has shown a fault shows it again; dlock-simulate --seed N -v
 * prints the steps that led to it. */
#include "actors.h"
#include "checker.h"

#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { JOBS_MAX = 64, LOOP_S = 8 /* of processor time: an endless loop is a fault */ };

/* The sums of what the children have done. */
static struct totals { _Atomic uint64_t seeds, grants, requests; } * totals;

/* What to run. */
static uint64_t from, count;
static bool drawn; /* whether `from` was drawn */
static double seconds;
static unsigned n_jobs, faults_most = 10;
static const char *file; /* of seeds, one at the beginning of each line */
static bool shrinks;
static volatile sig_atomic_t stopped; /* by a signal: no more seeds are begun, and the sums are printed */

static void stop(int sig) {
    (void)sig;
    stopped = 1;
}

static int run(uint64_t seed) {
    struct sim_plan plan = sim_draw(seed);
    sim_say("%s, %u hosts, %u names", plan.kind->scheme, plan.hosts, plan.names);
    sim_run(&plan);
    totals->seeds++;
    totals->grants += sim_grants;
    totals->requests += sim_requests;
    return 0;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static pid_t start(uint64_t seed, bool silent) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid != 0) return pid;
    int nowhere = silent ? open("/dev/null", O_WRONLY) : -1;
    if (nowhere >= 0) dup2(nowhere, 1), dup2(nowhere, 2);
    setrlimit(RLIMIT_CPU, &(struct rlimit){LOOP_S, LOOP_S});
    int rc = run(seed);
    fflush(stdout);
    _exit(rc);
}

static bool fails(uint64_t seed) {
    int status = 0;
    pid_t pid = start(seed, true);
    return pid > 0 && waitpid(pid, &status, 0) == pid && status != 0;
}

static void shrink(uint64_t seed) {
    seed = sim_shrink(seed, fails);
    printf("shrunk: dlock-simulate -v --seed %llu", (unsigned long long)seed);
    sim_print_settings();
    printf("\n");
}

struct job {
    pid_t pid;
    uint64_t seed;
};

/* Waits for one of the jobs. True: it has shown a fault; its seed is stored. */
static bool collect(struct job *jobs, uint64_t *first) {
    int status;
    pid_t pid = wait(&status);
    for (unsigned i = 0; i < n_jobs; i++) {
        if (jobs[i].pid != pid) continue;
        jobs[i].pid = 0;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return false;
        if (WIFSIGNALED(status))
            printf("seed %llu: ended by signal %d\n", (unsigned long long)jobs[i].seed, WTERMSIG(status));
        *first = jobs[i].seed;
        return true;
    }
    return false;
}

/* The next seed: first those of the file, then those from `from` on. */
static bool next_seed(FILE *list, uint64_t at, uint64_t *seed) {
    char line[512];
    while (list && fgets(line, sizeof line, list)) {
        char *end;
        *seed = strtoull(line, &end, 10);
        if (end != line) return true;
    }
    *seed = from + at;
    return seconds > 0 || at < count;
}

static int run_all(void) {
    struct job jobs[JOBS_MAX] = {{0, 0}};
    unsigned busy = 0, faults = 0;
    uint64_t at = 0, seed, failed = 0;
    FILE *list = file ? fopen(file, "r") : NULL;
    double begun = now();
    if (file && !list) {
        perror(file);
        return 2;
    }
    for (; !stopped && faults < faults_most && next_seed(list, at, &seed); at += !list || feof(list)) {
        if (seconds > 0 && at > 0 && now() - begun > seconds) break; /* those of the file are run in any case */
        if (count > 0 && at >= count) break;
        if (busy == n_jobs) {
            faults += collect(jobs, &failed);
            busy--;
        }
        unsigned free = 0;
        while (jobs[free].pid) free++;
        jobs[free] = (struct job){start(seed, false), seed};
        busy++;
    }
    for (; busy > 0; busy--) faults += collect(jobs, &failed);
    if (list) fclose(list);
    printf("%llu seeds%s%s from %llu, %llu grants, %llu requests, %.0f s: %u faults\n",
           (unsigned long long)totals->seeds, file ? " of the file and" : "", drawn ? " (new ones)" : "",
           (unsigned long long)from, (unsigned long long)totals->grants, (unsigned long long)totals->requests,
           now() - begun, faults);
    if (faults && shrinks) shrink(failed);
    return faults ? 1 : 0;
}

static int usage(void) {
    fprintf(stderr,
            "usage: dlock-simulate [--seconds S] [--from N] [--count N] [--file SEEDS] [--faults N] [--shrink] [-j N]\n"
            "       dlock-simulate --seed N [-v] [--set NAME=NUMBER …] [--shrink]\n"
            "--from is drawn without it; --faults: ends after so many; -v tells the story.\n"
            "SIGINT or SIGTERM: begins no more seeds, and prints the sums.\n");
    return 2;
}

static bool read_options(int argc, char **argv) {
    static const struct option options[] = {{"seed", required_argument, NULL, 's'},
                                            {"from", required_argument, NULL, 'f'},
                                            {"count", required_argument, NULL, 'c'},
                                            {"seconds", required_argument, NULL, 't'},
                                            {"file", required_argument, NULL, 'l'},
                                            {"faults", required_argument, NULL, 'm'},
                                            {"set", required_argument, NULL, 'p'},
                                            {"shrink", no_argument, NULL, 'k'},
                                            {NULL, 0, NULL, 0}};
    drawn = true;
    for (int option; (option = getopt_long(argc, argv, "j:v", options, NULL)) != -1;) {
        switch (option) {
        case 's':
            count = 1; /* and: */
            __attribute__((fallthrough));
        case 'f':
            from = strtoull(optarg, NULL, 0);
            drawn = false;
            break;
        case 'c': count = strtoull(optarg, NULL, 0); break;
        case 't': seconds = strtod(optarg, NULL); break;
        case 'l': file = optarg; break;
        case 'm': faults_most = (unsigned)strtoul(optarg, NULL, 0); break;
        case 'p':
            if (!sim_set(optarg)) return false;
            break;
        case 'k': shrinks = true; break;
        case 'j': n_jobs = (unsigned)strtoul(optarg, NULL, 0); break;
        case 'v': sim_verbose = true; break;
        default: return false;
        }
    }
    return optind == argc;
}

int main(int argc, char **argv) {
    /* Run with fixed addresses, since some orders may depend on them. */
    int persona = personality(0xffffffff);
    if (!(persona & ADDR_NO_RANDOMIZE) && personality((unsigned long)persona | ADDR_NO_RANDOMIZE) >= 0)
        execv("/proc/self/exe", argv);
    n_jobs = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    if (!read_options(argc, argv) || n_jobs < 1 || n_jobs > JOBS_MAX) return usage();
    if (count == 0 && seconds == 0 && !file) seconds = 10;
    uint32_t random;
    if (drawn && getrandom(&random, sizeof random, 0) == sizeof random) from = random * UINT64_C(1000000);
    totals = mmap(NULL, sizeof *totals, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (totals == MAP_FAILED) return 1;
    struct sigaction action = {.sa_handler = stop, .sa_flags = SA_RESTART};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return run_all();
}
