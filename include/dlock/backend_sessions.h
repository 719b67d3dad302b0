/* For backends of servers whose locks live in a connection: many sessions, each of which carries one claim, behind the
 * one connection that the core has.
 *
 * SPDX-License-Identifier: MIT
 *
 * Optional, for Linux (compile with _GNU_SOURCE), static inline. The backend has the capabilities SESSION and
 * THREADSAFE, and WAKE, so that the core hears of grants and losses; `conn_size` is sizeof(struct dlock_sessions), its
 * `connect` calls dlock_sessions_connect(), and the other operations are those below as they are. Include this in one C
 * file of the backend.
 *
 * The operations of one session are another struct dlock_backend, which the core does not see. One thread uses a session
 * at a time, for one claim from its acquire to its release, and its operations differ from those of other backends:
 *   - acquire: busy with retry_ms = DLOCK_FOREVER means that the request stays with the server, and that `wake` brings its
 *     answer. Only with DLOCK_CLAIM_QUEUE
 *   - renew: EUNAVAILABLE as the result of the claim, and 0 returned: the answer is late, and the session may live
 *   - release: also of a claim whose request waits: ensures that nothing is held or waits. It may fail to end the session
 *   - listen: only stores the descriptor, which polls readable after a message, and at the end of the session; -1: none
 *   - wake: 1 and GRANTED, without name and token, if the waiting request was granted; 0 for nothing of interest;
 *     EUNAVAILABLE or EPROTO: the session is over
 *   - break_lock, check: on a session without a claim
 *
 * Each session is opened by a thread, and so is each of several acquires in one batch. So a session that hangs delays
 * no other; an idle one costs the acquire that tries it half of its time. An acquire in the server's queue, which the
 * core wants to hear of by a wake-up, is not awaited for long either: it is busy at first, and a LOOK has the core ask
 * again when the session has answered. The listener's descriptor is an epoll descriptor that the waiting sessions are
 * in; those that hold a lock are added once they have held it for a moment, since that takes a system call. A timer in
 * it closes idle sessions. */
#ifndef DLOCK_BACKEND_SESSIONS_H
#define DLOCK_BACKEND_SESSIONS_H

#include <dlock/backend_socket.h>
#include <dlock/backend_thread.h>

#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this file: it grows only within one, and what changes otherwise raises it. */
#define DLOCK_SESSIONS 1

/* Most threads that open sessions or acquire at the same time. */
#define DLOCK_SESSIONS_THREADS 64
/* Most events that one call of dlock_sessions_wake() looks at: a server that sends without end holds up nobody. */
#define DLOCK_SESSIONS_EVENTS 64
/* How long an acquire is awaited that may wait in the server's queue. */
#define DLOCK_SESSIONS_PATIENCE_US 100000
/* A lock held for this long is watched, so that its loss is noticed before the next renewal. */
#define DLOCK_SESSIONS_WATCH_US 10000
/* An idle session is closed after this time; the last one after a third of its last claim's lease, if that is longer. */
#define DLOCK_SESSIONS_SPARE_US 1000000
/* A wait that its session did not survive is asked for again after this time: the server may end the next one, too. */
#define DLOCK_SESSIONS_AGAIN_US 50000

/* A session. All of it is private, as that of the next struct. */
struct dlock_session {
    struct dlock_sessions *all;         /* to which it belongs */
    struct dlock_session *next;         /* in all->first: only added to, so that a forked child can walk it */
    struct dlock_session *after;        /* in all->spare or all->jobs */
    size_t number;                      /* in all->by_number */
    char name[DLOCK_FULL_NAME_MAX + 1]; /* of the claim that it carries */
    char token[DLOCK_TOKEN_MAX + 1];    /* the same; "": none, and it is in all->spare */
    bool live;                          /* `conn` may own descriptors */
    bool connected;                     /* it was opened, and is not closed */
    bool busy;                          /* a thread is using it */
    bool waiting;                       /* a request of the claim waits in the server's queue */
    bool watched;                       /* its descriptor is armed in the epoll descriptor */
    bool late;                          /* the last renewal was not answered in time */
    bool over;                          /* connected, but only to be closed */
    bool begins;                        /* the claim has not been asked for in it yet */
    bool answered;            /* a thread of its own has sent an acquire, and `claim` and `why` are the last answer */
    int64_t look_us;          /* when to report a LOOK; 0: never; INT64_MAX: when it is not busy any more */
    int64_t since_us;         /* when the claim was granted, or the session became idle */
    int fd;                   /* its descriptor in the epoll descriptor; -1: none */
    int64_t deadline_us;      /* of the acquire that a thread of its own sends */
    struct dlock_claim claim; /* that acquire; always: the lease of the last one */
    struct dlock_error why;   /* its error */
    void *conn;               /* the connection, behind this struct */
};

