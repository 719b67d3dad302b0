/* Starts a program that becomes no child of the calling process. */
#ifndef DLOCK_CORE_GUARDIAN_START_H
#define DLOCK_CORE_GUARDIAN_START_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { DLOCK__START_FDS_MAX = 256 };

struct dlock__start {
    const char *path;
    char *const *argv, *const *envp;
    const int *fds; /* what the program gets as descriptors 3, 4, … */
    size_t n;       /* at most DLOCK__START_FDS_MAX */
    size_t n_loose; /* how many of the last of `fds` may be closed: the program gets /dev/null in their places */
};

/* Runs the program in its own session, with /dev/null as its standard streams, `fds` from descriptor 3 on and
 * nothing else open, and with every signal blocked. The calling process gets no child, no SIGCHLD and nothing that its
 * own wait() could see: the program is a grandchild whose parent has ended. Returns its process id; -1 with errno, also
 * if the program could not be executed; 0 if the id is unknown (under valgrind the children are copies of us). Any
 * thread. */
pid_t dlock__start(const struct dlock__start *start);

/* True if the program is our child, running or not, because this process adopted it when its parent ended. */
bool dlock__start_adopted(pid_t pid);

/* Reaps the program if it is our child and has exited. False while it is our child and still runs. */
bool dlock__start_reaped(pid_t pid);

/* Sets whether this process adopts orphaned processes (PR_SET_CHILD_SUBREAPER) from now on. Returns what was set
 * before. */
bool dlock__start_adopt(bool on);

#endif
