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
#include <unistd.h>

enum { TAKEN = 1, SLOTS = FILE_FDS_PER_PAGE };

static _Atomic uint64_t *slot_of(struct file_descriptors *fds, int fd) {
    return &atomic_load(&fds->pages[fd / SLOTS])[fd % SLOTS];
}

/* Pages are published whole and stay until the end, so that a fork at any moment leaves a table that can be read. */
static bool make_page(struct file_descriptors *fds, int fd) {
    if (fd / SLOTS >= FILE_FD_PAGES) return errno = EMFILE, false;
    _Atomic(_Atomic uint64_t *) *page = &fds->pages[fd / SLOTS];
    if (atomic_load(page)) return true;
    _Atomic uint64_t *fresh = calloc(SLOTS, sizeof *fresh), *none = NULL;
    if (!fresh) return errno = ENOMEM, false;
    if (!atomic_compare_exchange_strong(page, &none, fresh)) free((void *)fresh);
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
    atomic_store(slot_of(fds, fd), TAKEN);
    return fd;
}

uint64_t file_fd_lend(struct file_descriptors *fds, int fd) {
    uint64_t handle = (atomic_fetch_add(&fds->lent, 1) + 1) * SLOTS * FILE_FD_PAGES + (uint64_t)fd;
    atomic_store(slot_of(fds, fd), handle);
    return handle;
}

int file_fd_take(struct file_descriptors *fds, uint64_t handle) {
    int fd = (int)(handle % (SLOTS * FILE_FD_PAGES));
    if (handle == 0 || !atomic_load(&fds->pages[fd / SLOTS])) return -1;
    return atomic_compare_exchange_strong(slot_of(fds, fd), &handle, TAKEN) ? fd : -1;
}

/* In this order: once unlocked, a copy in a child that was forked before the close does no harm; and once closed, the
 * number may already be another thread's. */
void file_fd_close(struct file_descriptors *fds, int fd) {
    flock(fd, LOCK_UN);
    atomic_store(slot_of(fds, fd), 0);
    close(fd);
}

void file_fds_close(struct file_descriptors *fds, bool unlock) {
    for (int i = 0; i < FILE_FD_PAGES; i++) {
        _Atomic uint64_t *page = atomic_load(&fds->pages[i]);
        for (int j = 0; page && j < SLOTS; j++) {
            if (atomic_exchange(&page[j], 0) == 0) continue;
            if (unlock) flock(i * SLOTS + j, LOCK_UN);
            close(i * SLOTS + j);
        }
    }
}

void file_fds_free(struct file_descriptors *fds) {
    for (int i = 0; i < FILE_FD_PAGES; i++) free((void *)atomic_load(&fds->pages[i]));
}
