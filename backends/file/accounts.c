/* Questions to the system's lists of users and groups (NSS). The answer may come from a server, such as one of LDAP,
 * and nothing bounds the time that this takes.
 *
 * SPDX-License-Identifier: MIT
 */
#include "file.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>

enum { MOST_GROUPS = 1024, ENTRY_SIZE = 16384, ENTRY_AT_MOST = 1 << 24 };

/* Returns 0 if the result of getpwuid_r() or getgrnam_r() means that there is no such entry, for which systems have
 * several numbers; else, with errno, -1: the list could not be read. */
static int no_entry(int rc) {
    if (rc == 0 || rc == ENOENT || rc == ESRCH || rc == EBADF || rc == EPERM) return 0;
    errno = rc;
    return -1;
}

/* Returns 1 and the user's entry, 0 if there is none, or -1 and errno. The entry's texts are in *buffer, which the
 * caller frees in any case. */
static int find_user(uid_t uid, struct passwd *entry, char **buffer) {
    struct passwd *found = NULL;
    int rc = ERANGE;
    *buffer = NULL;
    for (size_t size = ENTRY_SIZE; rc == ERANGE && size <= ENTRY_AT_MOST; size *= 4) {
        free(*buffer);
        *buffer = malloc(size);
        rc = *buffer ? getpwuid_r(uid, entry, *buffer, size, &found) : ENOMEM;
    }
    return rc == 0 && found ? 1 : no_entry(rc);
}

/* Frees the buffer, and leaves errno alone. */
static int done(char *buffer, int rc) {
    int errnum = errno;
    free(buffer);
    errno = errnum;
    return rc;
}

int file_group_id(const char *name, gid_t *gid) {
    struct group entry, *found = NULL;
    char *buffer = NULL;
    int rc = ERANGE;
    for (size_t size = ENTRY_SIZE; rc == ERANGE && size <= ENTRY_AT_MOST; size *= 4) {
        free(buffer);
        buffer = malloc(size);
        rc = buffer ? getgrnam_r(name, &entry, buffer, size, &found) : ENOMEM;
    }
    if (rc == 0 && found) *gid = entry.gr_gid;
    return done(buffer, rc == 0 && found ? 1 : no_entry(rc));
}

int file_home_of(uid_t uid, char **home) {
    struct passwd entry;
    char *buffer;
    int rc = find_user(uid, &entry, &buffer);
    if (rc == 1 && (!entry.pw_dir || entry.pw_dir[0] != '/')) rc = 0;
    if (rc == 1 && !(*home = strdup(entry.pw_dir))) rc = -1;
    return done(buffer, rc);
}

/* getgrouplist() does not tell if a list cannot be read. */
int file_is_member(uid_t uid, gid_t group) {
    struct passwd entry;
    gid_t groups[MOST_GROUPS];
    int n = MOST_GROUPS;
    char *buffer;
    int rc = find_user(uid, &entry, &buffer);
    if (rc == 1) {
        bool member = false;
        if (getgrouplist(entry.pw_name, entry.pw_gid, groups, &n) >= 0)
            for (int i = 0; i < n; i++) member = member || groups[i] == group;
        rc = member;
    }
    return done(buffer, rc);
}
