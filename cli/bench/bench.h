/* Shared by all parts of `dlock bench`. The workers that measure are processes of their own, so that they can be
 * killed. They are forked while this process has no client; they count in memory that all of them share (arena.h). */
#ifndef DLOCK_CLI_BENCH_H
#define DLOCK_CLI_BENCH_H

#include "bench/histogram.h"

#include <dlock/dlock.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { BENCH_WORKERS = 1000, BENCH_THREADS_MAX = 64, BENCH_ERROR = 600, BENCH_SERVER = 24, BENCH_ABOUT = 200 };

struct bench_worker; /* arena.h */
struct bench_word;
struct bench_target;
struct bench_case;
struct bench;

/* One kind of work. */
struct bench_workload {
    const char *name;
    const char *floor; /* the operation of the floor programs that the workload is compared with; NULL: none */
    /* Runs a case on a target for about `ms`, and adds the results to the target's cell `n_case`. */
    void (*run)(const struct bench *bench, struct bench_target *target, size_t n_case, const struct bench_case *c,
                int64_t ms);
    void (*work)(struct bench_worker *worker, dlock_lock *lock,
                 struct bench_word *word); /* what a worker of bench_run() does until the end of the run */
    int64_t hold_ms, pause_ms;
    enum {
        BENCH_ALONE,
        BENCH_PROCESSES,
        BENCH_WAITERS, /* processes, as many as --waiters */
        BENCH_THREADS,
        BENCH_THREAD_STEPS,
        BENCH_LOCKS, /* one process with many locks */
        BENCH_IDLE   /* the same, and with waits for them, as many as --waiters */
    } crowd;
    bool own_locks; /* each worker has its own lock */
    bool counted;   /* the commands that reach the server are counted */
};

extern const struct bench_workload bench_workloads[];
extern const size_t bench_n_workloads;
/* Returns the workload of that name, or NULL. */
const struct bench_workload *bench_find_workload(const char *name);

/* A workload with a number of workers: one row of the table per server. */
struct bench_case {
    const struct bench_workload *workload;
    int processes, threads; /* threads: of each process */
    int locks;              /* number of locks held at the same time (BENCH_LOCKS, BENCH_IDLE); otherwise 1 */
    int waiters;            /* number of waits beside them (BENCH_IDLE); otherwise 0 */
    char label[32];
};

/* The results of all runs of one case on one server. */
struct bench_cell {
    struct histogram samples, floor;
    uint64_t grants, lost;
    uint64_t overlaps, time_overlaps; /* two workers held one lock, according to its owner word; to their time stamps */
    uint64_t stale_fences;            /* grants whose fence was not greater than the one before */
    int64_t elapsed_ns, floor_elapsed_ns, held_ns, cpu_ns;
    int64_t machine_ns;                /* processor time of all processes of this machine, where commands are counted */
    int64_t commands, counted_ns;      /* number of commands to the server, and in how long; 0 ns: not counted */
    uint64_t of_worker[BENCH_WORKERS]; /* grants of each worker */
    char error[BENCH_ERROR];           /* why a run ended early; "": none did */
    int error_code;
};

/* A lock of other software, measured on the same server if it is installed. */
struct bench_peer {
    const char *name, *backend;                              /* backend: the one whose servers it uses */
    bool (*measures)(const struct bench_workload *workload); /* true if it has this workload */
    /* True if it is installed and can use the target's server; sets the target's `about`. */
    bool (*find)(const struct bench *bench, struct bench_target *target);
    void (*run)(const struct bench *bench, struct bench_target *target, size_t n_case, const struct bench_case *c,
                int64_t ms); /* as bench_workload.run */
};

/* A server under test; or, with `peer`, a lock of other software on it, which has its own row. */
struct bench_target {
    const char *uri;
    /* Its label; or its scheme, with a number if several servers have it. Not the URI, which may have a password. */
    char server[BENCH_SERVER];
    char backend[BENCH_SERVER];
    bool no_floor;                 /* there is no floor program, or it failed */
    struct bench_cell *cells;      /* one per case */
    const struct bench_peer *peer; /* NULL: this is dlock */
    size_t behind;                 /* peer: its index less that of its server */
    char about[BENCH_ABOUT];       /* a line that says what is measured: of peers, and of locks on this machine */
};

