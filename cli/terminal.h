/* The controlling terminal: which process group it listens to. */
#ifndef DLOCK_CLI_TERMINAL_H
#define DLOCK_CLI_TERMINAL_H

#include <stdbool.h>
#include <sys/types.h>

struct terminal {
    int fd;    /* -1: there is none, and everything here does nothing */
    pid_t job; /* the process group that the shell knows us by */
};

void terminal_open(struct terminal *terminal);

/* Makes `group` the foreground if our job is it. SIGTTOU must be blocked. True when it now is. */
bool terminal_give(const struct terminal *terminal, pid_t group);

/* Makes our job the foreground if `group` is it. SIGTTOU must be blocked. True when it was. */
bool terminal_take_back(const struct terminal *terminal, pid_t group);

/* True where a command wants the terminal from its start: standard input and output are one. In a pipeline another
 * process of the job may be reading it (a pager); there the command gets it when it asks. */
bool terminal_is_wanted(const struct terminal *terminal);

#endif
