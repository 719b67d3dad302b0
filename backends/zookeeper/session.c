/* The life of a session, and its thread. The thread calls the library functions that may block, zookeeper_init and
 * zookeeper_close, so that deadlines hold, and so that an unanswered close keeps no caller waiting. In between it makes
 * sure that the server hears from this client often enough. It closes a connection with unanswered requests while the
 * session still has time for another one: the library would wait for two thirds of the session, when the grants have
 * ended already. While there is no connection, it has the servers' names looked up, and gives the library their new
 * addresses. And it ends a session whose servers have been silent for so long that none of its locks is valid any more:
 * they may hear this client although it does not hear them, and then every new connection would keep the session's
 * places in the queue, unknown to any waiter, for as long as that lasts.
 *
 * `struct zookeeper` belongs to this thread and to the core's connection; the last user frees it. */
#include "zookeeper.h"

#include <dlock/backend_thread.h>

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    GOODBYE_US = 200000, /* longest wait for the end of a session; an answered one takes a few milliseconds */
    SIGN_SHARE = 4,      /* a keepalive is sent every quarter of a session */
    MUTE_SHARE = 8,      /* a server that answers nothing for an eighth of it is left for the next one, */
    MUTE_US = 500000,    /* or for this time, if that is longer */
    SEEK_SHARE = 16      /* without a connection, the servers' names are looked up every sixteenth of it */
};

/* ---- state ------------------------------------------------------------------------------------------------------- */

/* Adopts the timeout that the server has just granted; false if the session is over, or has to end. Each server applies
 * its own limits at every reconnect. After a shorter timeout the session may end before grants that were made with the
 * longer one. A longer one is not relied on: a new leader restarts all sessions with their initial timeouts
 * (SessionTrackerImpl's constructor). */
static bool negotiated(struct zookeeper *z, int session_ms) {
    bool shorter = session_ms < z->session_ms;
    if (session_ms <= 0) return false; /* the library reports an ended session so */
    if (!z->was_connected || shorter) z->session_ms = session_ms;
    return !z->was_connected || !shorter;
}

static void connected(struct zookeeper *z, zhandle_t *handle) {
    if (zookeeper_is_dead(z)) return;
    z->state = ZOOKEEPER_CONNECTED;
    z->linked_us = dlock_now_us();
    z->session = (uint64_t)zoo_client_id(handle)->client_id;
    if (z->session == 0 || !negotiated(z, zoo_recv_timeout(handle))) {
        zookeeper_died(z, ZOOKEEPER_EXPIRED);
        return;
    }
    if (z->was_connected) {
        zookeeper_moved(z);
        zookeeper_wake_queue(z, DLOCK_WAKE_LOOK, NULL); /* wake-ups may have been missed */
    } else {
        zookeeper_began(z, z->begun_us);
    }
    z->was_connected = true;
}

