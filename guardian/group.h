/* The processes of a group that is none of ours. */
#ifndef DLOCK_GUARDIAN_GROUP_H
#define DLOCK_GUARDIAN_GROUP_H

#include <stdbool.h>
#include <sys/types.h>

/* Whether any process of the group, in that session (0: in any), still runs code: zombies do not. What cannot be told
 * counts as running. */
bool dlock__group_runs(pid_t group, pid_t session);

#endif
