/* Byte locks: locks on single bytes far behind the end of the file (open file description locks, fcntl(2)). They are
 * independent of the flock(2) lock of the same file, and like it end with their descriptor.
 *
 * SPDX-License-Identifier: MIT
 */
#include "file.h"

#include <errno.h>
#include <fcntl.h>

static int operate(int fd, int command, short type, int64_t at, int64_t n, struct flock *lock) {
    int rc;
    *lock = (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = n};
    do rc = fcntl(fd, command, lock);
    while (rc != 0 && errno == EINTR);
    return rc;
}

bool file_byte_lock(int fd, bool exclusive, int64_t at) {
    struct flock lock;
    return operate(fd, F_OFD_SETLK, exclusive ? F_WRLCK : F_RDLCK, at, 1, &lock) == 0;
}

void file_byte_unlock(int fd, int64_t at, int64_t n) {
    struct flock lock;
    operate(fd, F_OFD_SETLK, F_UNLCK, at, n, &lock);
}

/* As file_byte_locked(). *end is set, if there is one, to the first byte behind the lock that was found. */
static int64_t find(int fd, int64_t at, int64_t n, int64_t *end) {
    struct flock lock;
    if (n <= 0 || operate(fd, F_OFD_GETLK, F_WRLCK, at, n, &lock) != 0 || lock.l_type == F_UNLCK) return -1;
    *end = lock.l_len == 0 ? INT64_MAX : lock.l_start + lock.l_len; /* 0: up to the last byte that there can be */
    return lock.l_start > at ? lock.l_start : at;
}

int64_t file_byte_locked(int fd, int64_t at, int64_t n) {
    int64_t end;
    return find(fd, at, n, &end);
}

/* F_OFD_GETLK returns any of the locks in a range. The search by halves needs few calls however many locks there are. */
int64_t file_byte_locked_first(int fd, int64_t at, int64_t n, int64_t *end) {
    int64_t first = find(fd, at, n, end);
    while (at < first) { /* no byte before `at` is locked */
        int64_t middle = at + (first - at + 1) / 2, found = find(fd, at, middle - at, end);
        if (found < 0)
            at = middle;
        else
            first = found;
    }
    return first;
}
