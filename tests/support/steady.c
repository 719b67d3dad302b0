/* dlock-steady COMMAND…: runs a test that measures real time. If it fails and the machine stood still meanwhile, says so
 * and runs it again, three times at most. Every other result counts at once. tests/run.sh counts the repetitions. */
#include "support/clock.h"
#include "support/standstill.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TICK_MS = 50 };

static volatile pid_t running; /* and process group */

static void end_early(int signal_number) {
    if (running > 0) kill(-running, SIGKILL);
    _exit(128 + signal_number);
}

static void run_in_child(char **argv, const sigset_t *mask) {
    sigprocmask(SIG_SETMASK, mask, NULL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execvp(argv[0], argv);
    fprintf(stderr, "dlock-steady: %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

/* Waits until the child ends, kills what a test that failed has left, and returns the status. Stores the longest delay of
 * this process since begun_ms. The child is reaped last: until then nobody else gets its number, which is the group's. */
static int await(pid_t pid, const sigset_t *child, int64_t begun_ms, int64_t *stood_ms) {
    const struct timespec tick = {0, TICK_MS * 1000000};
    int64_t last_ms = begun_ms;
    int status;
    *stood_ms = 0;
    for (;;) {
        siginfo_t info = {0};
        bool ended = waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
        int64_t at_ms = now_ms(), late_ms = at_ms - last_ms - TICK_MS;
        if (late_ms > *stood_ms) *stood_ms = late_ms;
        if (ended) {
            kill(-pid, SIGKILL);
            running = 0;
            waitpid(pid, &status, 0);
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
        last_ms = at_ms;
        sigtimedwait(child, NULL, &tick);
    }
}

int main(int argc, char **argv) {
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
    sigset_t child, before;
    if (argc < 2) return fprintf(stderr, "usage: %s COMMAND…\n", argv[0]), 64;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &before);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) signal(ends[i], end_early);
    for (int run = 1;; run++) {
        int64_t stood_ms, begun_ms = now_ms();
        fflush(stdout);
        pid_t pid = fork();
        if (pid < 0) return perror("fork"), 71;
        if (pid == 0) run_in_child(argv + 1, &before);
        setpgid(pid, pid);
        running = pid;
        int status = await(pid, &child, begun_ms, &stood_ms);
        if (status > 128) printf("# killed by signal %d\n", status - 128);
        if (status == 0 || stood_ms < STOOD_STILL_MS || run == MOST_RUNS) return status;
        printf("# the machine stood still for %d ms: run again\n", (int)stood_ms);
    }
}