/* The connection that the core has. */
struct dlock_sessions {
    const struct dlock_backend *kind; /* the operations of one session; NULL: not connected */
    const struct dlock_peer *peer;    /* the core's side */
    /* For all that follows and for the sessions, except for what only the thread of a busy one uses. */
    pthread_mutex_t mutex;
    pthread_cond_t changed;             /* a session is not busy any more, or a thread has ended */
    struct dlock_session *first;        /* all of them */
    struct dlock_session **by_number;   /* the same */
    struct dlock_session *spare;        /* those without a claim */
    struct dlock_session *jobs;         /* those that wait for a thread */
    struct dlock_session **jobs_end;    /* where the next one is added */
    size_t n;                           /* how many there are */
    size_t n_connected;                 /* how many are connected */
    unsigned n_threads;                 /* that run acquires */
    unsigned n_waiting;                 /* threads that wait for `changed` */
    int epoll;                          /* the descriptor, plus 1; 0: none */
    int timer;                          /* the same */
    int64_t alarm_us;                   /* the timer is set to this; 0: it is not set */
    char name[DLOCK_FULL_NAME_MAX + 1]; /* of the last wake-up */
    char token[DLOCK_TOKEN_MAX + 1];    /* the same */
};

/* ---- waiting and alarms, with the mutex -------------------------------------------------------------------------- */

static inline void dlock_sessions_changed(struct dlock_sessions *all) {
    if (all->n_waiting > 0) pthread_cond_broadcast(&all->changed);
}

/* Waits for a change. False: the deadline has passed. */
static inline bool dlock_sessions_wait(struct dlock_sessions *all, int64_t deadline_us) {
    struct timespec until;
    int64_t left_us = deadline_us - dlock_now_us();
    if (left_us <= 0) return false;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += left_us / 1000000;
    until.tv_nsec += left_us % 1000000 * 1000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    all->n_waiting++;
    pthread_cond_timedwait(&all->changed, &all->mutex, &until);
    all->n_waiting--;
    return true;
}

static inline void dlock_sessions_set_timer(struct dlock_sessions *all, int64_t at_us) {
    struct itimerspec at;
    memset(&at, 0, sizeof at);
    all->alarm_us = at_us;
    at.it_value.tv_sec = at_us / 1000000;
    at.it_value.tv_nsec = at_us % 1000000 * 1000;
    timerfd_settime(all->timer - 1, TFD_TIMER_ABSTIME, &at, NULL);
}

/* Has dlock_sessions_look() called at that time, or before. */
static inline void dlock_sessions_alarm(struct dlock_sessions *all, int64_t at_us) {
    if (all->alarm_us == 0 || at_us < all->alarm_us) dlock_sessions_set_timer(all, at_us);
}

/* ---- one session: opening and closing, by the thread that uses it, without the mutex ------------------------------ */

static inline int dlock_session_descriptor(const struct dlock_session *session) {
    int fd = -1;
    return session->all->kind->listen(session->conn, &fd, 1, NULL) == 0 ? fd : -1;
}

/* Begins to watch the descriptor, not armed yet. */
static inline int dlock_session_enroll(struct dlock_session *session, int *fd, struct dlock_error *err) {
    struct epoll_event event;
    memset(&event, 0, sizeof event);
    event.events = EPOLLONESHOT;
    event.data.ptr = session;
    *fd = dlock_session_descriptor(session);
    if (*fd >= 0 && epoll_ctl(session->all->epoll - 1, EPOLL_CTL_ADD, *fd, &event) == 0) return 0;
    return dlock_fail(err, DLOCK_ENOMEM, "a session cannot be watched: %s", strerror(errno));
}

/* Closing the descriptor would not end its watch: copies of it, in a guardian or a forked child, keep it watched. It is
 * compared first, since the kind may have closed it, and its number may belong to another session by now. */
static inline void dlock_session_close(struct dlock_session *session) {
    struct dlock_sessions *all = session->all;
    if (!session->live) return;
    if (session->fd >= 0 && dlock_session_descriptor(session) == session->fd)
        epoll_ctl(all->epoll - 1, EPOLL_CTL_DEL, session->fd, NULL);
    pthread_mutex_lock(&all->mutex);
    if (session->connected) all->n_connected--;
    session->connected = session->over = session->waiting = session->watched = session->late = false;
    session->fd = -1;
    pthread_mutex_unlock(&all->mutex);
    all->kind->disconnect(session->conn);
    session->live = false;
}

