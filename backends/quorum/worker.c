/* A member's worker, which keeps its connection and works on its queue. */
#include "quorum.h"

#include <dlock/backend_thread.h>

#include <stdlib.h>

enum {
    CONNECT_MS = 3000,    /* time for one attempt to connect */
    PAUSE_MIN_US = 50000, /* pauses between attempts */
    PAUSE_MAX_US = 1000000,
    AT_LEAST_MS = 1000, /* least time for a request, even if its caller has stopped waiting */
    LINE_MAX = 1024     /* longest queue; grants whose release does not fit end with their leases */
};

/* ---- waiting ---- */

void quorum_cond_init(pthread_cond_t *cond) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); /* CLOCK_BOOTTIME is not allowed here */
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

void quorum_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t until_us) {
    const int64_t left_us = until_us - dlock_now_us();
    struct timespec at;
    if (until_us == INT64_MAX) {
        pthread_cond_wait(cond, mutex);
        return;
    }
    if (left_us <= 0) return;
    clock_gettime(CLOCK_MONOTONIC, &at);
    int64_t ns = at.tv_nsec + left_us % 1000000 * 1000;
    at.tv_sec += (time_t)(left_us / 1000000 + ns / 1000000000);
    at.tv_nsec = (long)(ns % 1000000000);
    pthread_cond_timedwait(cond, mutex, &at);
}

/* ---- references ---- */

void quorum_round_put(struct quorum_round *round) {
    if (--round->refs > 0) return;
    pthread_cond_destroy(&round->changed);
    for (size_t i = 0; i < round->quorum->n; i++)
        if (round->parts[i].look) quorum_forget(round->parts[i].look);
    free(round);
}

void quorum_put(struct quorum *quorum) {
    pthread_mutex_lock(&quorum->mutex);
    bool last = --quorum->refs == 0;
    pthread_mutex_unlock(&quorum->mutex);
    if (!last) return;
    quorum_close_members(quorum);
    for (size_t i = 0; i < quorum->n; i++) pthread_cond_destroy(&quorum->members[i].work);
    pthread_cond_destroy(&quorum->changed);
    pthread_mutex_destroy(&quorum->mutex);
    if (quorum->event >= 0) close(quorum->event);
    if (quorum->epoll >= 0) close(quorum->epoll);
    free(quorum);
}

/* ---- the line ---- */

static void done(struct quorum_part *part, int rc, const struct dlock_error *err) {
    struct quorum_round *round = part->round;
    part->state = QUORUM_DONE;
    part->rc = rc;
    if (rc != 0) part->err = *err;
    if (round->awaited && round->decided(round, dlock_now_us())) pthread_cond_signal(&round->changed);
    quorum_round_put(round);
}

static struct quorum_part *take_first(struct quorum_member *member) {
    struct quorum_part *part = member->first;
    member->first = part->next;
    if (!member->first) member->last = NULL;
    member->lined_up--;
    return part;
}

static void put_back(struct quorum_member *member, struct quorum_part *part) {
    part->state = QUORUM_LINED_UP;
    part->next = member->first;
    member->first = part;
    if (!member->last) member->last = part;
    member->lined_up++;
}

/* Answers the parts at the head of the queue that are no longer needed. */
static void drop_outdated(struct quorum_member *member, int64_t now_us) {
    static const struct dlock_error late = {DLOCK_EUNAVAILABLE, "no answer in time"};
    while (member->first && (member->first->round->given_up || now_us >= member->first->round->until_us))
        done(take_first(member), DLOCK_EUNAVAILABLE, &late);
}

/* Answers all parts but releases, after an attempt to connect has failed. Releases stay in the queue. */
static void answer_all(struct quorum_member *member) {
    struct quorum_part *kept = NULL, *part;
    struct quorum_part **end = &kept;
    while (member->first) {
        part = take_first(member);
        if (part->round->verb != DLOCK_RELEASE) {
            done(part, member->why.code, &member->why);
            continue;
        }
        *end = part;
        end = &part->next;
    }
    *end = NULL;
    for (; kept; kept = part) {
        part = kept->next;
        quorum_line_up(member, kept);
    }
}

void quorum_line_up(struct quorum_member *member, struct quorum_part *part) {
    part->state = QUORUM_LINED_UP;
    part->next = NULL;
    if (member->lined_up >= LINE_MAX || (member->state == QUORUM_DOWN && part->round->verb != DLOCK_RELEASE)) {
        static const struct dlock_error full = {DLOCK_EUNAVAILABLE, "its queue is full"};
        const struct dlock_error *why = member->state == QUORUM_DOWN ? &member->why : &full;
        done(part, why->code, why);
        return;
    }
    *(member->last ? &member->last->next : &member->first) = part;
    member->last = part;
    member->lined_up++;
}

/* ---- the connection: these release the mutex while they run ---- */

static void hang_up(struct quorum_member *member) {
    pthread_mutex_unlock(&member->quorum->mutex);
    member->server.backend->disconnect(member->conn);
    atomic_store(&member->live, false);
    pthread_mutex_lock(&member->quorum->mutex);
}

