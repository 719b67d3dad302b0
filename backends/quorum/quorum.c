/* The table of operations, connect and disconnect.
 *
 * SPDX-License-Identifier: MIT
 */
#include "quorum.h"

#include <stdlib.h>

enum { END_US = 100000 }; /* longest wait, when the connection is closed, for workers to finish */

/* ---- connecting -------------------------------------------------------------------------------------------------- */

static struct quorum *new_quorum(const struct dlock_peer *peer) {
    struct quorum *quorum = calloc(1, sizeof *quorum);
    if (!quorum) return NULL;
    quorum->refs = 1;
    quorum->event = quorum->epoll = -1;
    quorum->random = dlock_hash(peer->client, strlen(peer->client), (uint64_t)dlock_now_us()) | 1;
    pthread_mutex_init(&quorum->mutex, NULL);
    quorum_cond_init(&quorum->changed);
    for (size_t i = 0; i < QUORUM_MOST; i++) {
        quorum->members[i].quorum = quorum;
        quorum->members[i].state = QUORUM_CONNECTING;
        quorum_cond_init(&quorum->members[i].work);
    }
    return quorum;
}

static int start_workers(struct quorum *quorum, struct dlock_error *err) {
    int rc = 0;
    pthread_mutex_lock(&quorum->mutex);
    for (size_t i = 0; rc == 0 && i < quorum->n; i++) rc = quorum_start_worker(&quorum->members[i], err);
    pthread_mutex_unlock(&quorum->mutex);
    return rc;
}

static size_t count(const struct quorum *quorum, enum quorum_member_state state, const struct quorum_member **one) {
    size_t n = 0;
    for (size_t i = 0; i < quorum->n; i++) {
        if (quorum->members[i].state != state) continue;
        if (one) *one = &quorum->members[i];
        n++;
    }
    return n;
}

/* Reports why no majority can be reached. A code other than EUNAVAILABLE is returned only if too many members report it
 * for the rest to form a majority. */
static int verdict(const struct quorum *quorum, struct dlock_error *err) {
    const struct quorum_member *one = NULL;
    const size_t up = count(quorum, QUORUM_UP, NULL), down = count(quorum, QUORUM_DOWN, &one);
    size_t same = 0;
    for (size_t i = 0; one && i < quorum->n; i++)
        same += quorum->members[i].state == QUORUM_DOWN && quorum->members[i].why.code == one->why.code;
    const int code = down > quorum->n - quorum->majority && same == down ? one->why.code : DLOCK_EUNAVAILABLE;
    return dlock_fail(err, code, "%zu of %zu members of the quorum can be reached, and %zu are needed; %.100s: %.300s",
                      up, quorum->n, quorum->majority, one ? one->server.where : "the others",
                      one ? one->why.message : "no answer in time");
}

static int await_majority(struct quorum *quorum, int64_t deadline_us, struct dlock_error *err) {
    int rc = 0;
    pthread_mutex_lock(&quorum->mutex);
    while (count(quorum, QUORUM_UP, NULL) < quorum->majority && rc == 0) {
        if (count(quorum, QUORUM_DOWN, NULL) > quorum->n - quorum->majority || dlock_now_us() >= deadline_us)
            rc = verdict(quorum, err);
        else
            quorum_wait(&quorum->changed, &quorum->mutex, deadline_us);
    }
    pthread_mutex_unlock(&quorum->mutex);
    return rc;
}

static int quorum_connect(void *memory, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                          struct dlock_error *err) {
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    struct quorum_conn *conn = memory;
    struct quorum *quorum = new_quorum(peer);
    if (!quorum) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for a quorum");
    conn->peer = peer;
    int rc = quorum_open_members(quorum, uri, peer, err);
    conn->quorum = quorum;
    if (rc == 0) rc = start_workers(quorum, err);
    return rc == 0 ? await_majority(quorum, deadline_us, err) : rc;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static bool all_ended(const struct quorum *quorum) {
    for (size_t i = 0; i < quorum->n; i++)
        if (quorum->members[i].started && !quorum->members[i].ended) return false;
    return true;
}

/* Ends the workers. One that hangs is left alone: it ends when its request does, and frees what is left. */
static void quorum_disconnect(void *memory) {
    struct quorum_conn *conn = memory;
    struct quorum *quorum = conn->quorum;
    bool ended[QUORUM_MOST];
    if (!quorum) return;
    const int64_t until_us = dlock_now_us() + END_US;
    pthread_mutex_lock(&quorum->mutex);
    quorum->closing = true;
    for (size_t i = 0; i < quorum->n; i++) pthread_cond_signal(&quorum->members[i].work);
    while (!all_ended(quorum) && dlock_now_us() < until_us) quorum_wait(&quorum->changed, &quorum->mutex, until_us);
    for (size_t i = 0; i < quorum->n; i++) ended[i] = quorum->members[i].ended;
    pthread_mutex_unlock(&quorum->mutex);
    for (size_t i = 0; i < quorum->n; i++) {
        if (!quorum->members[i].started) continue;
        if (ended[i])
            pthread_join(quorum->members[i].thread, NULL);
        else
            pthread_detach(quorum->members[i].thread);
    }
    conn->quorum = NULL;
    quorum_put(quorum);
}

static void quorum_abandon(void *memory) {
    struct quorum *quorum = ((struct quorum_conn *)memory)->quorum;
    for (size_t i = 0; quorum && i < quorum->n; i++) {
        struct quorum_member *member = &quorum->members[i];
        if (!member->server.backend || !member->server.backend->abandon) continue;
        if (atomic_exchange(&member->live, false)) member->server.backend->abandon(member->conn);
        if (atomic_exchange(&member->ear_live, false)) member->server.backend->abandon(member->ear);
    }
    struct quorum_member *checked = quorum ? atomic_exchange(&quorum->checked, NULL) : NULL;
    if (checked && checked->server.backend->abandon) checked->server.backend->abandon(quorum->check_conn);
    if (quorum && quorum->event >= 0) close(quorum->event);
    if (quorum && quorum->epoll >= 0) close(quorum->epoll);
}

static const char *const schemes[] = {"quorum", NULL};
static const char *const keys[] = {QUORUM_KEY "*", NULL};

DLOCK_BACKEND(quorum) = {
    .abi = DLOCK_ABI,
    .size = sizeof(struct dlock_backend),
    .name = "quorum",
    .schemes = schemes,
    .keys = keys,
    .caps = DLOCK_CAP_LEASE | DLOCK_CAP_THREADSAFE | DLOCK_CAP_FENCE | DLOCK_CAP_EXPORT | DLOCK_CAP_VOLATILE |
            DLOCK_CAP_WAKE | DLOCK_CAP_SHARED | DLOCK_CAP_INSPECT | DLOCK_CAP_LIST | DLOCK_CAP_BREAK,
    .conn_size = sizeof(struct quorum_conn),
    .connect = quorum_connect,
    .disconnect = quorum_disconnect,
    .acquire = quorum_acquire,
    .renew = quorum_renew,
    .release = quorum_release,
    .abandon = quorum_abandon,
    .listen = quorum_listen,
    .wake = quorum_wake,
    .inspect = quorum_inspect,
    .list = quorum_list,
    .break_lock = quorum_break,
    .check = quorum_check,
    .accepts = quorum_accepts,
};