/* `uri` NULL: by dlock_peer.connect_again. */
static inline int dlock_session_open(struct dlock_session *session, const struct dlock_uri *uri, int64_t deadline_us,
                                     struct dlock_error *err) {
    struct dlock_sessions *all = session->all;
    const int ms = dlock_left_ms(deadline_us);
    int fd;
    memset(session->conn, 0, all->kind->conn_size);
    session->live = true;
    int rc = uri ? all->kind->connect(session->conn, uri, all->peer, ms, err)
                 : all->peer->connect_again(all->peer, NULL, 0, all->kind->connect, session->conn, ms, err);
    if (rc == 0) rc = dlock_session_enroll(session, &fd, err);
    if (rc != 0) {
        dlock_session_close(session);
        return rc;
    }
    pthread_mutex_lock(&all->mutex);
    session->connected = true;
    session->fd = fd;
    all->n_connected++;
    pthread_mutex_unlock(&all->mutex);
    return 0;
}

/* ---- which session, with the mutex ------------------------------------------------------------------------------- */

/* The session that carries the claim, or NULL. */
static inline struct dlock_session *dlock_session_of(struct dlock_sessions *all, const struct dlock_claim *claim) {
    const uint64_t number = claim->state[0] - 1;
    if (number < all->n && strcmp(all->by_number[number]->token, claim->token) == 0) return all->by_number[number];
    for (struct dlock_session *session = all->first; session; session = session->next)
        if (strcmp(session->token, claim->token) == 0) return session;
    return NULL;
}

/* The same, once no other thread uses it. Busy: the deadline has passed. */
static inline struct dlock_session *dlock_session_ready(struct dlock_sessions *all, const struct dlock_claim *claim,
                                                        int64_t deadline_us) {
    struct dlock_session *session = dlock_session_of(all, claim);
    while (session && session->busy && dlock_sessions_wait(all, deadline_us)) session = dlock_session_of(all, claim);
    return session;
}

static inline struct dlock_session *dlock_session_new(struct dlock_sessions *all) {
    const size_t size = (sizeof(struct dlock_session) + 15) / 16 * 16;
    struct dlock_session *session = (struct dlock_session *)calloc(1, size + all->kind->conn_size), **more;
    if (session && (all->n & (all->n - 1)) == 0) { /* the numbers are full */
        more = (struct dlock_session **)realloc(all->by_number, (all->n ? 2 * all->n : 1) * sizeof *more);
        if (!more) free(session);
        if (!more) return NULL;
        all->by_number = more;
    }
    if (!session) return NULL;
    session->all = all;
    session->conn = (char *)session + size;
    session->fd = -1;
    session->number = all->n;
    session->next = all->first;
    all->by_number[all->n++] = session;
    all->first = session;
    return session;
}

/* Takes a session that carries nothing, and makes it busy: the one that was used last, or one that is to be opened.
 * NULL: out of memory. */
static inline struct dlock_session *dlock_session_take(struct dlock_sessions *all) {
    struct dlock_session **at = &all->spare, **closed = NULL, *session;
    for (; *at && ((*at)->busy || !(*at)->connected || (*at)->over); at = &(*at)->after)
        if (!(*at)->busy && !(*at)->connected) closed = at;
    if (!*at && closed) at = closed;
    session = *at;
    if (session)
        *at = session->after;
    else
        session = dlock_session_new(all);
    if (session) session->busy = true;
    return session;
}

/* Has the session carry nothing any more. */
static inline void dlock_session_free(struct dlock_session *session) {
    struct dlock_sessions *all = session->all;
    session->token[0] = '\0';
    session->answered = false;
    session->look_us = 0;
    session->since_us = dlock_now_us();
    session->after = all->spare;
    all->spare = session;
    const int64_t spare_us = session->over ? DLOCK_SESSIONS_WATCH_US : DLOCK_SESSIONS_SPARE_US;
    if (session->connected) dlock_sessions_alarm(all, session->since_us + spare_us);
}

/* Arms the descriptor: the next message, or the session's end, is reported to dlock_sessions_wake(). */
static inline void dlock_session_watch(struct dlock_session *session) {
    struct epoll_event event;
    if (session->watched || session->fd < 0) return;
    memset(&event, 0, sizeof event);
    event.events = EPOLLONESHOT | EPOLLIN | EPOLLRDHUP;
    event.data.ptr = session;
    session->watched = epoll_ctl(session->all->epoll - 1, EPOLL_CTL_MOD, session->fd, &event) == 0;
    if (!session->watched) dlock_sessions_alarm(session->all, dlock_now_us() + DLOCK_SESSIONS_WATCH_US);
}

/* The end of a thread's use. */
static inline void dlock_session_done(struct dlock_session *session) {
    struct dlock_sessions *all = session->all;
    session->busy = false;
    if (session->waiting) session->look_us = 0; /* another wake-up will come */
    if (session->look_us == INT64_MAX) session->look_us = dlock_now_us();
    if (session->look_us) dlock_sessions_alarm(all, session->look_us);
    if (session->token[0] && session->connected) {
        if (session->waiting)
            dlock_session_watch(session);
        else if (!session->watched)
            dlock_sessions_alarm(all, session->since_us + DLOCK_SESSIONS_WATCH_US);
    }
    dlock_sessions_changed(all);
}

