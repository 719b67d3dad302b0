/* Starting a program that is nobody's child. */
#ifndef DLOCK_CORE_GUARDIAN_START_H
#define DLOCK_CORE_GUARDIAN_START_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { DLOCK__START_FDS_MAX = 256 };

struct dlock__start {
    const char *path;
    char *const *argv, *const *envp;
    const int *fds; /* what the program gets from descriptor 3 on */
    size_t n;       /* at most DLOCK__START_FDS_MAX */
};

/* Runs the program in a session of its own, with /dev/null as its standard streams, `fds` behind them and nothing else
 * open, and with every signal blocked. The calling process gets no child, no SIGCHLD and nothing that its own wait()
 * could see: it has a grandchild, whose parent has ended. Returns its pid, or -1 with errno, also where the program
 * could not be executed; 0 where that cannot be told (valgrind makes real copies of us). Any thread. */
pid_t dlock__start(const struct dlock__start *start);

/* Whether the program is our child after all, running or not: this process adopted it when its parent ended. */
bool dlock__start_adopted(pid_t pid);

/* False while the program still runs and is our child after all; reaps it. */
bool dlock__start_reaped(pid_t pid);

/* Whether this process adopts orphans (PR_SET_CHILD_SUBREAPER) from here on; returns whether it did before. */
bool dlock__start_adopt(bool on);

#endif
