/* Processes of a group that is not our own. */
#ifndef DLOCK_GUARDIAN_GROUP_H
#define DLOCK_GUARDIAN_GROUP_H

#include <stdbool.h>
#include <sys/types.h>

/* True if /proc shows the processes of our own PID namespace under its numbers. In one that was made without mounting
 * /proc anew it shows them under those of an outer one, or not at all. */
bool dlock__proc_is_ours(void);

/* True if any process of the group, in that session (0: in any), still runs code; zombies do not. True also if /proc
 * does not show our processes, as long as the group exists. */
bool dlock__group_runs(pid_t group, pid_t session);

#endif
