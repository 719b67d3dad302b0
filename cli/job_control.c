#include "job_control.h"

#include "child.h"
#include "cli.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct job {
    struct signals *signals;
    pid_t supervisor;
    int supervisor_fd; /* our end of the socket pair; -1: the supervisor closed its end */
    bool interrupted;  /* JOB_INTERRUPTED has come */
};

void job_tell(int job, enum job_word word) {
    char byte = (char)word;
    if (job >= 0) (void)!write(job, &byte, 1);
}

/* Ends this process as the supervisor ended. */
_Noreturn static void follow_supervisor(const struct job *job, int wait_status) {
    if (job->interrupted && sigismember(&job->signals->passed_on, SIGINT)) {
        /* The command died of Ctrl-C in a process group of its own. Had it shared ours, Ctrl-C would have reached the
         * shell script that runs us, too: so send SIGINT to our group. A shell also checks that its child died of the
         * signal before it ends its script. */
        kill(0, SIGINT);
        signals_die(SIGINT);
    }
    if (WIFSIGNALED(wait_status)) signals_die(WTERMSIG(wait_status));
    exit(WEXITSTATUS(wait_status));
}

/* Stops the whole job, as Ctrl-Z does, and returns when it is continued. */
static enum job_answer stop_job(void) {
    sigset_t stop, cont;
    const struct timespec at_once = {0, 0};
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    sigemptyset(&cont);
    sigaddset(&cont, SIGCONT);
    while (sigtimedwait(&cont, NULL, &at_once) > 0) continue;
    kill(0, SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &stop, NULL); /* stops here; not at all in an orphaned process group */
    sigprocmask(SIG_BLOCK, &stop, NULL);
    return sigtimedwait(&cont, NULL, &at_once) > 0 ? JOB_CONTINUED : JOB_ORPHANED;
}

static void hear_supervisor(struct job *job) {
    char byte;
    if (read(job->supervisor_fd, &byte, 1) != 1) {
        close(job->supervisor_fd);
        job->supervisor_fd = -1;
        return;
    }
    switch ((enum job_word)byte) {
    case JOB_RUNNING: signals_hear_job_control(job->signals); break;
    case JOB_HOLDS: leave_streams(); break;
    case JOB_INTERRUPTED: job->interrupted = true; break;
    case JOB_STOP:
        byte = (char)stop_job();
        (void)!write(job->supervisor_fd, &byte, 1);
        break;
    }
}

static void hear_signals(struct job *job) {
    for (int sig; (sig = signals_next(job->signals)) != 0;) {
        int wait_status;
        if (sig != SIGCHLD) {
            kill(job->supervisor, sig);
            continue;
        }
        if (waitpid(job->supervisor, &wait_status, WNOHANG) != job->supervisor) {
            child_reap_orphans(job->supervisor);
            continue;
        }
        while (job->supervisor_fd >= 0) hear_supervisor(job); /* what it sent before it ended */
        follow_supervisor(job, wait_status);
    }
}

_Noreturn static void job_run(struct job *job) {
    for (;;) {
        struct pollfd fds[] = {{job->signals->fd, POLLIN, 0}, {job->supervisor_fd, POLLIN, 0}};
        if (poll(fds, 2, -1) < 0) continue;
        if (fds[1].revents) hear_supervisor(job);
        if (fds[0].revents) hear_signals(job);
    }
}

int job_split(struct signals *signals) {
    int ends[2];
    pid_t job_pid = getpid();
    if (signals_open(signals) != 0) return -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return -1;
    pid_t supervisor = fork();
    if (supervisor < 0) {
        close(ends[0]);
        close(ends[1]);
        return -1;
    }
    if (supervisor > 0) {
        struct job job = {.signals = signals, .supervisor = supervisor, .supervisor_fd = ends[0]};
        close(ends[1]);
        job_run(&job);
    }
    close(ends[0]);
    close(signals->fd);
    signals->fd = -1;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != job_pid) _exit(STATUS_SOFTWARE);
    sigprocmask(SIG_SETMASK, &signals->inherited_mask, NULL);
    return ends[1];
}
