/* Watches, and the wake-ups that they cause: a watch on the node before a claim's tells when to look again. There is
 * one watch per node, however many operations rely on it.
 *
 * After a reconnection the library sends all paths that it watches in one packet. If that were longer than the server's
 * jute.maxbuffer, 1 MB by default, the server would end every new connection until the session is over. So the bytes of
 * the paths are counted, and a waiter for whose watch there is no room polls. */
#include "zookeeper.h"

#include <stdlib.h>
#include <unistd.h>

/* ---- wake-ups ---------------------------------------------------------------------------------------------------- */

static void ring(struct zookeeper *z) {
    uint64_t one = 1;
    if (write(z->event_fd, &one, sizeof one) < 0) {
        /* the counter is full: the descriptor polls readable already */
    }
}

static void wake_free(struct zookeeper_wake *wake) {
    if (!wake) return;
    free(wake->name);
    free(wake);
}

void zookeeper_wake_queue(struct zookeeper *z, enum dlock_wake_kind kind, const char *name) {
    struct zookeeper_wake *wake = calloc(1, sizeof *wake);
    ring(z);
    if (wake) {
        wake->kind = kind;
        wake->name = name ? strdup(name) : NULL;
    }
    if (!wake || (name && !wake->name)) {
        wake_free(wake);
        z->look = true; /* a lost LOST is noticed by the next renewal */
        return;
    }
    *z->wakes_end = wake;
    z->wakes_end = &wake->next;
}