/* ---- acquire ----------------------------------------------------------------------------------------------------- */

/* Reads the answer to the request that waits. 1: it was granted; 0: it still waits. */
static inline int dlock_session_heard(struct dlock_session *session, struct dlock_wake *wake, struct dlock_error *err) {
    memset(wake, 0, sizeof *wake);
    int rc = session->all->kind->wake(session->conn, wake, err);
    if (rc == 1) session->waiting = false;
    return rc;
}

/* Asks for the claim that the session carries from now on. An idle session may have died unnoticed, or hang: then once
 * more in a new one. Without the mutex. */
static inline int dlock_session_ask(struct dlock_session *session, struct dlock_claim *claim, int64_t deadline_us,
                                    struct dlock_error *err) {
    struct dlock_claim *one = claim, before = *claim;
    struct dlock_wake wake;
    const bool was_idle = session->connected && session->begins;
    const int64_t first_us = was_idle ? deadline_us - (deadline_us - dlock_now_us()) / 2 : deadline_us;
    int rc = session->connected ? 0 : dlock_session_open(session, NULL, deadline_us, err);
    if (session->waiting) {
        rc = dlock_session_heard(session, &wake, err);
        claim->result = DLOCK_EBUSY;
        claim->retry_ms = DLOCK_FOREVER;
        if (rc == 0) return 0;
        *claim = before;
        if (rc == 1) rc = 0;
    }
    if (rc == 0) rc = session->all->kind->acquire(session->conn, &one, 1, dlock_left_ms(first_us), err);
    if (rc == DLOCK_EUNAVAILABLE && was_idle && dlock_now_us() < deadline_us) {
        *claim = before;
        dlock_session_close(session);
        rc = dlock_session_open(session, NULL, deadline_us, err);
        if (rc == 0) rc = session->all->kind->acquire(session->conn, &one, 1, dlock_left_ms(deadline_us), err);
    }
    if (rc != 0) {
        dlock_session_close(session);
        claim->result = rc;
    }
    return rc;
}

/* Takes over the outcome of an acquire. With the mutex. */
static inline void dlock_session_asked(struct dlock_session *session, struct dlock_claim *claim) {
    session->begins = session->answered = false;
    session->waiting = session->connected && claim->result == DLOCK_EBUSY && claim->retry_ms == DLOCK_FOREVER;
    session->claim.lease_ms = claim->lease_ms;
    claim->state[0] = session->number + 1;
    if (claim->result != 0) return;
    session->since_us = dlock_now_us();
    claim->hints |= DLOCK_HINT_LISTEN;
}

/* Whether the claim stays with the session after this answer. */
static inline bool dlock_session_keeps(const struct dlock_session *session, const struct dlock_claim *claim) {
    return session->connected && (claim->result == 0 || claim->result == DLOCK_EUNAVAILABLE || session->waiting);
}

/* A thread that runs acquires until there are no more. */
static inline void *dlock_sessions_work(void *arg) {
    struct dlock_sessions *all = (struct dlock_sessions *)arg;
    struct dlock_session *session;
    pthread_mutex_lock(&all->mutex);
    while ((session = all->jobs)) {
        if (!(all->jobs = session->after)) all->jobs_end = &all->jobs;
        pthread_mutex_unlock(&all->mutex);
        session->why.code = 0;
        dlock_session_ask(session, &session->claim, session->deadline_us, &session->why);
        pthread_mutex_lock(&all->mutex);
        dlock_session_asked(session, &session->claim);
        session->answered = true;
        dlock_session_done(session);
    }
    all->n_threads--;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->mutex);
    return NULL;
}

/* Has a thread ask for the claim. A request that may wait in the queue ends a little before its deadline, so that the
 * core can still be told why it failed. With the mutex, which is left if no thread can be started. */
static inline void dlock_session_begin(struct dlock_session *session, const struct dlock_claim *claim,
                                       int64_t deadline_us) {
    struct dlock_sessions *all = session->all;
    pthread_t thread;
    session->claim = *claim;
    session->claim.name = session->name;
    session->claim.token = session->token;
    session->deadline_us = deadline_us;
    if (claim->flags & DLOCK_CLAIM_QUEUE) session->deadline_us -= (deadline_us - dlock_now_us()) / 8;
    session->after = NULL;
    *all->jobs_end = session;
    all->jobs_end = &session->after;
    if (all->n_threads == DLOCK_SESSIONS_THREADS) return;
    all->n_threads++;
    if (dlock_start_thread(&thread, dlock_sessions_work, all) == 0) {
        pthread_detach(thread);
    } else if (all->n_threads > 1) {
        all->n_threads--;
    } else {
        pthread_mutex_unlock(&all->mutex);
        dlock_sessions_work(all);
        pthread_mutex_lock(&all->mutex);
    }
}

