/* dlock-simulate: the whole core against a server in memory, on simulated clocks, threads and networks, by seeds.
 *
 * Each seed is run in a process of its own and draws everything: which faults there are and how many, who does what,
 * which thread goes on when. So a seed that has shown a fault shows it again: dlock-simulate --seed N -v tells how. */
#include "actors.h"
#include "checker.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { JOBS_MAX = 64, FAULTS_SHOWN = 10 };

/* Of what the children have done. */
static struct totals { _Atomic uint64_t seeds, grants, requests; } * totals;

static unsigned some(unsigned most) {
    return sim_chance(400) ? (unsigned)sim_between(1, most) : 0;
}

static struct sim_plan draw(void) {
    const struct sim_kind *kinds;
    size_t n = sim_kinds(&kinds);
    struct sim_plan plan = {.kind = &kinds[sim_random() % n],
                            .hosts = (unsigned)sim_between(1, 5),
                            .names = (unsigned)sim_between(1, 6),
                            .busy_us = sim_between(1, 40) * 500000,
                            .calm_us = 3000000,
                            .stops = some(300),
                            .suspends = some(200),
                            .kills = some(200),
                            .restarts = some(100),
                            .drift_ppm = some(4900), /* between two clocks: twice as much */
                            .allocations = some(3000),
                            .descriptors = some(100),
                            .slow_callbacks = some(300),
                            .faults = {some(50), some(50), some(30), some(30), some(20), some(20), some(100),
                                       sim_chance(500) ? 500 : sim_between(100, 60000)}};
    if (plan.kind->caps & DLOCK_CAP_VOLATILE) plan.restarts = some(400), plan.forgets = 700;
    if (strcmp(plan.kind->scheme, "simlocal") == 0) { /* as files: never away */
        plan.faults = (struct sim_faults){.latency_us = 500};
        plan.restarts = 0;
    }
    return plan;
}

static int run(uint64_t seed) {
    sim_seed(seed);
    struct sim_plan plan = draw();
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

static pid_t start(uint64_t seed) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid != 0) return pid;
    alarm(120); /* a loop without an end is a fault */
    int rc = run(seed);
    fflush(stdout);
    _exit(rc);
}

struct job {
    pid_t pid;
    uint64_t seed;
};

/* Waits for one of them. True: it has shown a fault. */
static bool collect(struct job *jobs, unsigned n) {
    int status;
    pid_t pid = wait(&status);
    for (unsigned i = 0; i < n; i++) {
        if (jobs[i].pid != pid) continue;
        jobs[i].pid = 0;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return false;
        if (WIFSIGNALED(status))
            printf("seed %llu: ended by signal %d\n", (unsigned long long)jobs[i].seed, WTERMSIG(status));
        return true;
    }
    return false;
}

static int run_many(uint64_t from, uint64_t count, double seconds, unsigned n_jobs) {
    struct job jobs[JOBS_MAX] = {{0, 0}};
    unsigned busy = 0, faults = 0;
    double begun = now();
    for (uint64_t seed = from; faults < FAULTS_SHOWN && (count == 0 || seed - from < count); seed++) {
        if (seconds > 0 && now() - begun > seconds) break;
        if (busy == n_jobs) {
            faults += collect(jobs, n_jobs);
            busy--;
        }
        unsigned at = 0;
        while (jobs[at].pid) at++;
        jobs[at] = (struct job){start(seed), seed};
        busy++;
    }
    for (; busy > 0; busy--) faults += collect(jobs, n_jobs);
    printf("%llu seeds from %llu, %llu grants, %llu requests, %.0f s: %u faults\n", (unsigned long long)totals->seeds,
           (unsigned long long)from, (unsigned long long)totals->grants, (unsigned long long)totals->requests,
           now() - begun, faults);
    return faults ? 1 : 0;
}

static int usage(void) {
    fprintf(stderr, "usage: dlock-simulate [--seed N [-v]] [--from N] [--count N] [--seconds S] [-j N]\n");
    return 2;
}

int main(int argc, char **argv) {
    static const struct option options[] = {{"seed", required_argument, NULL, 's'},
                                            {"from", required_argument, NULL, 'f'},
                                            {"count", required_argument, NULL, 'c'},
                                            {"seconds", required_argument, NULL, 't'},
                                            {NULL, 0, NULL, 0}};
    uint64_t from = 1, count = 0;
    double seconds = 0;
    unsigned jobs = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    /* The same addresses each time, since some orders may depend on them. */
    int persona = personality(0xffffffff);
    if (!(persona & ADDR_NO_RANDOMIZE) && personality((unsigned long)persona | ADDR_NO_RANDOMIZE) >= 0)
        execv("/proc/self/exe", argv);
    for (int option; (option = getopt_long(argc, argv, "j:v", options, NULL)) != -1;) {
        if (option == 's')
            from = strtoull(optarg, NULL, 0), count = 1;
        else if (option == 'f')
            from = strtoull(optarg, NULL, 0);
        else if (option == 'c')
            count = strtoull(optarg, NULL, 0);
        else if (option == 't')
            seconds = strtod(optarg, NULL);
        else if (option == 'j')
            jobs = (unsigned)strtoul(optarg, NULL, 0);
        else if (option == 'v')
            sim_verbose = true;
        else
            return usage();
    }
    if (optind < argc || jobs < 1 || jobs > JOBS_MAX) return usage();
    if (count == 0 && seconds == 0) seconds = 10;
    totals = mmap(NULL, sizeof *totals, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (totals == MAP_FAILED) return 1;
    return run_many(from, count, seconds, jobs);
}
