/* The order of waiters.
 *
 * flock(2) without waiting has none: of all processes that a release wakes, the first to run gets the lock, usually the
 * same one each time, and the process that has just released it is faster still. So each waiter locks a byte whose
 * number is the time at which it began to wait, and leaves a turn to any waiter that began earlier. Nothing relies on
 * that: if the earlier one, perhaps stopped, has not taken its turn by the next look, the later one takes it. A process
 * that has taken the lock twice without waiting, while others waited, joins the line.
 *
 * SPDX-License-Identifier: MIT
 */
#include "file.h"

#include <time.h>

enum {
    TURNS = 2,         /* how often a process may take the lock without waiting, while others wait */
    YIELD_MS = 5,      /* how long an earlier waiter has to take its turn */
    YIELDS = 4,        /* how often that time is restarted in one turn */
    PASS_MS = 100,     /* how long no turn is left to a waiter that did not take its own */
    TAKEN_AT_MOST = 16 /* how many claims in a row may have begun in the same microsecond */
};

bool file_line_waits(int fd) {
    return file_byte_locked(fd, FILE_LINE, FILE_LINE_SIZE) >= 0;
}

bool file_line_join(struct file_conn *conn, int fd) {
    struct file_fd *entry = file_fd_at(&conn->fds, fd);
    struct timespec now;
    if (entry->flags & FILE_WAITING || !file_has_inotify(conn)) return false;
    clock_gettime(CLOCK_BOOTTIME, &now);
    entry->ticket = FILE_LINE + now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
    for (int i = 0; i < TAKEN_AT_MOST; i++, entry->ticket++) {
        if (!file_byte_lock(fd, true, entry->ticket)) continue;
        entry->flags |= FILE_WAITING;
        return true;
    }
    return false;
}

void file_line_leave(struct file_conn *conn, int fd) {
    struct file_fd *entry = file_fd_at(&conn->fds, fd);
    if (!(entry->flags & FILE_WAITING)) return;
    file_byte_unlock(fd, entry->ticket, 1);
    if (entry->passed != 0) {
        entry->line_at = entry->passed;
        entry->passes_ms = file_now_ms() + PASS_MS;
    }
    entry->turns = 0;
    entry->flags &= ~(unsigned)FILE_WAITING;
}

/* Leaves the turn to others. The time for that begins with the event that may be the release, but not with many of them,
 * which may be about other files. The fence shows whether it still is the same turn. */
static bool yield(struct file_fd *entry, int fd, bool woken) {
    uint64_t fence = 0;
    int64_t now = file_now_ms();
    file_fence_read(fd, &fence);
    if (!(entry->flags & FILE_YIELDED) || fence != entry->fence) entry->yields = 0;
    entry->flags |= FILE_YIELDED;
    entry->fence = fence;
    if (entry->yields == 0 || (woken && entry->yields < YIELDS)) {
        entry->yields++;
        entry->yields_ms = now + YIELD_MS;
    }
    return now < entry->yields_ms;
}

/* Returns a waiter that began before this byte, of those that take their turns; -1: none. */
static int64_t elder_of(const struct file_fd *entry, int fd, int64_t before) {
    const bool passes = entry->passes_ms != 0 && file_now_ms() < entry->passes_ms;
    const int64_t begin = passes ? entry->line_at : FILE_LINE;
    return file_byte_locked(fd, begin, before - begin);
}

static bool waiter_yields(struct file_fd *entry, int fd, bool woken) {
    entry->passed = 0;
    if (entry->flags & FILE_GATED) return false; /* it waits for readers, not for the line */
    if (!woken && !(entry->flags & FILE_YIELDED)) return false;
    int64_t elder = elder_of(entry, fd, entry->ticket);
    if (elder >= 0 && yield(entry, fd, woken)) return true;
    entry->flags &= ~(unsigned)FILE_YIELDED;
    if (elder >= 0) entry->passed = elder + 1;
    return false;
}

bool file_line_yields(struct file_conn *conn, int fd, uint64_t seen) {
    struct file_fd *entry = file_fd_at(&conn->fds, fd);
    if (entry->flags & FILE_WAITING) return waiter_yields(entry, fd, file_was_woken(conn, seen));
    if (entry->turns < TURNS || elder_of(entry, fd, FILE_LINE + FILE_LINE_SIZE) < 0) return false;
    if (file_line_join(conn, fd)) return waiter_yields(entry, fd, true);
    if (entry->flags & FILE_YIELDED) return entry->turns = 0, false; /* there is no inotify */
    entry->flags |= FILE_YIELDED; /* there is no listener yet: the core starts one now, and retries */
    return true;
}

void file_line_released(struct file_fd *entry, bool waits) {
    entry->turns = waits ? entry->turns + 1 : 0;
}
