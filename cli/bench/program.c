#include "bench/program.h"
#include "bench/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ARGUMENTS = 8 };

/* Finds the path of `name`, which is relative to this program's folder. False if it does not exist. */
static bool find_beside(const char *name, char found[PATH_MAX]) {
    char own[PATH_MAX], path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    if (length <= 0) return false;
    own[length] = '\0';
    *strrchr(own, '/') = '\0';
    return snprintf(path, PATH_MAX, "%s/%s", own, name) < PATH_MAX && realpath(path, found);
}

/* Looks where an installation has the programs, then where a build tree has them. */
void bench_own_programs(char folder[PATH_MAX]) {
    if (!find_beside(DLOCK_FLOORS, folder) && !find_beside("../libexec/dlock/floors", folder)) folder[0] = '\0';
}

const char *bench_own_dlock(char path[PATH_MAX]) {
    return find_beside("dlock", path) ? path : "dlock";
}

/* Writes the path of the backend's program. False if it does not fit. */
static bool path_of(const struct bench *bench, const struct bench_target *target, char path[PATH_MAX]) {
    const char *kind = target->peer ? "peer" : "floor";
    const char *name = target->peer ? target->peer->name : target->backend;
    return snprintf(path, PATH_MAX, "%s/%s-%s", bench->floors, kind, name) < PATH_MAX;
}

bool bench_has_program(const struct bench *bench, const struct bench_target *target) {
    char path[PATH_MAX];
    return bench->floors[0] && target->backend[0] && path_of(bench, target, path) && access(path, X_OK) == 0;
}

static _Noreturn void become(const char *path, const char *const *arguments, int in, int out) {
    char *argv[ARGUMENTS + 2] = {(char *)path};
    for (int i = 0; i < ARGUMENTS && arguments[i]; i++) argv[i + 1] = (char *)arguments[i];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0) execv(path, argv);
    _exit(127);
}

static bool two_pipes(int in[2], int out[2]) {
    if (pipe2(in, O_CLOEXEC) != 0) return false;
    if (pipe2(out, O_CLOEXEC) == 0) return true;
    close(in[0]);
    close(in[1]);
    return false;
}

bool bench_program_start(const struct bench *bench, const struct bench_target *target, const char *const *arguments,
                         struct bench_program *program) {
    char path[PATH_MAX];
    int in[2], out[2];
    if (!path_of(bench, target, path) || !two_pipes(in, out)) return false;
    pid_t pid = fork();
    if (pid == 0) become(path, arguments, in[0], out[1]);
    close(in[0]);
    close(out[1]);
    *program = (struct bench_program){pid, in[1], fdopen(out[0], "r")};
    if (program->out && pid > 0) {
        bench_program_tell(program, target->uri);
        return true;
    }
    if (!program->out) close(out[0]);
    bench_program_end(program);
    *program = (struct bench_program){0};
    return false;
}

/* Does not block, since a line fits into the pipe. SIGPIPE is ignored: the program may have ended. */
void bench_program_tell(const struct bench_program *program, const char *line) {
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    sigaction(SIGPIPE, &ignore, &before);
    dprintf(program->in, "%s\n", line);
    sigaction(SIGPIPE, &before, NULL);
}

void bench_program_hang_up(struct bench_program *program) {
    if (program->in >= 0) close(program->in);
    program->in = -1;
}

int bench_program_end(struct bench_program *program) {
    int status = -1;
    bench_program_hang_up(program);
    if (program->out) fclose(program->out);
    if (program->pid <= 0) return status;
    if (bench_interrupted()) kill(program->pid, SIGTERM);
    while (waitpid(program->pid, &status, 0) < 0 && errno == EINTR)
        if (bench_interrupted()) kill(program->pid, SIGTERM);
    return status;
}
