/* The programs of the folder of floors: FOLDER/floor-BACKEND ARGUMENT… or FOLDER/peer-NAME ARGUMENT…, with the URI as
 * the first line on its standard input. */
#ifndef DLOCK_CLI_BENCH_PROGRAM_H
#define DLOCK_CLI_BENCH_PROGRAM_H

#include "bench/bench.h"

#include <limits.h>
#include <sys/types.h>

enum { BENCH_SKIPPED = 77 }; /* its status when it does not have that operation, or cannot do it on this URI */

struct bench_program {
    pid_t pid;
    int in;    /* its standard input */
    FILE *out; /* its standard output */
};

/* The folder of those that came with this program; "": none did. */
void bench_own_programs(char folder[PATH_MAX]);
/* The command beside this program; its bare name, for $PATH, when there is none. */
const char *bench_own_dlock(char path[PATH_MAX]);

bool bench_has_program(const struct bench *bench, const struct bench_target *target);

/* False when it cannot be started; `arguments` end with NULL. */
bool bench_program_start(const struct bench *bench, const struct bench_target *target, const char *const *arguments,
                         struct bench_program *program);
void bench_program_tell(const struct bench_program *program, const char *line);
void bench_program_hang_up(struct bench_program *program); /* there is no further line */
/* Waits for it; its status as of waitpid(2). When the bench is interrupted, kills it. */
int bench_program_end(struct bench_program *program);

#endif
