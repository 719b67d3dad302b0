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

int64_t file_byte_locked(int fd, int64_t at, int64_t n) {
    struct flock lock;
    if (n <= 0 || operate(fd, F_OFD_GETLK, F_WRLCK, at, n, &lock) != 0 || lock.l_type == F_UNLCK) return -1;
    return lock.l_start > at ? lock.l_start : at;
}

/* F_OFD_GETLK returns any of the locks in a range: repeats it with the range before the lock found, until none is
 * left. */
int64_t file_byte_locked_first(int fd, int64_t at, int64_t n) {
    int64_t first = -1, found = file_byte_locked(fd, at, n);
    while (found >= 0) {
        first = found;
        found = file_byte_locked(fd, at, first - at);
    }
    return first;
}
