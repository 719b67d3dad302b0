#include "front.h"

#include "cli.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct front {
    struct signals *signals;
    pid_t keeper;
    int keeper_fd; /* -1: the keeper closed its end */
    bool interrupted;
};

void front_tell(int front, enum front_word word) {
    char byte = (char)word;
    if (front >= 0) (void)!write(front, &byte, 1);
}

/* Ends as the keeper ended. */
_Noreturn static void follow_keeper(const struct front *front, int wait_status) {
    if (WIFSIGNALED(wait_status)) signals_die(WTERMSIG(wait_status));
    if (front->interrupted && sigismember(&front->signals->passed_on, SIGINT)) {
        /* What Ctrl-C would have done, had the command shared our process group: a shell script around us ends. It
         * looks whether its child died of the signal as well. */
        kill(0, SIGINT);
        signals_die(SIGINT);
    }
    exit(WEXITSTATUS(wait_status));
}

/* Stops the whole job, as the terminal's Ctrl-Z does, and returns when it goes on. */
static enum front_answer stop_job(void) {
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
    return sigtimedwait(&cont, NULL, &at_once) > 0 ? FRONT_CONTINUED : FRONT_ORPHANED;
}

static void hear_keeper(struct front *front) {
    char byte;
    if (read(front->keeper_fd, &byte, 1) != 1) {
        close(front->keeper_fd);
        front->keeper_fd = -1;
        return;
    }
    switch ((enum front_word)byte) {
    case FRONT_RUNNING: signals_hear_job_control(front->signals); break;
    case FRONT_HOLDS: leave_streams(); break;
    case FRONT_INTERRUPTED: front->interrupted = true; break;
    case FRONT_STOP:
        byte = (char)stop_job();
        (void)!write(front->keeper_fd, &byte, 1);
        break;
    }
}

static void hear_signals(struct front *front) {
    for (int sig; (sig = signals_next(front->signals)) != 0;) {
        int wait_status;
        if (sig != SIGCHLD) {
            kill(front->keeper, sig);
            continue;
        }
        if (waitpid(front->keeper, &wait_status, WNOHANG) != front->keeper) continue;
        while (front->keeper_fd >= 0) hear_keeper(front); /* its last words */
        follow_keeper(front, wait_status);
    }
}

_Noreturn static void front_run(struct front *front) {
    for (;;) {
        struct pollfd fds[] = {{front->signals->fd, POLLIN, 0}, {front->keeper_fd, POLLIN, 0}};
        if (poll(fds, 2, -1) < 0) continue;
        if (fds[1].revents) hear_keeper(front);
        if (fds[0].revents) hear_signals(front);
    }
}

int front_split(struct signals *signals) {
    int ends[2];
    pid_t front_pid = getpid();
    if (signals_open(signals) != 0) return -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return -1;
    pid_t keeper = fork();
    if (keeper < 0) {
        close(ends[0]);
        close(ends[1]);
        return -1;
    }
    if (keeper > 0) {
        struct front front = {.signals = signals, .keeper = keeper, .keeper_fd = ends[0]};
        close(ends[1]);
        front_run(&front);
    }
    close(ends[0]);
    close(signals->fd);
    signals->fd = -1;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != front_pid) _exit(STATUS_SOFTWARE);
    sigprocmask(SIG_SETMASK, &signals->inherited_mask, NULL);
    return ends[1];
}
