/* Counts the system calls of one thread with a tracer. */
#ifndef DLOCK_TESTS_SUPPORT_CALLS_H
#define DLOCK_TESTS_SUPPORT_CALLS_H

#include <sys/types.h>

/* For a child: lets its parent trace this thread with calls_fewest(). Then call calls_mark() before each round and
 * after the last one. */
void calls_follow(void);
void calls_mark(void);

/* Traces the child until it exits, with status 0. Returns the fewest system calls in any of the `rounds` rounds. */
int calls_fewest(pid_t pid, int rounds);

#endif