/* Without a pause it is not down yet: requests wait for the attempt to connect that comes next. */
static void went_down(struct quorum_member *member, int64_t pause_us, const struct dlock_error *why) {
    member->state = pause_us > 0 ? QUORUM_DOWN : QUORUM_CONNECTING;
    member->why = *why;
    member->pause_us = pause_us;
    member->retry_us = dlock_now_us() + pause_us;
    quorum_deafen(member);
    pthread_cond_broadcast(&member->quorum->changed);
}

static void connect_anew(struct quorum_member *member) {
    struct dlock_error why = {DLOCK_EUNAVAILABLE, ""};
    member->state = QUORUM_CONNECTING;
    member->busy_us = dlock_now_us();
    pthread_mutex_unlock(&member->quorum->mutex);
    memset(member->conn, 0, member->server.backend->conn_size);
    atomic_store(&member->live, true);
    int rc = member->server.connect(&member->server, member->conn, CONNECT_MS, &why);
    pthread_mutex_lock(&member->quorum->mutex);
    member->tried = true;
    member->busy_us = 0;
    if (rc == 0) {
        member->state = QUORUM_UP;
        member->pause_us = 0;
        member->used = false;
        pthread_cond_broadcast(&member->quorum->changed);
        return;
    }
    hang_up(member);
    why.code = rc;
    int64_t pause_us = member->pause_us * 2 < PAUSE_MIN_US ? PAUSE_MIN_US : member->pause_us * 2;
    went_down(member, pause_us < PAUSE_MAX_US ? pause_us : PAUSE_MAX_US, &why);
    answer_all(member);
}

/* ---- parts ---- */

enum { BATCH = 256 }; /* most claims in one request */

/* Consecutive parts that are sent as one request. */
struct batch {
    int verb;
    struct quorum_part *parts[BATCH];
    struct dlock_claim *claims[BATCH];
    size_t n_parts, n;
};

/* True if a part can join a batch: dlock_batch allows no name twice, and for releases no token twice. */
static bool fits(const struct batch *batch, const struct quorum_part *part) {
    const struct quorum_round *round = part->round;
    if (round->verb != batch->verb || round->verb > DLOCK_RELEASE || round->given_up || batch->n + round->n > BATCH)
        return false;
    for (size_t i = 0; i < round->n; i++)
        for (size_t j = 0; j < batch->n; j++) {
            const struct dlock_claim *a = &part->claims[i], *b = batch->claims[j];
            const bool release = batch->verb == DLOCK_RELEASE;
            if (strcmp(release ? a->token : a->name, release ? b->token : b->name) == 0) return false;
        }
    return true;
}

static void add(struct batch *batch, struct quorum_part *part) {
    part->state = QUORUM_RUNNING;
    part->sent = true;
    batch->parts[batch->n_parts++] = part;
    for (size_t i = 0; i < part->round->n; i++) batch->claims[batch->n++] = &part->claims[i];
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(struct dlock_claim *const *)a)->name, (*(struct dlock_claim *const *)b)->name);
}

/* Returns the time for a request: as long as any caller waits for it, but at least AT_LEAST_MS. */
static int timeout_of(const struct batch *batch, int64_t now_us) {
    int64_t most_us = AT_LEAST_MS * INT64_C(1000);
    for (size_t i = 0; i < batch->n_parts; i++)
        if (batch->parts[i]->round->deadline_us - now_us > most_us)
            most_us = batch->parts[i]->round->deadline_us - now_us;
    return (int)(most_us / 1000);
}

static int call(struct quorum_member *member, struct batch *batch, int timeout_ms, struct dlock_error *err) {
    const struct dlock_backend *backend = member->server.backend;
    dlock_batch *run = batch->verb == DLOCK_ACQUIRE ? backend->acquire
                       : batch->verb == DLOCK_RENEW ? backend->renew
                                                    : backend->release;
    if (batch->n_parts > 1) qsort(batch->claims, batch->n, sizeof batch->claims[0], by_name);
    int rc = batch->verb > DLOCK_RELEASE ? quorum_look(member, batch->parts[0], timeout_ms, err)
                                         : run(member->conn, batch->claims, batch->n, timeout_ms, err);
    return rc > 0 ? dlock_fail(err, DLOCK_EPROTO, "backend %s returned %d", backend->name, rc) : rc;
}

/* Decides whether a part is sent again after its connection has broken. A connection that had worked may have died
 * unnoticed, so a part gets a second try on a new one. A release always stays in the queue, since a grant may be
 * there. */
static bool is_tried_again(const struct quorum_member *member, struct quorum_part *part, int rc) {
    const bool second = rc == DLOCK_EUNAVAILABLE && member->used && !part->again;
    if (!second && part->round->verb != DLOCK_RELEASE) return false;
    part->again = true;
    return true;
}

