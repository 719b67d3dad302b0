/* What the parts of `dlock bench` share. Who measures is a process of its own, forked while this one has no client:
 * workers can be killed, and what they count lies in memory that all of them share (arena.h). */
#ifndef DLOCK_CLI_BENCH_H
#define DLOCK_CLI_BENCH_H

#include "bench/histogram.h"

#include <dlock/dlock.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { BENCH_WORKERS = 64, BENCH_ERROR = 600, BENCH_SERVER = 24, BENCH_ABOUT = 200 };

struct bench_worker; /* arena.h */
struct bench_word;
struct bench_target;
struct bench_case;
struct bench;

/* One kind of work. */
struct bench_workload {
    const char *name;
    const char *floor; /* the operation of the floor programs that it is compared with; NULL: none */
    /* One run of a case on a target, about `ms` long; adds to its cell. */
    void (*run)(const struct bench *bench, struct bench_target *target, size_t n_case, const struct bench_case *c,
                int64_t ms);
    void (*work)(struct bench_worker *worker, dlock_lock *lock,
                 struct bench_word *word); /* bench_run(): until the end of the run */
    int64_t hold_ms, pause_ms;
    enum {
        BENCH_ALONE,
        BENCH_PROCESSES,
        BENCH_WAITERS, /* more processes */
        BENCH_THREADS,
        BENCH_THREAD_STEPS,
        BENCH_LOCKS /* one process with many locks */
    } crowd;
    bool own_locks; /* each worker has a lock of its own */
    bool counted;   /* what the server is sent is counted */
};

extern const struct bench_workload bench_workloads[];
extern const size_t bench_n_workloads;
/* NULL: there is none of that name. */
const struct bench_workload *bench_find_workload(const char *name);

/* A workload with its crowd: what a row of the table is about. */
struct bench_case {
    const struct bench_workload *workload;
    int processes, threads; /* threads: of each process */
    int locks;              /* that are held at the same time; 1: not what this is about */
    char label[32];
};

/* What all runs of one case on one server came to. */
struct bench_cell {
    struct histogram samples, floor;
    uint64_t grants, lost;
    uint64_t overlaps, time_overlaps; /* two held one lock: by its owner word, and by their time stamps */
    uint64_t stale_fences;
    int64_t elapsed_ns, floor_elapsed_ns, held_ns, cpu_ns;
    int64_t commands, counted_ns;      /* that the server was sent, and in how long; 0 ns: it was not counted */
    uint64_t of_worker[BENCH_WORKERS]; /* grants */
    char error[BENCH_ERROR];           /* why it ended early; "": it did not */
    int error_code;
};

/* A lock of other software on the same server, measured where it is installed. */
struct bench_peer {
    const char *name, *backend; /* of which kind of server */
    bool (*measures)(const struct bench_workload *workload);
    /* Whether it is installed, and can use the target's server; sets `about`. */
    bool (*find)(const struct bench *bench, struct bench_target *target);
    void (*run)(const struct bench *bench, struct bench_target *target, size_t n_case, const struct bench_case *c,
                int64_t ms); /* as a workload's */
};

/* A server under test, or a lock of other software on it (`peer`), which has a row of its own. */
struct bench_target {
    const char *uri;
    /* Its label, or its scheme, and a number where that stands twice: URIs may have passwords. */
    char server[BENCH_SERVER];
    char backend[BENCH_SERVER];
    bool no_floor;                 /* there is none, or it cannot be run */
    struct bench_cell *cells;      /* one per case */
    const struct bench_peer *peer; /* NULL: this is dlock */
    size_t behind;                 /* of a peer: how many targets before it its server stands */
    char about[BENCH_ABOUT];       /* of a peer: what is measured */
};

struct bench {
    struct bench_target *targets;
    size_t n_targets;
    struct bench_case *cases;
    size_t n_cases;
    int rounds;
    int64_t time_ms;    /* of all of a target's runs together */
    const char *floors; /* folder of the floor programs; "": none */
    int processes, waiters, threads, locks;
    int64_t lease_ms; /* of renewal */
    int interrupted;  /* by which signal; 0: it ran to its end */
    bool progress;
};

/* plan.c: which cases there are, and which servers. Adding says 0, or a status after saying what is wrong. */
int bench_add_cases(struct bench *bench, const char *const *names, size_t n_names);
int bench_add_targets(struct bench *bench, char **uris, size_t n_uris);
/* A server that is called by a name: NAME=URI. Before all others. */
int bench_add_labelled(struct bench *bench, const char *text);
void bench_free(struct bench *bench);

/* run.c: workers that begin together. */
void bench_run(const struct bench *bench, struct bench_target *target, size_t n_case, const struct bench_case *c,
               int64_t ms);

/* crash.c: the take-over from a killed holder, at least once. */
void bench_crash(const struct bench *bench, struct bench_target *target, size_t n_case, const struct bench_case *c,
                 int64_t ms);

/* renewal.c: locks that are held for some renewals, at least two. */
void bench_renewal(const struct bench *bench, struct bench_target *target, size_t n_case, const struct bench_case *c,
                   int64_t ms);

/* command.c: a process for each lock, which runs `true` under it. On a peer: flock(1). */
void bench_command(const struct bench *bench, struct bench_target *target, size_t n_case, const struct bench_case *c,
                   int64_t ms);

/* peer.c: which there are; whether a target has this case; and after the run, a peer has the floors of its server. */
extern const struct bench_peer bench_peers[];
extern const size_t bench_n_peers;
bool bench_has_row(const struct bench_target *target, const struct bench_case *c);
void bench_peers_share_floors(const struct bench *bench);

/* floor.c: what the barest client of the same server needs. */
bool bench_has_floor(const struct bench *bench, const struct bench_target *target, const struct bench_case *c);
void bench_floor(const struct bench *bench, struct bench_target *target, size_t n_case, const struct bench_case *c,
                 int64_t ms);
/* Runs a program of that folder and adds what it measured to `told`. Its status as of waitpid(2); -1: it could not be
 * started, or its output is cut off. */
int bench_floor_run(const struct bench *bench, const struct bench_target *target, const struct bench_case *c,
                    int64_t ms, struct bench_cell *told);

/* progress.c: a line on standard error that is written over, where that is a terminal. */
void bench_progress(const struct bench *bench, int done, int all, const char *server, const char *label);
void bench_progress_end(const struct bench *bench);

/* figures.c: the figures of a cell. Negative: there is no such figure. */
struct bench_figures {
    int64_t median_ns, p90_ns, p99_ns, longest_ns, floor_median_ns, floor_p99_ns;
    double per_second, floor_per_second, ratio, fairness, in_use, handed_over;
    double commands_per_grant, commands_per_second;
    double cpu; /* of the client, all its processes together, as a share of one core */
    uint64_t violations;
};
void bench_figures(const struct bench_case *c, const struct bench_cell *cell, struct bench_figures *figures);
uint64_t bench_violations(const struct bench *bench);

/* table.c, export.c. False: out of memory. */
bool bench_table(const struct bench *bench, FILE *out);
void bench_json(const struct bench *bench, FILE *out);
void bench_csv(const struct bench *bench, FILE *out);

/* A duration with its unit, or a dash, eight characters wide. */
enum { BENCH_DURATION = 16 };
void bench_duration(char cell[BENCH_DURATION], int64_t ns);

#endif
