/* Runs a floor program: FOLDER/floor-<backend> OPERATION MILLISECONDS, with the URI as a line on its standard input. It
 * does OPERATION for so long and writes "NANOSECONDS COUNT" lines, then "end". Status 77: it does not have that
 * operation, or cannot do it on this URI. */
#include "bench.h"
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SKIPPED = 77, PATH = 4096 };

/* False when the path does not fit. */
static bool program_of(const struct bench *bench, const struct bench_target *target, char path[PATH]) {
    return snprintf(path, PATH, "%s/floor-%s", bench->floors, target->backend) < PATH;
}

bool bench_has_floor(const struct bench *bench, const struct bench_target *target, const struct bench_case *c) {
    char path[PATH];
    return bench->floors && c->workload->floor && !target->no_floor && target->backend[0] &&
           program_of(bench, target, path) && access(path, X_OK) == 0;
}

static _Noreturn void become(const char *path, const char *operation, int64_t ms, int in, int out) {
    char duration[24];
    snprintf(duration, sizeof duration, "%" PRId64, ms);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0)
        execl(path, path, operation, duration, (char *)NULL);
    _exit(127);
}

/* Adds the samples; true when the output is whole. */
static bool read_samples(int fd, struct histogram *histogram) {
    char line[128];
    bool whole = false;
    FILE *in = fdopen(fd, "r");
    if (!in) {
        close(fd);
        return false;
    }
    while (fgets(line, sizeof line, in)) {
        int64_t ns;
        uint32_t count;
        if (strcmp(line, "end\n") == 0)
            whole = true;
        else if (sscanf(line, "%" SCNd64 " %" SCNu32, &ns, &count) == 2)
            histogram_add(histogram, ns, count);
    }
    fclose(in);
    return whole;
}

static pid_t start(const char *path, const char *operation, int64_t ms, const int in[2], const int out[2]) {
    pid_t pid = fork();
    if (pid == 0) become(path, operation, ms, in[0], out[1]);
    close(in[0]);
    close(out[1]);
    return pid;
}

void bench_floor(const struct bench *bench, struct bench_target *target, size_t n_case, const struct bench_case *c,
                 int64_t ms) {
    char path[PATH];
    int in[2], out[2], status = -1;
    struct histogram samples = {0};
    if (!program_of(bench, target, path) || pipe2(in, O_CLOEXEC) != 0) return;
    if (pipe2(out, O_CLOEXEC) != 0) {
        close(in[0]);
        close(in[1]);
        return;
    }
    pid_t pid = start(path, c->workload->floor, ms, in, out);
    /* It fits into the pipe; nobody may be there to read it any more. */
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    sigaction(SIGPIPE, &ignore, &before);
    dprintf(in[1], "%s\n", target->uri);
    sigaction(SIGPIPE, &before, NULL);
    close(in[1]);
    bool whole = read_samples(out[0], &samples);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) return;
    if (status == 0 && whole) {
        histogram_merge(&target->cells[n_case].floor, &samples);
        return;
    }
    target->no_floor = true;
    bench_progress_end(bench);
    note("%s has no floor: %s failed", target->server, path);
}