static void on_session(zhandle_t *handle, int type, int state, const char *path, void *context) {
    struct zookeeper *z = context;
    (void)path;
    if (type != ZOO_SESSION_EVENT) return;
    pthread_mutex_lock(&z->mutex);
    if (state == ZOO_CONNECTED_STATE)
        connected(z, handle);
    else if (state == ZOO_EXPIRED_SESSION_STATE)
        zookeeper_died(z, ZOOKEEPER_EXPIRED);
    else if (state == ZOO_AUTH_FAILED_STATE)
        zookeeper_died(z, ZOOKEEPER_NOT_ALLOWED);
    else if (!zookeeper_is_dead(z))
        z->state = ZOOKEEPER_CONNECTING;
    pthread_cond_broadcast(&z->changed);
    pthread_mutex_unlock(&z->mutex);
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

static void discard(const char *message) {
    (void)message;
}

/* Opens the handle. The library's threads inherit the mask of this thread, which blocks all signals. */
static void open_handle(struct zookeeper *z) {
    zhandle_t *handle =
        zookeeper_init2(z->address.hosts, on_session, z->address.session_ms, NULL, z, ZOO_NO_LOG_CLIENTENV, discard);
    int error = errno;
    if (handle) zoo_set_servers_resolution_delay(handle, -1);
    pthread_mutex_lock(&z->mutex);
    z->handle = handle;
    z->open_error = handle ? 0 : error ? error : EIO;
    pthread_cond_broadcast(&z->changed);
    pthread_mutex_unlock(&z->mutex);
}

/* Sends an arbitrary request as a keepalive, without waiting for its answer. Called with the mutex, which it releases
 * temporarily. */
static void give_sign(struct zookeeper *z) {
    z->sign_us = dlock_now_us();
    pthread_mutex_unlock(&z->mutex);
    struct zookeeper_call *call = zookeeper_call(z, 1);
    if (call) {
        zookeeper_ask_exists(call, "/");
        zookeeper_call_end(call);
    }
    pthread_mutex_lock(&z->mutex);
}

/* Leaves a server that has not answered for too long, but only once per session timeout, since a request may be slow on
 * every server. Called with the mutex, which it releases temporarily. Returns the time of the next call. */
static int64_t leave_if_mute(struct zookeeper *z, int64_t now) {
    int64_t session_us = (int64_t)z->session_ms * 1000, since_us = zookeeper_unanswered_us(z),
            patience_us = session_us / MUTE_SHARE > MUTE_US ? session_us / MUTE_SHARE : MUTE_US;
    bool stood_still = now > z->looked_us + patience_us * 3 / 2; /* this process did: an answer may be there unread */
    z->looked_us = now;
    if (stood_still) z->linked_us = now;
    if (z->hung_us && now < z->hung_us + session_us) return now + patience_us;
    if (since_us == INT64_MAX) return now + patience_us;
    if (since_us < z->linked_us) since_us = z->linked_us;
    if (now < since_us + patience_us) return since_us + patience_us;
    z->hung_us = now;
    pthread_mutex_unlock(&z->mutex);
    zookeeper_hang_up(z);
    pthread_mutex_lock(&z->mutex);
    return now + patience_us;
}

/* Gives the library the new list. It compares lists by their length and by addresses without ports, and ignores one that
 * it takes for its own: so a shorter one goes before. */
static void set_servers(struct zookeeper *z) {
    char first[128];
    int length = (int)strcspn(z->address.hosts, ",");
    snprintf(first, sizeof first, "%.*s", length, z->address.hosts);
    if (z->address.hosts[length]) zoo_set_servers(z->handle, first);
    zoo_set_servers(z->handle, z->address.hosts);
}

/* When due, looks whether the servers have moved. The library leaves an address that is not in its new list, also one
 * whose connection is being made; a request wakes its thread, which waits for that connection. Called with the mutex,
 * which it releases temporarily. Returns the time of the next call. */
static int64_t seek(struct zookeeper *z, int64_t now) {
    const int64_t pause_us = (int64_t)z->session_ms * 1000 / SEEK_SHARE;
    if (now < z->sought_us + pause_us) return z->sought_us + pause_us;
    z->sought_us = now;
    if (zookeeper_have_moved(z)) {
        pthread_mutex_unlock(&z->mutex);
        set_servers(z);
        pthread_mutex_lock(&z->mutex);
        give_sign(z);
    }
    return now + pause_us;
}

/* When due, sends a keepalive, looks whether the servers have moved, or ends a session that has been silent for too
 * long. Called with the mutex, which it may release temporarily. Returns the time of the next call. */
static int64_t attend(struct zookeeper *z) {
    int64_t now = dlock_now_us(), session_us = (int64_t)z->session_ms * 1000;
    if (z->state == ZOOKEEPER_CONNECTED) {
        int64_t look_us = leave_if_mute(z, now);
        int64_t last_us = zookeeper_last_touch(z), due_us;
        if (z->sign_us > last_us) last_us = z->sign_us;
        due_us = last_us + session_us / SIGN_SHARE;
        if (due_us <= now) {
            give_sign(z);
            due_us = now + session_us / SIGN_SHARE;
        }
        return due_us < look_us ? due_us : look_us;
    }
    if (z->state == ZOOKEEPER_CONNECTING && z->was_connected) {
        int64_t end_us = zookeeper_last_touch(z) + session_us / SIGN_SHARE + session_us;
        if (end_us > now) {
            int64_t seek_us = seek(z, now);
            return seek_us < end_us ? seek_us : end_us;
        }
        zookeeper_died(z, ZOOKEEPER_EXPIRED);
    }
    return INT64_MAX;
}

static void put(struct zookeeper *z) {
    bool last = --z->refs == 0;
    pthread_mutex_unlock(&z->mutex);
    if (!last) return;
    zookeeper_calls_free(z);
    zookeeper_watches_free(z);
    close(z->event_fd);
    free(z->address.hosts);
    pthread_cond_destroy(&z->changed);
    pthread_mutex_destroy(&z->mutex);
    free(z);
}

static void *run(void *arg) {
    struct zookeeper *z = arg;
    open_handle(z);
    pthread_mutex_lock(&z->mutex);
    while (!z->leaving) {
        int64_t until_us = attend(z);
        if (z->leaving) break;
        if (until_us == INT64_MAX)
            pthread_cond_wait(&z->changed, &z->mutex);
        else
            zookeeper_cond_wait(z, &z->changed, until_us);
    }
    pthread_mutex_unlock(&z->mutex);
    if (z->handle) zookeeper_close(z->handle);
    pthread_mutex_lock(&z->mutex);
    z->closed = true;
    pthread_cond_broadcast(&z->changed);
    put(z);
    return NULL;
}

/* ---- for the connection ------------------------------------------------------------------------------------------ */

struct zookeeper *zookeeper_new(struct dlock_error *err) {
    struct zookeeper *z = calloc(1, sizeof *z);
    if (!z || (z->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0) {
        dlock_fail(err, DLOCK_ENOMEM,
                   z ? "no descriptors left; raise the limit (ulimit -n)" : "out of memory for a session");
        free(z);
        return NULL;
    }
    z->refs = 1;
    z->wakes_end = &z->wakes;
    pthread_mutex_init(&z->mutex, NULL);
    zookeeper_cond_init(&z->changed);
    return z;
}

int zookeeper_open(struct zookeeper *z, int64_t deadline_us, struct dlock_error *err) {
    pthread_t thread;
    z->begun_us = dlock_now_us();
    z->refs++;
    if (dlock_start_thread(&thread, run, z) != 0) {
        z->refs--;
        return dlock_fail(err, DLOCK_ENOMEM,
                          "no thread for a ZooKeeper session; raise the limit (ulimit -u, ulimit -v)");
    }
    pthread_detach(thread);
    z->started = true;
    pthread_mutex_lock(&z->mutex);
    while (!z->handle && !z->open_error && zookeeper_cond_wait(z, &z->changed, deadline_us)) {
    }
    bool open = z->handle;
    int error = z->open_error;
    pthread_mutex_unlock(&z->mutex);
    if (open) return 0;
    int code = error == EINVAL ? DLOCK_EINVAL : error == ENOMEM || error == EMFILE ? DLOCK_ENOMEM : DLOCK_EUNAVAILABLE;
    return dlock_fail(err, code, "cannot begin a session with ZooKeeper at %s: %s", z->where,
                      error ? strerror(error) : "the time was over");
}

void zookeeper_leave_session(struct zookeeper *z) {
    int64_t deadline_us = dlock_now_us() + GOODBYE_US;
    pthread_mutex_lock(&z->mutex);
    z->leaving = true;
    pthread_cond_broadcast(&z->changed);
    while (z->started && !z->closed && zookeeper_cond_wait(z, &z->changed, deadline_us)) {
    }
    put(z);
}

/* Needs no answer: the library sets the watches again whenever it reconnects. Holders listen as well, and must not lose
 * their session just because it is disconnected at the moment. */
int zookeeper_listen(void *conn, int *fd, int timeout_ms, struct dlock_error *err) {
    struct zookeeper *z = zookeeper_of(conn);
    bool dead;
    int rc = zookeeper_ready(z, 0, &dead, err);
    (void)timeout_ms;
    if (dead) return rc;
    *fd = z->event_fd;
    return 0;
}