/* Finds or takes the session for a claim that is asked for. *own: it was not busy, and is now. NULL: out of memory. */
static inline struct dlock_session *dlock_session_for(struct dlock_sessions *all, const struct dlock_claim *claim,
                                                      bool *own) {
    struct dlock_session *session = dlock_session_of(all, claim);
    *own = !session || !session->busy;
    if (!session && (session = dlock_session_take(all))) {
        snprintf(session->name, sizeof session->name, "%s", claim->name);
        snprintf(session->token, sizeof session->token, "%s", claim->token);
        session->begins = true;
    }
    if (session) session->busy = true;
    return session;
}

/* Hands out the answer that a thread got. */
static inline void dlock_session_deliver(struct dlock_session *session, struct dlock_claim *claim,
                                         struct dlock_error *err) {
    struct dlock_claim answer = session->claim;
    answer.name = claim->name;
    answer.token = claim->token;
    *claim = answer;
    session->answered = false;
    session->look_us = 0;
    if (err && err->code == 0 && session->why.code) *err = session->why;
    if (!dlock_session_keeps(session, claim)) dlock_session_free(session);
}

/* Waits for the answer that a thread gets. A grant that another call has begun is older than this one, whose lease counts
 * from its own begin: asking again proves it. */
static inline void dlock_session_await(struct dlock_session *session, struct dlock_claim *claim, bool mine,
                                       int64_t deadline_us, struct dlock_error *err) {
    const bool queues = claim->flags & DLOCK_CLAIM_QUEUE;
    while (session->busy && dlock_sessions_wait(session->all, deadline_us)) {
    }
    if (strcmp(session->token, claim->token) != 0) { /* it was lost before it could be told */
        claim->result = dlock_fail(err, DLOCK_EUNAVAILABLE, "the session has ended");
    } else if (!session->busy && session->answered && (mine || !session->connected)) {
        dlock_session_deliver(session, claim, err);
    } else if (queues) {
        claim->result = DLOCK_EBUSY;
        claim->retry_ms = session->busy ? DLOCK_FOREVER : 1;
        if (session->busy) session->look_us = INT64_MAX;
    } else {
        claim->result = dlock_fail(err, DLOCK_EUNAVAILABLE, "no answer in time");
    }
}

static inline int dlock_sessions_acquire(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                                         struct dlock_error *err) {
    struct dlock_sessions *all = (struct dlock_sessions *)conn;
    struct dlock_session *sessions[256];
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    int64_t patience_us = dlock_now_us() + DLOCK_SESSIONS_PATIENCE_US;
    bool own, mine[256] = {false};
    if (err) err->code = 0;
    if (patience_us > deadline_us) patience_us = deadline_us;
    pthread_mutex_lock(&all->mutex);
    for (size_t i = 0; i < n; i++) {
        struct dlock_session *session = sessions[i] = dlock_session_for(all, claims[i], &own);
        if (!session) {
            claims[i]->result = dlock_fail(err, DLOCK_ENOMEM, "out of memory for a session");
        } else if (own && session->answered && !session->connected) {
            session->busy = false; /* the acquire before this one, which was not awaited, has failed */
        } else if (own && n == 1 && session->connected) {
            pthread_mutex_unlock(&all->mutex);
            dlock_session_ask(session, claims[0], deadline_us, err);
            pthread_mutex_lock(&all->mutex);
            dlock_session_asked(session, claims[0]);
            if (!dlock_session_keeps(session, claims[0])) dlock_session_free(session);
            dlock_session_done(session);
            sessions[0] = NULL;
        } else if (own) {
            dlock_session_begin(session, claims[i], deadline_us);
            mine[i] = true;
        }
    }
    for (size_t i = 0; i < n; i++)
        if (sessions[i])
            dlock_session_await(sessions[i], claims[i], mine[i],
                                claims[i]->flags & DLOCK_CLAIM_QUEUE ? patience_us : deadline_us, err);
    pthread_mutex_unlock(&all->mutex);
    return 0;
}

/* ---- release and renew ------------------------------------------------------------------------------------------- */

/* The deadline for one of `left` claims that take turns: half of the time, so that one that hangs leaves some for the
 * others. */
static inline int64_t dlock_sessions_share_us(int64_t deadline_us, size_t left) {
    const int64_t now_us = dlock_now_us(), least_us = 10000, half_us = (deadline_us - now_us) / 2;
    const int64_t until_us = now_us + (half_us > least_us ? half_us : least_us);
    return left == 1 || until_us > deadline_us ? deadline_us : until_us;
}

