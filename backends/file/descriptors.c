/* The descriptors of a connection: all that a forked child has to close, and which of them belongs to which claim.
 *
 * A claim's state is a copy that can be out of date: a renewal and a release of one claim may run at the same time, and
 * the changes that a renewal makes to it are not kept when the lock is lost. So a claim's state has no descriptor
 * number but a handle with a serial number, and a thread has to take the descriptor of the handle before it uses or
 * closes it.
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

static const uint64_t borrowed = UINT64_C(1) << 63; /* a flag in a handle: its descriptor is borrowed */

struct file_fd *file_fd_at(struct file_descriptors *fds, int fd) {
    return &atomic_load(&fds->pages[fd / SLOTS])[fd % SLOTS];
}

/* Makes the page for `fd` if it does not exist yet. Pages are published complete and stay until the end, so that the
 * table can be read after a fork at any moment. False, with errno: there is no room. */
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
    /* This reads the value that file_fd_close() stored, so everything that the number's last user did here happens
     * before. The kernel orders close and open as well, but neither the compiler nor thread sanitizers know of that. */
    (void)atomic_exchange(&entry->owner, TAKEN);
    atomic_store(&entry->seat, 0);
    entry->flags = 0;
    entry->version = entry->passes_ms = entry->passed = 0;
    entry->turns = 0;
    return fd;
}

/* Returns the entry of a handle, or NULL if the table has no page for it. */
static struct file_fd *entry_of(struct file_descriptors *fds, uint64_t handle) {
    int fd = (int)(handle % (SLOTS * FILE_FD_PAGES));
    return handle != 0 && atomic_load(&fds->pages[fd / SLOTS]) ? file_fd_at(fds, fd) : NULL;
}

uint64_t file_fd_lend(struct file_descriptors *fds, int fd) {
    uint64_t handle = (atomic_fetch_add(&fds->lent, 1) + 1) * SLOTS * FILE_FD_PAGES + (uint64_t)fd;
    atomic_store(&file_fd_at(fds, fd)->owner, handle);
    return handle;
}

/* Changes the owner of the descriptor from the handle to `next`; waits while it is borrowed. Returns the descriptor, or
 * -1 if the handle is no longer valid. */
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

/* Unlocks the byte locks first: a claim that finds the file unlocked must not find its seats taken. */
void file_fd_unlock(struct file_descriptors *fds, int fd) {
    struct file_fd *entry = file_fd_at(fds, fd);
    if (entry->flags & ~(unsigned)FILE_ASKED) file_byte_unlock(fd, FILE_BYTES, INT64_MAX - FILE_BYTES);
    flock(fd, LOCK_UN);
    entry->flags = 0;
    atomic_store(&entry->seat, 0);
}

/* Unlocks first, so that a copy of the descriptor in a forked child keeps no lock. Clears the owner before the close,
 * since the number may belong to another thread afterwards. */
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

/* Each pointer is cleared first, since a child forked during cleanup reads the table. */
void file_fds_free(struct file_descriptors *fds) {
    for (int i = 0; i < FILE_FD_PAGES; i++) free(atomic_exchange(&fds->pages[i], NULL));
}
