/* Being somebody else than root. */
#ifndef DLOCK_TESTS_SUPPORT_BECOME_H
#define DLOCK_TESTS_SUPPORT_BECOME_H

#include <stdbool.h>
#include <sys/types.h>

/* Gives up root for this user and group, in a child process; supplementary groups stay. Where the folder / is closed to
 * everybody but root, as in a chroot that mktemp made, the process and what it executes may search folders all the
 * same: as support/as_user.sh for scripts. */
bool become(uid_t user, gid_t group);

#endif
