#include "child.h"

#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Only async-signal-safe calls: the parent has threads. */
_Noreturn static void child_exec(const struct child_plan *plan, pid_t parent, int failure_fd) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(STATUS_SOFTWARE); /* it died before we asked to be told */
    setpgid(0, 0);
    if (terminal_is_wanted(plan->terminal)) terminal_give(plan->terminal, getpid());
    signals_restore(plan->signals);
    execvpe(plan->argv[0], plan->argv, plan->env);
    int why = errno;
    (void)!write(failure_fd, &why, sizeof why);
    _exit(STATUS_NOT_FOUND);
}

pid_t child_start(const struct child_plan *plan, int *why, bool *forked) {
    int ends[2];
    pid_t parent = getpid();
    pid_t child = -1;
    *forked = false;
    if (pipe2(ends, O_CLOEXEC) == 0) {
        child = fork();
        if (child == 0) child_exec(plan, parent, ends[1]);
        *why = errno;
        close(ends[1]);
    } else {
        *why = errno;
        return -1;
    }
    if (child > 0) {
        *forked = true;
        setpgid(child, child); /* whoever is first: it must be so before we signal the group */
        ssize_t got;
        do {
            got = read(ends[0], why, sizeof *why);
        } while (got < 0 && errno == EINTR);
        if (got > 0) {
            child_reap(child);
            terminal_take_back(plan->terminal, child);
            child = -1;
        }
    }
    close(ends[0]);
    return child;
}

void child_signal(pid_t child, int sig) {
    kill(-child, sig);
    if (sig == SIGKILL || getpgid(child) != child) kill(child, sig);
}

bool child_ended(pid_t child, int *sig) {
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != child) return false;
    *sig = info.si_code == CLD_EXITED ? 0 : info.si_status;
    return true;
}

int child_stopped(pid_t child) {
    siginfo_t info = {0};
    bool stopped = waitid(P_PID, (id_t)child, &info, WSTOPPED | WNOHANG) == 0 && info.si_pid == child;
    return stopped ? info.si_status : 0;
}

int child_reap(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return STATUS_SOFTWARE;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
