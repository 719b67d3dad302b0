/* Caches descriptors of lock files that were in use recently: opening a file costs as much as locking it.
 *
 * The cache is set-associative: the hash of a file's name selects a set of a few places. The caller has to check, as
 * after every lock, that the file is still the one under the name. Nobody waits for a place that another thread uses:
 * it is skipped.
 *
 * SPDX-License-Identifier: MIT
 */
#include "file.h"

static struct file_cached *places_of(struct file_conn *conn, const char *file) {
    uint64_t hash = dlock_hash(file, strlen(file), DLOCK_HASH_SEED);
    return conn->cache[(hash ^ hash >> 16) % FILE_CACHE_SETS];
}

static bool lock(struct file_cached *place) {
    return !atomic_flag_test_and_set_explicit(&place->busy, memory_order_acquire);
}

static void unlock(struct file_cached *place) {
    atomic_flag_clear_explicit(&place->busy, memory_order_release);
}

int file_cache_take(struct file_conn *conn, const char *file, uint64_t *identity) {
    struct file_cached *places = places_of(conn, file);
    for (int i = 0, fd = -1; i < FILE_CACHE_WAYS; i++) {
        if (!lock(&places[i])) continue;
        if (strcmp(places[i].file, file) == 0) {
            fd = places[i].fd;
            *identity = places[i].identity;
            places[i].file[0] = '\0';
        }
        unlock(&places[i]);
        if (fd >= 0) return fd;
    }
    return -1;
}

/* Puts the descriptor into an empty place of its set; if there is none, replaces the one in the first place. */
void file_cache_put(struct file_conn *conn, int fd, const char *file, uint64_t identity) {
    struct file_cached *places = places_of(conn, file), *best = NULL;
    for (int i = 0; i < FILE_CACHE_WAYS; i++) {
        if (!lock(&places[i])) continue;
        bool empty = !places[i].file[0];
        if (best && !empty) {
            unlock(&places[i]);
            continue;
        }
        if (best) unlock(best);
        best = &places[i];
        if (empty) break;
    }
    if (best) {
        int old = best->file[0] ? best->fd : -1;
        best->fd = fd;
        best->identity = identity;
        memcpy(best->file, file, strlen(file) + 1);
        unlock(best);
        fd = old;
    }
    if (fd >= 0) file_fd_close(&conn->fds, fd);
}

bool file_cache_drop(struct file_conn *conn) {
    bool any = false;
    for (int i = 0; i < FILE_CACHE_SETS * FILE_CACHE_WAYS; i++) {
        struct file_cached *place = &conn->cache[i / FILE_CACHE_WAYS][i % FILE_CACHE_WAYS];
        int fd = -1;
        if (!lock(place)) continue;
        if (place->file[0]) fd = place->fd;
        place->file[0] = '\0';
        unlock(place);
        if (fd < 0) continue;
        file_fd_close(&conn->fds, fd);
        any = true;
    }
    return any;
}
