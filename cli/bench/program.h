/* Runs floor and peer programs: FOLDER/floor-BACKEND ARGUMENT… or FOLDER/peer-NAME ARGUMENT…, with the URI as the first
 * line of standard input. */
#ifndef DLOCK_CLI_BENCH_PROGRAM_H
#define DLOCK_CLI_BENCH_PROGRAM_H

#include "bench/bench.h"

#include <limits.h>
#include <sys/types.h>

enum { BENCH_SKIPPED = 77 }; /* exit status of a program that does not have the operation, or not for this URI */

struct bench_program {
    pid_t pid;
    int in;    /* its standard input */
    FILE *out; /* its standard output */
};

/* Finds the folder of the floor programs that came with dlock-bench; "": there is none. */
void bench_own_programs(char folder[PATH_MAX]);
/* Returns the path of the command `dlock` beside this program, in `path`; or "dlock", to be found in $PATH. */
const char *bench_own_dlock(char path[PATH_MAX]);

/* True if there is a program for the target's backend. */
bool bench_has_program(const struct bench *bench, const struct bench_target *target);

/* Starts the program for the target's backend. `arguments` end with NULL. False on failure. */
bool bench_program_start(const struct bench *bench, const struct bench_target *target, const char *const *arguments,
                         struct bench_program *program);
void bench_program_tell(const struct bench_program *program, const char *line); /* writes to its standard input */
void bench_program_hang_up(struct bench_program *program);                      /* closes its standard input */
/* Waits for the program's end, or kills it if the bench is interrupted. Returns its status as of waitpid(2). */
int bench_program_end(struct bench_program *program);

#endif