static inline void dlock_session_release(struct dlock_sessions *all, struct dlock_claim *claim, int64_t deadline_us,
                                         struct dlock_error *err) {
    struct dlock_session *session = dlock_session_ready(all, claim, deadline_us);
    claim->result = DLOCK_ELOST;
    if (!session) return;
    if (session->busy) {
        claim->result = dlock_fail(err, DLOCK_EUNAVAILABLE, "the session that the lock lives in was not ready in time");
        return;
    }
    session->busy = true;
    if (session->connected) {
        pthread_mutex_unlock(&all->mutex);
        int rc = all->kind->release(session->conn, &claim, 1, dlock_left_ms(deadline_us), err);
        if (rc != 0) claim->result = session->waiting ? DLOCK_ELOST : rc; /* a request ends with its session */
        if (rc != 0 || (claim->result == DLOCK_ELOST && !session->waiting)) dlock_session_close(session);
        pthread_mutex_lock(&all->mutex);
    }
    session->waiting = false;
    dlock_session_free(session);
    dlock_session_done(session);
}

/* The claims of the dead are freed by the end of their sessions, and no other session could. */
static inline int dlock_sessions_release(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                                         struct dlock_error *err) {
    struct dlock_sessions *all = (struct dlock_sessions *)conn;
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    pthread_mutex_lock(&all->mutex);
    for (size_t i = 0; i < n; i++)
        if (claims[i]->flags & DLOCK_CLAIM_DEAD)
            claims[i]->result = dlock_fail(err, DLOCK_ENOTSUP, "only its own session could release it");
        else
            dlock_session_release(all, claims[i], dlock_sessions_share_us(deadline_us, n - i), err);
    pthread_mutex_unlock(&all->mutex);
    return 0;
}

/* One that is not answered in time is sent again by the core; only the end of its session ends the grant. Then the core
 * is told before the session is closed, since after that the server may grant the lock to another client. */
static inline void dlock_session_renew(struct dlock_sessions *all, struct dlock_claim *claim, int64_t deadline_us,
                                       struct dlock_error *err) {
    struct dlock_session *session = dlock_session_ready(all, claim, deadline_us);
    claim->result = session && (session->busy || session->connected) ? DLOCK_EUNAVAILABLE : DLOCK_ELOST;
    if (claim->result == DLOCK_ELOST) return;
    if (session->busy || dlock_now_us() >= deadline_us) {
        dlock_fail(err, DLOCK_EUNAVAILABLE, "lock \"%s\": the deadline has passed before its renewal", claim->name);
        return;
    }
    session->busy = true;
    pthread_mutex_unlock(&all->mutex);
    int rc = all->kind->renew(session->conn, &claim, 1, dlock_left_ms(deadline_us), err);
    pthread_mutex_lock(&all->mutex);
    session->late = rc == 0 && claim->result == DLOCK_EUNAVAILABLE;
    session->claim.lease_ms = claim->lease_ms;
    if (rc != 0) claim->result = DLOCK_ELOST;
    if (rc != 0 && err) err->code = DLOCK_ELOST;
    if (claim->result == DLOCK_ELOST) {
        session->over = true;
        dlock_session_free(session);
    } else {
        dlock_session_watch(session);
    }
    dlock_session_done(session);
}

/* In sequence. Sessions that were late the last time come last. */
static inline int dlock_sessions_renew(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                                       struct dlock_error *err) {
    struct dlock_sessions *all = (struct dlock_sessions *)conn;
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    bool late[256];
    pthread_mutex_lock(&all->mutex);
    for (size_t i = 0; i < n; i++) {
        const struct dlock_session *session = dlock_session_of(all, claims[i]);
        late[i] = session && session->late;
    }
    for (size_t i = 0, left = n; i < 2 * n; i++) {
        if (late[i % n] != (i >= n)) continue;
        dlock_session_renew(all, claims[i % n], dlock_sessions_share_us(deadline_us, left--), err);
    }
    pthread_mutex_unlock(&all->mutex);
    return 0;
}

/* ---- wake-ups ---------------------------------------------------------------------------------------------------- */

static inline bool dlock_session_tell(struct dlock_session *session, enum dlock_wake_kind kind,
                                      struct dlock_wake *out) {
    struct dlock_sessions *all = session->all;
    memcpy(all->name, session->name, sizeof all->name);
    memcpy(all->token, session->token, sizeof all->token);
    out->kind = kind;
    out->name = all->name;
    out->token = all->token;
    return true;
}

