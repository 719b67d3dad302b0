/* Starts a program as the grandchild of this process. The first child shares our memory while we wait (as with
 * vfork and posix_spawn), and so does the second one, which becomes the program. The first one has no exit signal, so
 * that its end is reported to nobody and only a wait with __WCLONE, as here, reaps it. Between clone and exec there are
 * only system calls, made directly: wrappers of library functions, such as a sanitizer's, must not run there. */
#include "guardian/start.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ThreadSanitizer takes every clone() for a fork, and what it does then in the child would also happen to us, who share
 * its memory: so the C library's internal name is called. Nor must sanitizers count the calls of functions that do not
 * return. */
#ifdef __GLIBC__
int __clone(int (*run)(void *), void *stack, int flags, void *arg, ...);
#define clone __clone
#endif
#define IN_CHILD __attribute__((no_sanitize("thread", "address", "undefined")))

enum { STACK = 64 * 1024, STANDARD = 3 };

struct attempt {
    const struct dlock__start *start;
    char *second_stack;
    int *out_of_the_way; /* room for start->n + 1 descriptors */
    pid_t pid;
    int why; /* errno */
};

IN_CHILD static int fail(struct attempt *attempt) {
    attempt->why = errno;
    return 1;
}

/* close_range exists since Linux 5.9; before that each descriptor is closed. */
IN_CHILD static void close_from(unsigned first) {
    if (syscall(SYS_close_range, first, UINT_MAX, 0) == 0) return;
    for (unsigned fd = first; fd < 65536; fd++) syscall(SYS_close, fd);
}

/* Copies a descriptor to a number above those that the program gets; in place of a loose one that is closed, `null`. */
IN_CHILD static int copy(const struct dlock__start *start, size_t i, int null) {
    const int above = STANDARD + (int)start->n + 1;
    int high = (int)syscall(SYS_fcntl, i < start->n ? start->fds[i] : null, F_DUPFD, above);
    if (high < 0 && errno == EBADF && i >= start->n - start->n_loose)
        high = (int)syscall(SYS_fcntl, null, F_DUPFD, above);
    if (high < 0 && errno == EINVAL) /* the limit is not above the least descriptor that is asked for */
        errno = EMFILE;
    return high;
}

/* Sets the program's descriptors. All are copied to high numbers first, since one's source may be another one's
 * target. */
IN_CHILD static int set_descriptors(const struct dlock__start *start, int *high) {
    int n = (int)start->n, null = (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR);
    if (null < 0) return -1;
    for (int i = 0; i <= n; i++)
        if ((high[i] = copy(start, (size_t)i, null)) < 0) return -1;
    for (int i = 0; i < n; i++)
        if (syscall(SYS_dup3, high[i], STANDARD + i, 0) < 0) return -1;
    for (int i = 0; i < STANDARD; i++)
        if (syscall(SYS_dup3, high[n], i, 0) < 0) return -1;
    close_from((unsigned)(STANDARD + n));
    return 0;
}

IN_CHILD static int become_program(void *arg) {
    struct attempt *attempt = arg;
    const struct dlock__start *start = attempt->start;
    syscall(SYS_setsid);
    if (set_descriptors(start, attempt->out_of_the_way) != 0) return fail(attempt);
    syscall(SYS_execve, start->path, start->argv, start->envp);
    return fail(attempt);
}

IN_CHILD static int leave_program_behind(void *arg) {
    struct attempt *attempt = arg;
    attempt->pid = clone(become_program, attempt->second_stack, CLONE_VM | CLONE_VFORK | SIGCHLD, attempt);
    return attempt->pid < 0 ? fail(attempt) : 0;
}

static pid_t run(struct attempt *attempt, char *first_stack) {
    sigset_t all, before;
    sigfillset(&all); /* our handlers must not run in the children, which share our memory */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t first = clone(leave_program_behind, first_stack, CLONE_VM | CLONE_VFORK, attempt);
    if (first < 0)
        attempt->why = errno;
    else
        while (waitpid(first, NULL, __WCLONE) < 0 && errno == EINTR) continue;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (attempt->why == 0) return attempt->pid;
    if (attempt->pid > 0) waitpid(attempt->pid, NULL, 0); /* it exits without the program; reaps it if we adopted it */
    errno = attempt->why;
    return -1;
}

pid_t dlock__start(const struct dlock__start *start) {
    int out_of_the_way[DLOCK__START_FDS_MAX + 1];
    if (start->n > DLOCK__START_FDS_MAX) return errno = E2BIG, -1;
    char *stacks = mmap(NULL, 2 * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stacks == MAP_FAILED) return -1;
    struct attempt attempt = {.start = start, .second_stack = stacks + 2 * STACK, .out_of_the_way = out_of_the_way};
    pid_t pid = run(&attempt, stacks + STACK);
    int why = errno;
    munmap(stacks, 2 * STACK);
    errno = why;
    return pid;
}

bool dlock__start_adopted(pid_t pid) {
    siginfo_t info;
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

bool dlock__start_reaped(pid_t pid) {
    return waitpid(pid, NULL, WNOHANG) != 0;
}

bool dlock__start_adopt(bool on) {
    int before = 0;
    prctl(PR_GET_CHILD_SUBREAPER, &before);
    if (before != on) prctl(PR_SET_CHILD_SUBREAPER, on);
    return before;
}
