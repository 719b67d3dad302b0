/* System calls of one thread, counted by a tracer. */
#ifndef DLOCK_TESTS_SUPPORT_CALLS_H
#define DLOCK_TESTS_SUPPORT_CALLS_H

#include <sys/types.h>

/* In a child: from here on its parent follows this thread, with calls_fewest(). Then one mark before each round, and
 * one after the last. */
void calls_follow(void);
void calls_mark(void);

/* Follows the child to its end, which must be exit status 0: the fewest system calls in any of so many rounds. */
int calls_fewest(pid_t pid, int rounds);

#endif
