/* Seats: each reader and each holder of a permit has locked one byte of a range (byte_locks.c).
 *
 * SPDX-License-Identifier: MIT
 */
#include "file.h"

#include <time.h>

enum { GUESSES = 4, SEARCH_MS = 100 };

static bool take(struct file_descriptors *fds, int fd, int64_t range, uint32_t seat) {
    struct file_fd *entry = file_fd_at(fds, fd);
    if (!file_byte_lock(fd, true, range + seat)) return false;
    entry->flags |= FILE_SEATED;
    atomic_store(&entry->seat, seat + 1);
    return true;
}

/* Returns the number of seats up to the last one that is taken; all later ones are free. */
static uint32_t used(int fd, int64_t range, uint32_t limit) {
    uint32_t low = 0, high = 1;
    while (high < limit && file_byte_locked(fd, range + high, limit - high) >= 0) {
        low = high;
        high = high < limit / 2 ? 2 * high : limit;
    }
    while (high - low > 1) { /* the last taken seat is at or after `low`, and before `high` */
        uint32_t middle = low + (high - low) / 2;
        if (file_byte_locked(fd, range + middle, high - middle) >= 0)
            low = middle;
        else
            high = middle;
    }
    return high;
}

/* Returns the processor time of this thread, so that a search on a busy machine does not end early. */
static int64_t worked_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Tries the first seat; then random ones among those in use, so that the list does not grow while seats become free;
 * then the one after them; at last all in order, from a random one on and for SEARCH_MS at most, since with thousands
 * of holders it takes too long to try all. */
bool file_seat(struct file_descriptors *fds, int fd, int64_t range, uint32_t limit) {
    struct timespec now;
    if (take(fds, fd, range, 0)) return true;
    uint32_t end = used(fd, range, limit);
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t chance = (uint64_t)now.tv_nsec * UINT64_C(0x9E3779B97F4A7C15);
    for (int i = 0; i < GUESSES && end > 1; i++, chance *= UINT64_C(0x9E3779B97F4A7C15))
        if (take(fds, fd, range, (uint32_t)((chance >> 32) % end))) return true;
    if (end < limit) return take(fds, fd, range, end);
    int64_t until = worked_ms() + SEARCH_MS;
    uint32_t seat = (uint32_t)((chance >> 32) % limit);
    for (uint32_t i = 0; i < limit; i++, seat = seat + 1 == limit ? 0 : seat + 1) {
        if (take(fds, fd, range, seat)) return true;
        if (i % 256 == 255 && worked_ms() > until) return false;
    }
    return false;
}