struct bench {
    struct bench_target *targets;
    size_t n_targets;
    struct bench_case *cases;
    size_t n_cases;
    int rounds;
    int64_t time_ms;    /* length of all runs of a target together */
    const char *floors; /* folder of the floor programs; "": none */
    int processes, waiters, threads, locks;
    int64_t lease_ms; /* of the locks in the workloads renewal and idle */
    int interrupted;  /* the signal that interrupted the bench; 0: none */
    bool progress;    /* show a progress bar on standard error */
};

/* plan.c: adds the cases and the servers. The functions return 0, or print what is wrong and return the exit status. */
int bench_add_cases(struct bench *bench, const char *const *names, size_t n_names);
int bench_add_targets(struct bench *bench, char **uris, size_t n_uris);
/* Adds the server of --label, NAME=URI. To be called before bench_add_targets(). */
int bench_add_labelled(struct bench *bench, const char *text);
/* Sets `about` of servers that are on this machine: their file system decides over their speed. To be called after the
 * runs, since this process must not have a client before. */
void bench_describe(struct bench *bench);
void bench_free(struct bench *bench);

/* run.c: runs workers that start together, for `ms`. */
void bench_run(const struct bench *bench, struct bench_target *target, size_t n_case, const struct bench_case *c,
               int64_t ms);

/* crash.c: measures the take-over from a killed holder, again and again for `ms`, at least once. */
void bench_crash(const struct bench *bench, struct bench_target *target, size_t n_case, const struct bench_case *c,
                 int64_t ms);

/* renewal.c: holds many locks, and waits for some of them, for as many renewals as fit into `ms`, at least two. */
void bench_renewal(const struct bench *bench, struct bench_target *target, size_t n_case, const struct bench_case *c,
                   int64_t ms);

/* command.c: runs `dlock run NAME -- true`, a process for each grant; for a peer, flock(1). */
void bench_command(const struct bench *bench, struct bench_target *target, size_t n_case, const struct bench_case *c,
                   int64_t ms);

/* peer.c: the list of peers. bench_has_row() is true if the case is measured on the target. bench_peers_share_floors()
 * copies the floors of each server to its peers, after the run. */
extern const struct bench_peer bench_peers[];
extern const size_t bench_n_peers;
bool bench_has_row(const struct bench_target *target, const struct bench_case *c);
void bench_peers_share_floors(const struct bench *bench);

/* floor.c: runs the floor program, the barest client of the same server. bench_floor() returns true if it measured. */
bool bench_has_floor(const struct bench *bench, const struct bench_target *target, const struct bench_case *c);
bool bench_floor(const struct bench *bench, struct bench_target *target, size_t n_case, const struct bench_case *c,
                 int64_t ms);
/* Runs a floor or peer program and adds its results to `told`. Returns its status as of waitpid(2); -1: it could not be
 * started, or its output is incomplete. */
int bench_floor_run(const struct bench *bench, const struct bench_target *target, const struct bench_case *c,
                    int64_t ms, struct bench_cell *told);

/* progress.c: a progress bar on standard error, if that is a terminal. */
void bench_progress(const struct bench *bench, int done, int all, const char *server, const char *label);
void bench_progress_end(const struct bench *bench);

/* figures.c: computes the figures of a cell. A negative one does not exist. */
struct bench_figures {
    int64_t median_ns, p90_ns, p99_ns, longest_ns, floor_median_ns, floor_p99_ns;
    double per_second, floor_per_second, ratio, fairness, in_use, handed_over;
    double commands_per_grant, commands_per_second;
    double cpu;        /* processor time of all processes of the client together, as a share of one core */
    double others_cpu; /* the same of all other processes of this machine */
    uint64_t violations;
};
void bench_figures(const struct bench_case *c, const struct bench_cell *cell, struct bench_figures *figures);
uint64_t bench_violations(const struct bench *bench);

/* table.c, export.c: print the results. False: out of memory. */
bool bench_table(const struct bench *bench, FILE *out);
void bench_json(const struct bench *bench, FILE *out);
void bench_csv(const struct bench *bench, FILE *out);

/* Writes a duration with its unit, or a dash if `ns` is negative, eight characters wide. */
enum { BENCH_DURATION = 16 };
void bench_duration(char cell[BENCH_DURATION], int64_t ns);

#endif