/* The descriptor of a session is readable. Its end is told before it is closed, and a wait is asked for again. */
static inline bool dlock_session_event(struct dlock_session *session, struct dlock_wake *out) {
    struct dlock_sessions *all = session->all;
    struct dlock_error why, line;
    bool told = false;
    why.message[0] = '\0';
    pthread_mutex_lock(&all->mutex);
    session->watched = false;
    if (session->busy || !session->connected || !session->token[0]) { /* whoever uses it notices, or will */
        pthread_mutex_unlock(&all->mutex);
        return false;
    }
    const bool waited = session->waiting;
    session->busy = true;
    pthread_mutex_unlock(&all->mutex);
    int rc = dlock_session_heard(session, out, &why);
    if (waited && rc < 0) dlock_session_close(session);
    if (!waited && rc < 0) { /* nothing else says why */
        dlock_fail(&line, rc, "lock \"%.200s\" is lost: %s", session->name, why.message);
        all->peer->log(all->peer, DLOCK_LOG_WARN, line.message);
    }
    pthread_mutex_lock(&all->mutex);
    if (waited) session->answered = rc == 0 && session->answered;
    if (rc == 0) {
        dlock_session_watch(session);
    } else if (rc == 1 && waited) {
        session->since_us = dlock_now_us();
        session->look_us = 0;
        told = dlock_session_tell(session, DLOCK_WAKE_GRANTED, out);
    } else if (waited) {
        session->begins = true;
        session->look_us = dlock_now_us() + DLOCK_SESSIONS_AGAIN_US;
    } else {
        told = dlock_session_tell(session, DLOCK_WAKE_LOST, out);
        session->over = true;
        dlock_session_free(session);
    }
    dlock_session_done(session);
    pthread_mutex_unlock(&all->mutex);
    return told;
}

/* When something is due for a session that no thread uses. */
static inline int64_t dlock_session_due(const struct dlock_session *session) {
    int64_t idle_us = DLOCK_SESSIONS_SPARE_US;
    if (session->look_us) return session->look_us;
    if (!session->connected) return INT64_MAX;
    if (session->token[0]) return session->watched ? INT64_MAX : session->since_us + DLOCK_SESSIONS_WATCH_US;
    if (session->over) return session->since_us + DLOCK_SESSIONS_WATCH_US;
    if (session->all->n_connected == 1 && session->claim.lease_ms * 1000 / 3 > idle_us)
        idle_us = session->claim.lease_ms * 1000 / 3;
    return session->since_us + idle_us;
}

/* The timer has come: does what is due. True: a LOOK is. */
static inline bool dlock_sessions_look(struct dlock_sessions *all, struct dlock_wake *out) {
    int64_t next_us = INT64_MAX;
    bool told = false;
    uint64_t count;
    pthread_mutex_lock(&all->mutex);
    if (read(all->timer - 1, &count, sizeof count) > 0) all->alarm_us = 0;
    for (struct dlock_session *session = all->first; session && !told; session = session->next) {
        int64_t due_us = session->busy ? INT64_MAX : dlock_session_due(session);
        if (due_us > dlock_now_us()) {
            if (due_us < next_us) next_us = due_us;
        } else if (session->look_us) {
            session->look_us = 0;
            told = dlock_session_tell(session, DLOCK_WAKE_LOOK, out);
            next_us = dlock_now_us(); /* there may be more */
        } else if (session->token[0]) {
            dlock_session_watch(session);
        } else {
            session->busy = true;
            pthread_mutex_unlock(&all->mutex);
            dlock_session_close(session);
            pthread_mutex_lock(&all->mutex);
            session->busy = false;
            dlock_sessions_changed(all);
        }
    }
    if (next_us != INT64_MAX) dlock_sessions_alarm(all, next_us);
    pthread_mutex_unlock(&all->mutex);
    return told;
}

static inline int dlock_sessions_wake(void *conn, struct dlock_wake *out, struct dlock_error *err) {
    struct dlock_sessions *all = (struct dlock_sessions *)conn;
    struct epoll_event event;
    (void)err;
    for (int n = 0; n < DLOCK_SESSIONS_EVENTS && epoll_wait(all->epoll - 1, &event, 1, 0) == 1; n++) {
        struct dlock_session *session = (struct dlock_session *)event.data.ptr;
        if (session ? dlock_session_event(session, out) : dlock_sessions_look(all, out)) return 1;
    }
    return 0;
}

static inline int dlock_sessions_listen(void *conn, int *fd, int timeout_ms, struct dlock_error *err) {
    const struct dlock_sessions *all = (const struct dlock_sessions *)conn;
    (void)timeout_ms;
    (void)err;
    *fd = all->epoll - 1;
    return 0;
}

/* ---- the connection ---------------------------------------------------------------------------------------------- */

/* Asks in a session that carries nothing: break_lock with a name, check without one. */
static inline int dlock_sessions_question(struct dlock_sessions *all, const char *name, dlock_each_finding each,
                                          void *arg, int timeout_ms, struct dlock_error *err) {
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    pthread_mutex_lock(&all->mutex);
    struct dlock_session *session = dlock_session_take(all);
    pthread_mutex_unlock(&all->mutex);
    if (!session) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for a session");
    int rc = session->connected ? 0 : dlock_session_open(session, NULL, deadline_us, err);
    if (rc == 0)
        rc = name ? all->kind->break_lock(session->conn, name, dlock_left_ms(deadline_us), err)
                  : all->kind->check(session->conn, each, arg, dlock_left_ms(deadline_us), err);
    if (rc == DLOCK_EUNAVAILABLE || rc == DLOCK_EPROTO) dlock_session_close(session);
    pthread_mutex_lock(&all->mutex);
    dlock_session_free(session);
    dlock_session_done(session);
    pthread_mutex_unlock(&all->mutex);
    return rc;
}

