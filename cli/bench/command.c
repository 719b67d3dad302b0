/* Measures what a lock costs a shell script: runs `dlock run NAME -- true` or `flock FILE true`, a process per
 * grant. */
#include "bench/process.h"
#include "bench/program.h"

#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE "30" /* longest wait for the lock in seconds, longer than a quarantine */

extern char **environ;

/* Returns a copy of our environment with DLOCK_URI=uri: other users could see a password in the arguments, but not
 * there. The caller frees the result and *text. NULL: out of memory. */
static char **environment_with(const char *uri, char **text) {
    size_t n = 0, kept = 0;
    while (environ[n]) n++;
    char **result = calloc(n + 2, sizeof *result);
    if (!result || asprintf(text, "DLOCK_URI=%s", uri) < 0) {
        free(result);
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        if (strncmp(environ[i], "DLOCK_URI=", 10) != 0) result[kept++] = environ[i];
    result[kept] = *text;
    return result;
}

/* Runs a program and waits for its end. Returns its status as of waitpid(2); -1: it cannot be started. */
static int run_once(const char *const *argv, char *const *environment) {
    struct bench_program program = {.in = -1};
    if (posix_spawnp(&program.pid, argv[0], NULL, NULL, (char *const *)argv, environment) != 0) return -1;
    return bench_program_end(&program);
}

static void failed(struct bench_cell *cell, const char *program, int status) {
    cell->error_code = DLOCK_EUNAVAILABLE;
    if (WIFEXITED(status))
        snprintf(cell->error, sizeof cell->error, "%s ended with status %d", program, WEXITSTATUS(status));
    else if (status == -1)
        snprintf(cell->error, sizeof cell->error, "%s cannot be run", program);
    else
        snprintf(cell->error, sizeof cell->error, "%s was killed by signal %d", program, WTERMSIG(status));
}

static void repeat(struct bench_cell *cell, const char *name, const char *const *argv, char *const *environment,
                   int64_t ms) {
    int64_t begun = now_ns(), asked = begun, end = begun + ms * 1000000;
    do {
        int status = run_once(argv, environment);
        int64_t done = now_ns();
        if (bench_interrupted()) return;
        if (status != 0) {
            failed(cell, name, status);
            return;
        }
        histogram_add(&cell->samples, done - asked, 1);
        cell->grants++;
        cell->elapsed_ns += done - asked;
        asked = done;
    } while (asked < end);
}

void bench_command(const struct bench *bench, struct bench_target *target, size_t n_case, const struct bench_case *c,
                   int64_t ms) {
    struct bench_cell *cell = &target->cells[n_case];
    char path[PATH_MAX], file[64], *text = NULL;
    char **environment = environment_with(target->uri, &text);
    /* tmpfile() has already unlinked the file, so that it need not be removed. */
    FILE *nameless = target->peer ? tmpfile() : NULL;
    (void)bench;
    (void)c;
    if (!environment || (target->peer && !nameless)) {
        bench_out_of_memory(cell);
    } else if (target->peer) {
        snprintf(file, sizeof file, "/proc/self/fd/%d", fileno(nameless));
        repeat(cell, "flock", (const char *[]){"flock", "-w", PATIENCE, file, "true", NULL}, environment, ms);
    } else {
        const char *dlock = bench_own_dlock(path);
        repeat(cell, "dlock run",
               (const char *[]){dlock, "run", "-w", PATIENCE "s", "dlock-bench:command:0", "--", "true", NULL},
               environment, ms);
    }
    if (nameless) fclose(nameless);
    free(text);
    free(environment);
}
