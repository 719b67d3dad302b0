/* The descriptors of a connection: all that a forked child has to close, and which of them belongs to which claim.
 *
 * A claim's state is a copy that can be out of date: a renewal and a release of one claim may run at the same time, and
 * what a renewal changes in it is not kept when the lock is lost. So a claim has no descriptor but a handle to one,
 * with a serial number, and whoever wants to use or to close the descriptor takes it first.
 *
 * SPDX-License-Identifier: MIT
 */
#include "file.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { TAKEN = 1, SLOTS = FILE_FDS_PER_PAGE };

static const uint64_t borrowed = UINT64_C(1) << 63; /* in a handle */

struct file_fd *file_fd_at(struct file_descriptors *fds, int fd) {
    return &atomic_load(&fds->pages[fd / SLOTS])[fd % SLOTS];
}

/* Pages are published whole and stay until the end, so that a fork at any moment leaves a table that can be read. */
static bool make_page(struct file_descriptors *fds, int fd) {
    if (fd / SLOTS >= FILE_FD_PAGES) return errno = EMFILE, false;
    _Atomic(struct file_fd *) *page = &fds->pages[fd / SLOTS];
    if (atomic_load(page)) return true;
    struct file_fd *fresh = calloc(SLOTS, sizeof *fresh), *none = NULL;
    if (!fresh) return errno = ENOMEM, false;
    if (!atomic_compare_exchange_strong(page, &none, fresh)) free(fresh);
    return true;
}

int file_fd_keep(struct file_descriptors *fds, int fd) {
    if (fd < 0) return fd;
    if (!make_page(fds, fd)) {
        int errnum = errno;
        close(fd);
        errno = errnum;
        return -1;
    }
    struct file_fd *entry = file_fd_at(fds, fd);
    /* Reads what file_fd_close wrote, so all that the number's last user did there has happened before: the kernel
     * orders close and open too, but not for the compiler. */
    (void)atomic_exchange(&entry->owner, TAKEN);
    atomic_store(&entry->seat, 0);
    entry->flags = 0;
    entry->version = 0;
    return fd;
}

/* The entry of a handle; NULL when there cannot be one. */
static struct file_fd *entry_of(struct file_descriptors *fds, uint64_t handle) {
    int fd = (int)(handle % (SLOTS * FILE_FD_PAGES));
    return handle != 0 && atomic_load(&fds->pages[fd / SLOTS]) ? file_fd_at(fds, fd) : NULL;
}

uint64_t file_fd_lend(struct file_descriptors *fds, int fd) {
    uint64_t handle = (atomic_fetch_add(&fds->lent, 1) + 1) * SLOTS * FILE_FD_PAGES + (uint64_t)fd;
    atomic_store(&file_fd_at(fds, fd)->owner, handle);
    return handle;
}

/* The descriptor, once its owner is `next` instead of the handle. */
static int change_owner(struct file_descriptors *fds, uint64_t handle, uint64_t next) {
    const struct timespec instant = {0, 20000};
    struct file_fd *entry = entry_of(fds, handle);
    for (;;) {
        uint64_t owner = handle;
        if (!entry) return -1;
        if (atomic_compare_exchange_strong(&entry->owner, &owner, next)) return (int)(handle % (SLOTS * FILE_FD_PAGES));
        if (owner != (handle | borrowed)) return -1;
        nanosleep(&instant, NULL);
    }
}

int file_fd_take(struct file_descriptors *fds, uint64_t handle) {
    return change_owner(fds, handle, TAKEN);
}

int file_fd_borrow(struct file_descriptors *fds, uint64_t handle) {
    return change_owner(fds, handle, handle | borrowed);
}

void file_fd_return(struct file_descriptors *fds, int fd, uint64_t handle) {
    atomic_store(&file_fd_at(fds, fd)->owner, handle);
}

bool file_fd_seated(struct file_descriptors *fds, uint64_t handle) {
    struct file_fd *entry = entry_of(fds, handle);
    return entry && atomic_load(&entry->seat) != 0 && atomic_load(&entry->owner) == handle;
}

/* The byte locks first: whoever finds the lock free must not find a seat taken. */
void file_fd_unlock(struct file_descriptors *fds, int fd) {
    struct file_fd *entry = file_fd_at(fds, fd);
    if (entry->flags & ~(unsigned)FILE_ASKED) file_byte_unlock(fd, FILE_BYTES, INT64_MAX - FILE_BYTES);
    flock(fd, LOCK_UN);
    entry->flags = 0;
    atomic_store(&entry->seat, 0);
}

/* In this order: once unlocked, a copy in a child that was forked before the close does no harm; and once closed, the
 * number may already be another thread's. */
void file_fd_close(struct file_descriptors *fds, int fd) {
    file_fd_unlock(fds, fd);
    atomic_store(&file_fd_at(fds, fd)->owner, 0);
    close(fd);
}

size_t file_fds_lent(struct file_descriptors *fds, int *out, size_t max) {
    size_t n = 0;
    for (int i = 0; i < FILE_FD_PAGES; i++) {
        struct file_fd *page = atomic_load(&fds->pages[i]);
        for (int j = 0; page && j < SLOTS; j++) {
            if (atomic_load(&page[j].owner) <= TAKEN) continue;
            if (n < max) out[n] = i * SLOTS + j;
            n++;
        }
    }
    return n;
}

void file_fds_close(struct file_descriptors *fds, bool unlock) {
    for (int i = 0; i < FILE_FD_PAGES; i++) {
        struct file_fd *page = atomic_load(&fds->pages[i]);
        for (int j = 0; page && j < SLOTS; j++) {
            if (atomic_load(&page[j].owner) == 0) continue;
            if (unlock) file_fd_unlock(fds, i * SLOTS + j);
            atomic_store(&page[j].owner, 0);
            close(i * SLOTS + j);
        }
    }
}

void file_fds_free(struct file_descriptors *fds) {
    for (int i = 0; i < FILE_FD_PAGES; i++) free(atomic_load(&fds->pages[i]));
}
