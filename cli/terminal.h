/* The controlling terminal and its foreground process group. */
#ifndef DLOCK_CLI_TERMINAL_H
#define DLOCK_CLI_TERMINAL_H

#include <stdbool.h>
#include <sys/types.h>

struct terminal {
    int fd;    /* /dev/tty; -1: there is no terminal, and the functions below do nothing */
    pid_t job; /* the process group in which the shell started us */
};

void terminal_open(struct terminal *terminal);

/* Makes `group` the foreground process group if our job is it now. SIGTTOU must be blocked. True if that was done. */
bool terminal_give(const struct terminal *terminal, pid_t group);

/* Makes our job the foreground process group if `group` is it now. SIGTTOU must be blocked. True if that was done. */
bool terminal_take_back(const struct terminal *terminal, pid_t group);

/* True if the command is to get the terminal from its start: standard input and output are terminals. In a pipeline
 * another process of the job may read the terminal, a pager for example; there the command gets it once it asks for it.
 * */
bool terminal_is_wanted(const struct terminal *terminal);

#endif
