#include "child.h"

#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Makes only async-signal-safe calls, since the parent has threads. */
_Noreturn static void child_exec(const struct child_plan *plan, pid_t parent, int go_fd, int failure_fd) {
    char word;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(STATUS_SOFTWARE); /* the parent died before the prctl() above took effect */
    setpgid(0, 0);
    if (read(go_fd, &word, 1) != 1) _exit(STATUS_SOFTWARE);
    if (terminal_is_wanted(plan->terminal)) terminal_give(plan->terminal, getpid());
    inherited_only(plan->inherited);
    signals_restore(plan->signals);
    execvpe(plan->argv[0], plan->argv, plan->env);
    int why = errno;
    (void)!write(failure_fd, &why, sizeof why);
    _exit(STATUS_NOT_FOUND);
}

bool child_adopt(bool on) {
    int before = 0;
    prctl(PR_GET_CHILD_SUBREAPER, &before);
    if (before != on) prctl(PR_SET_CHILD_SUBREAPER, on);
    return before;
}

static void close_pair(const int ends[2]) {
    close(ends[0]);
    close(ends[1]);
}

pid_t child_start(const struct child_plan *plan, struct child_gate *gate, int *why) {
    int go[2], failure[2];
    pid_t parent = getpid();
    if (pipe2(go, O_CLOEXEC) != 0) return *why = errno, -1;
    if (pipe2(failure, O_CLOEXEC) != 0) {
        *why = errno;
        close_pair(go);
        return -1;
    }
    pid_t child = fork();
    if (child == 0) {
        close(go[1]); /* an open writing end would keep its own read() from ending after the parent's death */
        child_exec(plan, parent, go[0], failure[1]);
    }
    if (child < 0) {
        *why = errno;
        close_pair(go);
        close_pair(failure);
        return -1;
    }
    setpgid(child, child); /* in both processes: the group must exist before either of them uses it */
    close(go[0]);
    close(failure[1]);
    *gate = (struct child_gate){go[1], failure[0]};
    return child;
}

bool child_go(pid_t child, const struct terminal *terminal, struct child_gate *gate, int *why) {
    const char word = 'g';
    ssize_t got;
    (void)!write(gate->go, &word, 1);
    close(gate->go);
    do {
        got = read(gate->failure, why, sizeof *why);
    } while (got < 0 && errno == EINTR);
    close(gate->failure);
    if (got <= 0) return true;
    child_reap(child);
    terminal_take_back(terminal, child);
    return false;
}

void child_cancel(pid_t child, struct child_gate *gate) {
    close(gate->go);
    close(gate->failure);
    child_reap(child);
}

int child_signal(pid_t child, int sig) {
    int why = kill(-child, sig) == 0 ? 0 : errno;
    if (sig == SIGKILL || getpgid(child) != child) why = kill(child, sig) == 0 ? 0 : errno;
    return why;
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

void child_reap_orphans(pid_t child) {
    for (;;) {
        siginfo_t info = {0};
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
        if (info.si_pid == child) return; /* its SIGCHLD is still to be read */
        waitpid(info.si_pid, NULL, 0);
    }
}

int child_reap(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return STATUS_SOFTWARE;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
