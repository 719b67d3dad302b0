/* A PID namespace beside a /proc that shows another one, as after `unshare --pid --fork` without --mount-proc. */
#ifndef DLOCK_TESTS_GUARDIAN_NAMESPACE_H
#define DLOCK_TESTS_GUARDIAN_NAMESPACE_H

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NAMESPACE_REFUSED = 77 };

static inline int namespace_wait(pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Returns what `body` returned in a process that is the first one of a new namespace; -1: it was killed.
 * NAMESPACE_REFUSED: this user may not make one, which is printed. */
static inline int namespace_run(int (*body)(void *), void *arg) {
    fflush(NULL);
    pid_t outside = fork();
    if (outside != 0) return namespace_wait(outside);
    alarm(300);
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) {
        printf("         not run, since there is no PID namespace for this user: %s\n", strerror(errno));
        fflush(NULL);
        _exit(NAMESPACE_REFUSED);
    }
    pid_t inside = fork();
    if (inside == 0) _exit(body(arg));
    _exit(namespace_wait(inside) & 0xff);
}

#endif
