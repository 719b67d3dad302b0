/* The set of a connection's descriptors: all that a forked child has to close.
 *
 * SPDX-License-Identifier: MIT
 */
#include "file.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

enum { WORDS_PER_PAGE = FILE_FDS_PER_PAGE / 64 };

static _Atomic uint64_t *word_of(struct file_descriptors *fds, int fd) {
    _Atomic uint64_t *page = atomic_load(&fds->pages[fd / FILE_FDS_PER_PAGE]);
    return &page[fd % FILE_FDS_PER_PAGE / 64];
}

static uint64_t bit_of(int fd) {
    return UINT64_C(1) << (fd % 64);
}

/* Pages are published whole and stay until the end, so that a fork at any moment leaves a set that can be read. */
static bool make_page(struct file_descriptors *fds, int fd) {
    if (fd / FILE_FDS_PER_PAGE >= FILE_FD_PAGES) return errno = EMFILE, false;
    _Atomic(_Atomic uint64_t *) *slot = &fds->pages[fd / FILE_FDS_PER_PAGE];
    if (atomic_load(slot)) return true;
    _Atomic uint64_t *page = calloc(WORDS_PER_PAGE, sizeof *page), *none = NULL;
    if (!page) return false;
    if (!atomic_compare_exchange_strong(slot, &none, page)) free((void *)page);
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
    atomic_fetch_or(word_of(fds, fd), bit_of(fd));
    return fd;
}

/* In this order: once unlocked, a copy in a child that was forked before the close does no harm; and once closed, the
 * number may already be another thread's. */
void file_fd_close(struct file_descriptors *fds, int fd) {
    flock(fd, LOCK_UN);
    atomic_fetch_and(word_of(fds, fd), ~bit_of(fd));
    close(fd);
}

void file_fds_close(struct file_descriptors *fds, bool unlock) {
    for (int i = 0; i < FILE_FD_PAGES; i++) {
        _Atomic uint64_t *page = atomic_load(&fds->pages[i]);
        for (int j = 0; page && j < WORDS_PER_PAGE; j++) {
            for (uint64_t bits = atomic_exchange(&page[j], 0); bits; bits &= bits - 1) {
                int fd = i * FILE_FDS_PER_PAGE + j * 64 + __builtin_ctzll(bits);
                if (unlock) flock(fd, LOCK_UN);
                close(fd);
            }
        }
    }
}

void file_fds_free(struct file_descriptors *fds) {
    for (int i = 0; i < FILE_FD_PAGES; i++) free((void *)atomic_load(&fds->pages[i]));
}
