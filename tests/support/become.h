/* Dropping root's rights. */
#ifndef DLOCK_TESTS_SUPPORT_BECOME_H
#define DLOCK_TESTS_SUPPORT_BECOME_H

#include <stdbool.h>
#include <sys/types.h>

/* Changes a child process from root to this user and group; supplementary groups stay. Where only root may search the
 * folder /, as in a chroot that mktemp made, the process and the programs that it executes may search folders all the
 * same: the equivalent of support/as_user.sh for scripts. False on failure. */
bool become(uid_t user, gid_t group);

#endif
