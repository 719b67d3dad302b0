#include "bench/process.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void failed(struct bench_arena *arena, int code, const char *why) {
    struct dlock_error err = {code, ""};
    snprintf(err.message, sizeof err.message, "%s", why);
    bench_failed(arena, &err);
}

pid_t bench_fork(struct bench_arena *arena, void (*body)(void *arg), void *arg) {
    pid_t parent = getpid(), pid = fork();
    if (pid < 0) failed(arena, DLOCK_ENOMEM, "no process for a worker; raise the limit (ulimit -u)");
    if (pid != 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    bench_leave_signals();
    if (getppid() == parent) body(arg);
    _exit(0);
}

static bool one_has_ended(void) {
    siginfo_t info = {0};
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
}

bool bench_all_ready(struct bench_arena *arena, uint32_t workers) {
    for (int64_t begun = now_ns(); now_ns() - begun < BENCH_READY_MS * INT64_C(1000000); bench_sleep_ms(1)) {
        if (bench_interrupted()) return false;
        bool ended = one_has_ended(); /* before `ready` is read: a worker that was ready may end its work at any time */
        if (atomic_load(&arena->error_code) != 0) return false;
        if (atomic_load(&arena->ready) == workers) return true;
        if (ended) failed(arena, DLOCK_ECANCELED, "a worker has died");
    }
    failed(arena, DLOCK_ETIMEDOUT, "the workers were not ready in time");
    return false;
}

void bench_reap(struct bench_arena *arena, const pid_t *pids, int n, bool by_themselves) {
    int64_t deadline = now_ns() + BENCH_END_MS * INT64_C(1000000);
    for (int i = 0; i < n; i++) {
        int status = 0;
        bool killed = !by_themselves;
        if (killed) kill(pids[i], SIGKILL);
        for (pid_t pid; (pid = waitpid(pids[i], &status, killed ? 0 : WNOHANG)) <= 0;) {
            if (pid < 0 && errno != EINTR) break;
            bool late = now_ns() > deadline;
            if (!killed && (late || bench_interrupted())) {
                if (late) failed(arena, DLOCK_ETIMEDOUT, "a worker did not end in time");
                kill(pids[i], SIGKILL);
                killed = true;
            } else {
                bench_sleep_ms(1);
            }
        }
        if (status != 0 && !killed) failed(arena, DLOCK_ECANCELED, "a worker has died");
    }
}

int64_t bench_cpu_ns(void) {
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return used.tv_sec * INT64_C(1000000000) + used.tv_nsec;
}