/* The member stays busy until it has hung up, so that its connection is not used before that. */
static void broke(struct quorum_member *member, const struct batch *batch, int rc, struct dlock_error *why) {
    bool again = false;
    why->code = rc;
    member->state = QUORUM_DOWN;
    for (size_t i = batch->n_parts; i-- > 0;) {
        if (!is_tried_again(member, batch->parts[i], rc)) {
            done(batch->parts[i], rc, why);
            continue;
        }
        put_back(member, batch->parts[i]);
        again = true;
    }
    went_down(member, again && member->used ? 0 : PAUSE_MIN_US, why);
    hang_up(member);
    member->busy_us = 0;
}

/* Runs a batch, since busy_us, for most_ms at most. */
static void run_batch(struct quorum_member *member, struct batch *batch, int most_ms) {
    struct dlock_error err = {0};
    int timeout_ms = timeout_of(batch, dlock_now_us());
    if (timeout_ms > most_ms) timeout_ms = most_ms;
    pthread_mutex_unlock(&member->quorum->mutex);
    int rc = call(member, batch, timeout_ms, &err);
    pthread_mutex_lock(&member->quorum->mutex);
    int64_t ignored = INT64_MAX;
    const bool silent = quorum_is_silent(member, dlock_now_us(), &ignored);
    if (rc != 0) {
        broke(member, batch, rc, &err);
        return;
    }
    member->busy_us = 0;
    member->used = true;
    if (silent) quorum_gate_moved(member->quorum); /* it can be the gate again, now that it has answered */
    for (size_t i = 0; i < batch->n_parts; i++) {
        batch->parts[i]->err = err; /* describes one of the claims */
        done(batch->parts[i], 0, NULL);
    }
}

static void work_on_line(struct quorum_member *member) {
    struct batch batch;
    batch.n_parts = batch.n = 0;
    batch.verb = member->first->round->verb;
    do add(&batch, take_first(member));
    while (member->first && fits(&batch, member->first));
    member->busy_us = dlock_now_us();
    run_batch(member, &batch, INT32_MAX);
}

void quorum_read_answer(struct quorum_member *member, struct quorum_part *part, int most_ms) {
    struct batch batch;
    batch.n_parts = batch.n = 0;
    batch.verb = part->round->verb;
    add(&batch, part);
    run_batch(member, &batch, most_ms);
}

/* Takes over the answer that a caller polls for, once the member is considered silent: by then the caller would have
 * left it to the worker, unless its thread is stalled. Otherwise lowers *at_us to that time. */
static void take_polled(struct quorum_member *member, int64_t now_us, int64_t *at_us) {
    if (!member->polled || !quorum_is_silent(member, now_us, at_us)) return;
    member->begun = member->polled;
    member->polled = NULL;
}

/* Reads the answer to a request that a caller has sent. */
static void take_over(struct quorum_member *member) {
    struct quorum_part *part = member->begun;
    member->begun = NULL;
    quorum_read_answer(member, part, INT32_MAX);
}

/* ---- the thread ---- */

/* Runs until the client's connection is closed and the member's queue is empty, or the member is not connected. */
static void run(struct quorum_member *member) {
    struct quorum *quorum = member->quorum;
    for (;;) {
        const int64_t now_us = dlock_now_us();
        int64_t silent_us = INT64_MAX;
        quorum_tend_ear(member, now_us);
        drop_outdated(member, now_us);
        take_polled(member, now_us, &silent_us);
        if (member->begun) {
            take_over(member);
            continue;
        }
        if (member->busy_us) {
            member->passed_by = true;
            quorum_wait(&member->work, &quorum->mutex, silent_us);
            continue;
        }
        if (quorum->closing && (member->state != QUORUM_UP || !member->first)) return;
        if (member->state == QUORUM_UP && member->first)
            work_on_line(member);
        else if (member->state == QUORUM_UP)
            quorum_wait(&member->work, &quorum->mutex, INT64_MAX);
        else if (now_us >= member->retry_us)
            connect_anew(member);
        else
            quorum_wait(&member->work, &quorum->mutex, member->retry_us);
    }
}

static void *worker(void *arg) {
    static const struct dlock_error closed = {DLOCK_EUNAVAILABLE, "the connection was closed"};
    struct quorum_member *member = arg;
    struct quorum *quorum = member->quorum;
    pthread_mutex_lock(&quorum->mutex);
    run(member);
    while (member->first) done(take_first(member), DLOCK_EUNAVAILABLE, &closed);
    if (atomic_load(&member->live)) hang_up(member);
    quorum_tend_ear(member, dlock_now_us());
    member->ended = true;
    pthread_cond_broadcast(&quorum->changed);
    pthread_mutex_unlock(&quorum->mutex);
    quorum_put(quorum);
    return NULL;
}

int quorum_start_worker(struct quorum_member *member, struct dlock_error *err) {
    member->quorum->refs++;
    member->started = dlock_start_thread(&member->thread, worker, member) == 0;
    if (member->started) return 0;
    member->quorum->refs--;
    return dlock_fail(err, DLOCK_ENOMEM,
                      "no thread for a member of the quorum; raise the limit (ulimit -u, ulimit -v)");
}