static inline int dlock_sessions_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err) {
    return dlock_sessions_question((struct dlock_sessions *)conn, name, NULL, NULL, timeout_ms, err);
}

static inline int dlock_sessions_check(void *conn, dlock_each_finding each, void *arg, int timeout_ms,
                                       struct dlock_error *err) {
    return dlock_sessions_question((struct dlock_sessions *)conn, NULL, each, arg, timeout_ms, err);
}

/* Opens the first session. Afterwards, and after a failure, dlock_sessions_disconnect() is to be called. */
static inline int dlock_sessions_connect(void *conn, const struct dlock_backend *kind, const struct dlock_uri *uri,
                                         const struct dlock_peer *peer, int timeout_ms, struct dlock_error *err) {
    struct dlock_sessions *all = (struct dlock_sessions *)conn;
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    pthread_condattr_t monotonic;
    struct epoll_event event;
    pthread_mutex_init(&all->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&all->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    all->jobs_end = &all->jobs;
    all->peer = peer;
    all->kind = kind;
    all->epoll = epoll_create1(EPOLL_CLOEXEC) + 1;
    all->timer = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC) + 1;
    memset(&event, 0, sizeof event);
    event.events = EPOLLIN;
    if (!all->epoll || !all->timer || epoll_ctl(all->epoll - 1, EPOLL_CTL_ADD, all->timer - 1, &event) != 0)
        return dlock_fail(err, DLOCK_ENOMEM, "no descriptors left for sessions: %s%s", strerror(errno),
                          dlock_advice(errno));
    struct dlock_session *session = dlock_session_take(all);
    if (!session) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for a session");
    int rc = dlock_session_open(session, uri, deadline_us, err);
    dlock_session_free(session);
    session->busy = false;
    return rc;
}

/* Waits for the threads that are opening a session, each within the time that its request was given. */
static inline void dlock_sessions_disconnect(void *conn) {
    struct dlock_sessions *all = (struct dlock_sessions *)conn;
    if (!all->kind) return;
    pthread_mutex_lock(&all->mutex);
    all->jobs = NULL;
    while (all->n_threads > 0) pthread_cond_wait(&all->changed, &all->mutex);
    pthread_mutex_unlock(&all->mutex);
    for (struct dlock_session *session = all->first; session; session = session->next) dlock_session_close(session);
    struct dlock_session *first = all->first; /* another thread may fork at any time, and the child calls abandon */
    const int fds[] = {all->timer - 1, all->epoll - 1};
    all->timer = all->epoll = 0;
    all->first = NULL;
    for (struct dlock_session *next; first; first = next) {
        next = first->next;
        free(first);
    }
    free(all->by_number);
    for (size_t i = 0; i < 2; i++)
        if (fds[i] >= 0) close(fds[i]);
    pthread_cond_destroy(&all->changed);
    pthread_mutex_destroy(&all->mutex);
    memset(all, 0, sizeof *all);
}

static inline void dlock_sessions_abandon(void *conn) {
    const struct dlock_sessions *all = (const struct dlock_sessions *)conn;
    if (!all->kind) return;
    for (const struct dlock_session *session = all->first; session; session = session->next)
        if (session->live) all->kind->abandon(session->conn);
    if (all->timer) close(all->timer - 1);
    if (all->epoll) close(all->epoll - 1);
}

static inline size_t dlock_sessions_descriptors(void *conn, int *fds, size_t max) {
    struct dlock_sessions *all = (struct dlock_sessions *)conn;
    size_t n = 0;
    pthread_mutex_lock(&all->mutex);
    for (const struct dlock_session *session = all->first; session; session = session->next) {
        if (!session->token[0] || session->fd < 0) continue;
        if (n < max) fds[n] = session->fd;
        n++;
    }
    pthread_mutex_unlock(&all->mutex);
    return n;
}

/* The members of the backend's table that are the same for every kind of session; `connect` is its own. */
#define DLOCK_SESSIONS_OPERATIONS                                                                        \
    .conn_size = sizeof(struct dlock_sessions), .disconnect = dlock_sessions_disconnect,                 \
    .acquire = dlock_sessions_acquire, .renew = dlock_sessions_renew, .release = dlock_sessions_release, \
    .abandon = dlock_sessions_abandon, .listen = dlock_sessions_listen, .wake = dlock_sessions_wake,     \
    .descriptors = dlock_sessions_descriptors

#ifdef __cplusplus
}
#endif
#endif