int zookeeper_wake(void *conn, struct dlock_wake *out, struct dlock_error *err) {
    struct zookeeper *z = zookeeper_of(conn);
    uint64_t count;
    int rc = 1;
    pthread_mutex_lock(&z->mutex);
    wake_free(z->woken);
    z->woken = z->wakes;
    if (z->woken) {
        z->wakes = z->woken->next;
        if (!z->wakes) z->wakes_end = &z->wakes;
        out->kind = z->woken->kind;
        out->name = z->woken->name;
        out->token = NULL;
    } else if (z->look) {
        z->look = false;
        out->kind = DLOCK_WAKE_LOOK;
    } else {
        if (read(z->event_fd, &count, sizeof count) < 0) {
            /* there was no event */
        }
        rc = 0;
        if (z->state == ZOOKEEPER_EXPIRED || z->state == ZOOKEEPER_NOT_ALLOWED)
            rc = dlock_fail(err, DLOCK_EUNAVAILABLE, "the session with ZooKeeper at %s has ended", z->where);
    }
    pthread_mutex_unlock(&z->mutex);
    return rc;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static struct zookeeper_watch **bucket(struct zookeeper *z, const char *path) {
    uint64_t hash = dlock_hash(path, strlen(path), DLOCK_HASH_SEED);
    return &z->watches[hash % ZOOKEEPER_BUCKETS];
}

static struct zookeeper_watch *find(struct zookeeper *z, const char *path) {
    struct zookeeper_watch *watch = *bucket(z, path);
    while (watch && strcmp(watch->path, path) != 0) watch = watch->next;
    return watch;
}

/* Returns a path's size in the packet with which the library sets all watches again after reconnecting. */
static size_t bytes_of(const char *path) {
    return strlen(path) + 4;
}

static void watch_free(struct zookeeper_watch *watch) {
    free(watch->name);
    free(watch);
}

static void drop(struct zookeeper_watch *watch) {
    struct zookeeper_watch **at = bucket(watch->z, watch->path);
    while (*at != watch) at = &(*at)->next;
    *at = watch->next;
    watch->z->watched_bytes -= bytes_of(watch->path);
    watch_free(watch);
}

static struct zookeeper_watch *make(struct zookeeper *z, const char *path, const char *name) {
    size_t length = strlen(path) + 1;
    struct zookeeper_watch *watch = calloc(1, sizeof *watch + length);
    if (!watch) return NULL;
    memcpy(watch->path, path, length);
    watch->z = z;
    watch->name = strdup(name);
    if (!watch->name) {
        free(watch);
        return NULL;
    }
    return watch;
}

/* Enters a new watch. NULL: *why. Called with the mutex. */
static struct zookeeper_watch *enter(struct zookeeper *z, const char *path, const char *name,
                                     enum zookeeper_watched *why) {
    *why = ZOOKEEPER_WATCHES_FULL;
    if (z->watched_bytes + bytes_of(path) > ZOOKEEPER_WATCHED_MAX) return NULL;
    *why = ZOOKEEPER_WATCH_NO_MEMORY;
    struct zookeeper_watch *watch = make(z, path, name);
    if (!watch) return NULL;
    z->watched_bytes += bytes_of(path);
    watch->next = *bucket(z, path);
    *bucket(z, path) = watch;
    return watch;
}

struct zookeeper_watch *zookeeper_watch_new(struct zookeeper *z, const char *path, const char *name, bool wanted,
                                            enum zookeeper_watched *why) {
    pthread_mutex_lock(&z->mutex);
    struct zookeeper_watch *watch = find(z, path), *fresh = watch ? NULL : enter(z, path, name, why);
    if (watch) {
        *why = ZOOKEEPER_WATCH_THERE;
        watch->shared = true;
    } else {
        watch = fresh;
    }
    if (watch && wanted) watch->wanted = true;
    if (watch && !wanted) watch->before = true;
    pthread_mutex_unlock(&z->mutex);
    return fresh;
}

struct zookeeper_watch *zookeeper_watch_own(struct zookeeper *z, const char *path, const char *name) {
    enum zookeeper_watched why;
    pthread_mutex_lock(&z->mutex);
    struct zookeeper_watch *watch = find(z, path), *fresh = NULL;
    if (!watch && z->watched_bytes < ZOOKEEPER_WATCHED_MAX / 2) watch = fresh = enter(z, path, name, &why);
    if (watch) watch->own = true;
    pthread_mutex_unlock(&z->mutex);
    return fresh;
}

void zookeeper_watch_forget(struct zookeeper *z, const char *path) {
    pthread_mutex_lock(&z->mutex);
    struct zookeeper_watch *watch = find(z, path);
    if (watch) watch->wanted = watch->own = false;
    pthread_mutex_unlock(&z->mutex);
}

void zookeeper_watches_free(struct zookeeper *z) {
    for (size_t i = 0; i < ZOOKEEPER_BUCKETS; i++)
        for (struct zookeeper_watch *watch = z->watches[i], *next; watch; watch = next) {
            next = watch->next;
            watch_free(watch);
        }
    for (struct zookeeper_wake *wake = z->wakes, *next; wake; wake = next) {
        next = wake->next;
        wake_free(wake);
    }
    wake_free(z->woken);
}

/* ---- events from the server -------------------------------------------------------------------------------------- */

void zookeeper_watch_answered(struct zookeeper_watch *watch, int rc, bool left) {
    if (rc == ZOK) return;
    if (watch->wanted) zookeeper_wake_queue(watch->z, DLOCK_WAKE_WANTED, watch->name); /* in case another client came */
    if (watch->before && (left || watch->shared)) zookeeper_wake_queue(watch->z, DLOCK_WAKE_LOOK, watch->name);
    drop(watch);
}

void zookeeper_watch_cancel(struct zookeeper_watch *watch) {
    struct zookeeper *z = watch->z;
    pthread_mutex_lock(&z->mutex);
    zookeeper_watch_answered(watch, ZSYSTEMERROR, true);
    pthread_mutex_unlock(&z->mutex);
}

/* Called by the library when the watch fires, and for every watch when the session's state changes; `watch` must not be
 * read then. */
void zookeeper_watch_fired(zhandle_t *handle, int type, int state, const char *path, void *context) {
    (void)handle;
    (void)state;
    (void)path;
    if (type == ZOO_SESSION_EVENT) return;
    struct zookeeper_watch *watch = context;
    struct zookeeper *z = watch->z;
    pthread_mutex_lock(&z->mutex);
    if (watch->before) zookeeper_wake_queue(z, DLOCK_WAKE_LOOK, watch->name);
    if (watch->wanted) zookeeper_wake_queue(z, DLOCK_WAKE_WANTED, watch->name);
    if (watch->own && type == ZOO_DELETED_EVENT) {
        zookeeper_wake_queue(z, DLOCK_WAKE_BROKEN, watch->name);
        z->doubts = true;
    }
    drop(watch);
    pthread_mutex_unlock(&z->mutex);
}
