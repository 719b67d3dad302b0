/* Wake-ups, from one inotify watch on the directory.
 *
 * At the end of a lock its holder closes a descriptor of the file, which makes an event. flock(1) closes the one with
 * the lock; dlock, if a claim waits in the line (line.c), opens and closes one just for this purpose; the kernel closes
 * those of a killed process. Unlinking and renaming also wake waiters, since they then have the wrong file. There is no
 * event when another program unlocks without closing (flock -u): so waiters poll often while such a program is the
 * holder, and occasionally in any case.
 *
 * A lingering holder is told of a waiter by a new time stamp of the file (IN_ATTRIB).
 *
 * SPDX-License-Identifier: MIT
 */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { CAP_MS = 1000, FOREIGN_MS = 50, LOOKS_BITS = 4, FOREIGN = (1 << LOOKS_BITS) - 1 };

static int poll_instead(struct file_conn *conn, struct dlock_error *err) {
    char message[256];
    snprintf(message, sizeof message, "file: no inotify for %.180s (%s): waiting by polling", conn->path,
             strerror(errno));
    conn->peer->log(conn->peer, DLOCK_LOG_WARN, message);
    conn->wake_fd = file_fd_keep(&conn->fds, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (conn->wake_fd < 0) return file_fail(err, errno, "cannot wait for locks in", conn->path, NULL);
    atomic_store(&conn->listening, FILE_POLLS);
    return 0;
}

int file_listen(void *c, int *fd, int timeout_ms, struct dlock_error *err) {
    struct file_conn *conn = c;
    int rc = 0;
    (void)timeout_ms;
    if (atomic_load(&conn->listening) == FILE_DEAF) {
        int notify = file_fd_keep(&conn->fds, inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
        uint32_t mask = IN_CLOSE | IN_DELETE | IN_MOVE | IN_ATTRIB | IN_ONLYDIR;
        if (notify >= 0 && inotify_add_watch(notify, conn->path, mask) >= 0) {
            conn->wake_fd = notify;
            atomic_fetch_add(&conn->events, 1); /* an event, since some may have come before the watch */
            atomic_store(&conn->listening, FILE_INOTIFY);
        } else {
            int errnum = errno;
            if (notify >= 0) file_fd_close(&conn->fds, notify);
            errno = errnum;
            rc = poll_instead(conn, err);
        }
    }
    if (rc == 0) *fd = conn->wake_fd;
    return rc;
}

bool file_has_inotify(const struct file_conn *conn) {
    return atomic_load(&conn->listening) == FILE_INOTIFY;
}

bool file_was_woken(const struct file_conn *conn, uint64_t seen) {
    int unread = 0;
    if (seen >> LOOKS_BITS != atomic_load(&conn->events)) return true;
    if (file_has_inotify(conn)) (void)ioctl(conn->wake_fd, FIONREAD, &unread);
    /* Compares again, since another thread may have read them in between. */
    return unread > 0 || seen >> LOOKS_BITS != atomic_load(&conn->events);
}

/* The kernel reports a close before it ends the lock: an instant earlier, or more if the closing process has to wait
 * for a processor in between. So a waiter asks several times at the beginning of a wait and after each event, each time
 * after twice the pause. The longest pause is short while flock(1) is the holder, since that may unlock without
 * closing. To find that out the holder is looked up once per event, which reads all locks of this machine. */
int64_t file_retry_ms(struct file_conn *conn, int fd, uint64_t *seen) {
    if (!file_has_inotify(conn)) return -1;
    uint64_t events = atomic_load(&conn->events) << LOOKS_BITS, looks = *seen - events;
    if (looks >> LOOKS_BITS != 0) looks = 0; /* `seen` is from before the last event */
    if (looks == FOREIGN) return FOREIGN_MS;
    int64_t pause = FILE_SOON_MS << looks;
    if (pause >= CAP_MS) return CAP_MS;
    bool foreign = fd >= 0 && pause > FOREIGN_MS && pause / 2 <= FOREIGN_MS && file_holder(conn, fd) == FILE_FLOCK;
    *seen = events + (foreign ? FOREIGN : looks + 1);
    return foreign ? FOREIGN_MS : pause;
}

/* Opens and closes a separate descriptor: a forked process may have a copy of the one with the lock, so that closing it
 * makes no event. */
bool file_wake_others(const struct file_conn *conn, const char *file) {
    int fd = openat(conn->dir, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    return fd >= 0 && close(fd) == 0;
}

void file_tell_wanted(int fd) {
    futimens(fd, NULL);
}

static bool read_events(struct file_conn *conn) {
    ssize_t got = read(conn->wake_fd, conn->buffer, sizeof conn->buffer);
    conn->unread = conn->end = 0;
    if (got <= 0) return false;
    conn->end = (size_t)got;
    atomic_fetch_add(&conn->events, 1);
    return true;
}

/* True if the next event is about the same file and of the same kind (close or time stamp): then one wake-up is
 * enough. */
static bool repeated(const struct file_conn *conn, const struct inotify_event *event) {
    if (conn->unread >= conn->end) return false;
    const struct inotify_event *next = (const void *)(conn->buffer + conn->unread);
    return event->len > 0 && next->len > 0 && (event->mask & IN_ATTRIB) == (next->mask & IN_ATTRIB) &&
           strcmp(next->name, event->name) == 0;
}

/* Fills `out` from an event. False if the event concerns no lock. */
static bool translate(struct file_conn *conn, const struct inotify_event *event, struct dlock_wake *out) {
    bool cut = false, named = event->len > 0, wanted = event->mask & IN_ATTRIB;
    memset(out, 0, sizeof *out);
    out->kind = wanted ? DLOCK_WAKE_WANTED : DLOCK_WAKE_LOOK;
    if (event->mask & IN_IGNORED) { /* the directory or its file system is gone, and with it the watch */
        atomic_store(&conn->listening, FILE_POLLS);
        return true;
    }
    if (!named) return !wanted;
    if (event->name[0] == '.' || repeated(conn, event)) return false;
    if (wanted && atomic_load(&conn->lingering) == 0) return false;
    if (file_name_decode(conn, event->name, conn->woken, &cut)) out->name = conn->woken;
    return out->name || (cut && !wanted);
}

int file_wake(void *c, struct dlock_wake *out, struct dlock_error *err) {
    struct file_conn *conn = c;
    (void)err;
    while (file_has_inotify(conn)) {
        if (conn->unread >= conn->end && !read_events(conn)) return 0;
        const struct inotify_event *event = (const void *)(conn->buffer + conn->unread);
        conn->unread += sizeof *event + event->len;
        if (translate(conn, event, out)) return 1;
    }
    return 0;
}
